"""Where data may lie, and where it is put."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftwise.errors import UserError, warn_caller

SYSTEM_FOLDERS = (Path("/usr/local/share/datasets"), Path("/usr/share/datasets"))
"""Where system packages put data sets; Debian's Fashion-MNIST is `fashion-mnist` in the last."""

GIVEN = "the path that was given"
VARIABLE = "DRIFTWISE_DATA"

OLD_NAME = "recollect"
"""The name of this package until 0.1: its data folder and its variables are still read."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """One file or folder that may hold a data set."""

    path: Path
    origin: str
    """what made it a candidate"""
    folder: Path = Path()
    """the folder of data sets, or the path that the user named"""


def candidates(name_hints: Sequence[str], *, explicit: Path | None = None) -> list[Place]:
    """Every place where a data set may lie, in order; an explicit path rules out all others.

    Hints are the names of a data set in a folder of data sets: `("fashion-mnist",
    "FashionMNIST/raw")`. A path the user names may be such a folder or the data set itself.
    """
    if explicit is not None:
        return _named(explicit.expanduser(), ("", *name_hints), GIVEN)
    # The hints go first: a folder of data sets must not pass for a data set of its own.
    listed = [folder for folder in environment(VARIABLE).split(os.pathsep) if folder]
    places = [
        place
        for folder in listed
        for place in _named(Path(folder).expanduser().absolute(), (*name_hints, ""), VARIABLE)
    ]
    for folder, origin in (
        (data_home(), "the user's data folder"),
        (data_home(OLD_NAME), "the data folder under the package's old name"),
        (Path("data").absolute(), "torchvision's usual folder"),
        (_home() / "data", "torchvision's usual folder"),
        *((folder, "the system's packages") for folder in SYSTEM_FOLDERS),
    ):
        places += _named(folder, name_hints, origin)
    unique: dict[Path, Place] = {}
    for place in places:
        unique.setdefault(place.path, place)
    return list(unique.values())


def locate(
    name_hints: Sequence[str], looks_right: Callable[[Path], bool], explicit: Path | None = None
) -> Path | None:
    """The first place that exists and passes `looks_right`, None if there is none."""
    for place in candidates(name_hints, explicit=explicit):
        with contextlib.suppress(OSError):  # a folder that may not be read is no place to read from
            if place.path.exists() and looks_right(place.path):
                return place.path
    return None


def data_home(name: str = "driftwise") -> Path:
    """The user's folder for data sets; it need not exist."""
    usual = {"darwin": "Library/Application Support", "win32": "AppData/Local"}
    return _base("XDG_DATA_HOME", usual.get(sys.platform, ".local/share")) / name


def cache_home() -> Path:
    """The user's folder for what can be made again; it need not exist."""
    if chosen := environment("DRIFTWISE_CACHE"):
        return Path(chosen).expanduser().absolute()
    usual = {"darwin": "Library/Caches", "win32": "AppData/Local"}
    home = _base("XDG_CACHE_HOME", usual.get(sys.platform, ".cache")) / "driftwise"
    return home / "cache" if sys.platform == "win32" else home


def environment(variable: str) -> str:
    """The value of a variable DRIFTWISE_*, empty where it is not set.

    Where it is not set, but the variable of the package's old name is, that one counts, with a
    warning.
    """
    old = variable.replace("DRIFTWISE", OLD_NAME.upper())
    if variable in os.environ or not os.environ.get(old):
        return os.environ.get(variable, "")
    _warn_of_old_name(old, variable)
    return os.environ[old]


@functools.cache  # once in a process
def _warn_of_old_name(old: str, new: str) -> None:
    warn_caller(f"{old} is the old name of {new} and is used for now; set {new} instead")


def _named(folder: Path, hints: Sequence[str], origin: str) -> list[Place]:
    """The places a folder of data sets offers; a file is the only place it offers."""
    if folder.is_file():
        hints = [""] if "" in hints else []
    return [Place(path=folder / hint, folder=folder, origin=origin) for hint in hints]


def _base(variable: str, usual: str) -> Path:
    """A base folder of this user: the one the XDG variable names, or the usual one."""
    if sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        return Path(os.environ["LOCALAPPDATA"])
    chosen = Path(os.environ.get(variable, ""))
    # By the XDG rules, relative paths are ignored.
    return chosen if chosen.is_absolute() else _home() / usual


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise UserError("expected a home folder, but this user has none; set HOME") from None
