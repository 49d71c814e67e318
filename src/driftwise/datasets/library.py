"""Known data sets by name: found on this machine or fetched, decoded once and kept.

load("cifar-10")        the data set, wherever it is
find("cifar-10")        where it is
status()                what is known, and what is here
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from driftwise.datasets.catalogue import KNOWN, KnownSet, known_set
from driftwise.datasets.obtain import fetch, how_to_get
from driftwise.datasets.paths import VARIABLE, Place, candidates, locate, not_found
from driftwise.datasets.progress import Progress
from driftwise.errors import UserError

if TYPE_CHECKING:
    from driftwise.datasets.allocate import Allocate
    from driftwise.types import Dataset

OFFLINE = "DRIFTWISE_OFFLINE"
"""The environment variable that rules downloads out: anything but empty or 0."""

Warn = Callable[[str], None]
"""Told what a person should know although nothing has gone wrong."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """One line of the list of known data sets."""

    known: KnownSet
    path: Path | None
    """where it was found; None: nowhere, or inside a package"""
    bytes_on_disk: int | None
    """None: not on disk"""

    @property
    def is_here(self) -> bool:
        """Whether it can be used without a download."""
        return self.known.is_embedded or self.path is not None


def load(
    name: str,
    path: Path | None = None,
    *,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Dataset:
    """A known data set, its pixels mapped from a file that the first use makes.

    It is looked for on this machine first: at `path` and nowhere else if that is given. Otherwise
    it is downloaded where that is possible, unless DRIFTWISE_OFFLINE is set.
    """
    known = known_set(name)
    if known.is_embedded:
        refuse_path(known, path)
        from driftwise.datasets.allocate import empty

        return known.read(Path(), empty)
    found = find(name, path)
    if found is None:
        found = _obtain(known, path, progress, warn)
    from driftwise.datasets.cache import cached, source_of

    def read(allocate: Allocate) -> Dataset:
        return known.read(found, allocate, progress and partial(progress, f"decoding {known.name}"))

    return cached(
        cache_name(known.name, None if path is None else found),
        source_of(existing_sources(known, found), tag=f"{known.name} {known.version}"),
        read,
        warn=warn,
    )


def find(name: str, path: Path | None = None) -> Path | None:
    """Where a data set lies on this machine; None: nowhere, or inside a package."""
    known = known_set(name)
    found = locate(known.hints, lambda place: known.within(place) is not None, explicit=path)
    return None if found is None else known.within(found)


def status() -> list[Status]:
    """Every known data set and whether it is here."""
    return [_status(known) for known in KNOWN.values()]


def existing_sources(known: KnownSet, found: Path) -> list[Path]:
    """The files and folders that a data set is read from, those that are there."""
    return [path for source in known.sources if (path := found / source).exists()]


def cache_name(name: str, path: Path | None) -> str:
    """What the decoded copy is called; one per path where a user chose the path.

    Otherwise two folders would take turns in throwing each other's copy away.
    """
    if path is None:
        return name
    return f"{name}-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"


def refuse_path(known: KnownSet, path: Path | None) -> None:
    """An error for a path to a data set that comes inside a package."""
    if path is not None:
        raise UserError(
            f"{known.name} comes inside a package and is read from nowhere else; leave out {path}"
        )


def _obtain(
    known: KnownSet, path: Path | None, progress: Progress | None, warn: Warn | None
) -> Path:
    """Download a data set that is nowhere; an error that says where it was looked for."""
    if path is not None or not known.files:
        raise nowhere(known, path)
    if is_offline():
        raise nowhere(known, path, f"{OFFLINE} is set, so that it was not downloaded")
    if warn is not None:
        warn(f"{known.name} was not found on this machine and is downloaded from {_host(known)}")
    try:
        return fetch(known.name, progress=progress)
    except UserError as error:
        raise nowhere(known, path, str(error)) from error


def is_offline() -> bool:
    """Whether the user has ruled downloads out."""
    return os.environ.get(OFFLINE, "") not in ("", "0")


def nowhere(known: KnownSet, path: Path | None, remark: str = "") -> UserError:
    """The error for a data set that is not on this machine: where it was looked for, what helps."""
    tried = _by_folder(candidates(known.hints, explicit=path), known.hints)
    error = not_found(known.name, tried, _what_helps(known))
    return UserError(f"{error}\n({remark})") if remark else error


def _by_folder(places: Sequence[Place], hints: Sequence[str]) -> list[Place]:
    """One place per folder of data sets, with the names that were tried in it in braces."""
    names: dict[tuple[Path, str], list[str]] = {}
    for place in places:
        name = next((hint for hint in hints if place.path.match(hint)), "")
        folder = place.path.parents[len(Path(name).parts) - 1] if name else place.path
        names.setdefault((folder, place.origin), []).append(name)
    grouped = []
    for (folder, origin), tried in names.items():
        grouped += [Place(path=folder, origin=origin)] if "" in tried else []
        if named := [name for name in tried if name]:
            some = named[0] if len(named) == 1 else f"{{{', '.join(named)}}}"
            grouped.append(Place(path=folder / some, origin=origin))
    return grouped


def _what_helps(known: KnownSet) -> list[str]:
    lines = [f"driftwise data fetch {known.name}   (from {_host(known)})"] if known.files else []
    lines += how_to_get(known)
    return [*lines, f'data="PATH", or {VARIABLE}=FOLDER, if it lies elsewhere']


def _host(known: KnownSet) -> str:
    return known.files[0].url.split("/")[2]


def _status(known: KnownSet) -> Status:
    found = None if known.is_embedded else find(known.name)
    size = None if found is None else _bytes_in(existing_sources(known, found))
    return Status(known=known, path=found, bytes_on_disk=size)


def _bytes_in(paths: Iterable[Path]) -> int:
    """The size of files and of everything in folders."""
    total = 0
    for path in paths:
        if not path.is_dir():
            total += path.stat().st_size
            continue
        for folder, _, names in os.walk(path):
            total += sum(os.lstat(f"{folder}/{name}").st_size for name in names)
    return total
