"""Known data sets by name: found on this machine or fetched, decoded once and kept.

load("cifar-10")        the data set, wherever it is
find("cifar-10")        where it is
fetch("cifar-10")       download it
status()                what is known, and what is here
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from driftwise.datasets import archive, download
from driftwise.datasets.catalogue import KNOWN, KnownSet, known_set
from driftwise.datasets.reading import Allocate, Progress, Warn, empty, stage
from driftwise.errors import UserError
from driftwise.files import alone, refuse_links, writing
from driftwise.paths import VARIABLE, candidates, data_home, environment, locate

if TYPE_CHECKING:
    from driftwise.types import Dataset

OFFLINE = "DRIFTWISE_OFFLINE"
"""The environment variable that rules downloads out: anything but empty or 0."""
REMEDY = "free some space or let XDG_DATA_HOME name another folder"


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
    path: str | Path | None = None,
    *,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Dataset:
    """A known data set, its pixels mapped from a file that the first use makes.

    Args:
        name: of the data set (`cifar-10`) or of its benchmark (`cifar10-cd`); `driftwise data list`
            shows them all.
        path: where it lies, instead of the usual places. Without one, a data set that is not on
            this machine is downloaded where that is possible, unless DRIFTWISE_OFFLINE is set.
        progress: called while it is downloaded, unpacked and decoded.
        warn: called with messages for the user.

    >>> data = load("digits")
    >>> data.images.shape, data.class_names[:3]
    ((1797, 8, 8, 1), ('0', '1', '2'))
    """
    known = known_set(name)
    path = None if path is None else Path(path)
    if known.is_embedded:
        refuse_path(known, path)
        return known.read(Path(), empty)
    found = find(name, path)
    if found is None:
        found = _obtain(known, path, progress, warn)
    if not known.is_cached:
        return known.read(found, empty, stage(progress, f"reading {known.name}"))
    from driftwise.datasets.cache import cached, source_of

    def read(allocate: Allocate) -> Dataset:
        return known.read(found, allocate, stage(progress, f"decoding {known.name}"))

    return cached(
        cache_name(known.name, None if path is None else found),
        source_of(existing_sources(known, found), tag=f"{known.name} {known.version}"),
        read,
        warn=warn,
    )


def find(name: str, path: Path | None = None) -> Path | None:
    """Where a data set lies on this machine; None: nowhere, or inside a package.

    >>> find("digits") is None  # inside a package, not in a folder
    True
    """
    known = known_set(name)
    found = locate(known.hints, lambda place: known.within(place) is not None, explicit=path)
    return None if found is None else known.within(found)


def status() -> list[Status]:
    """Every known data set and whether it is here.

    >>> [each.known.name for each in status()][:2]
    ['digits', 'fashion-mnist']
    """
    lines = []
    for known in KNOWN.values():
        found = None if known.is_embedded else find(known.name)
        size = None if found is None else _bytes_in(existing_sources(known, found))
        lines.append(Status(known=known, path=found, bytes_on_disk=size))
    return lines


def fetch(name: str, *, progress: Progress | None = None) -> Path:
    """Download a data set into the user's data folder and return its path.

    A data set that is there already is kept. Nothing shows in its place until all of it is there;
    an interrupted download continues where it stopped.

    >>> try:
    ...     fetch("digits")  # fetch("cifar-10") downloads it
    ... except UserError as error:
    ...     print(error)
    digits comes inside a package; there is nothing to fetch
    """
    known = known_set(name)
    if known.is_embedded:
        raise UserError(f"{known.name} comes inside a package; there is nothing to fetch")
    if not known.files:
        raise UserError(
            f"{known.name} has no official address to fetch it from; {'; '.join(_by_hand(known))}"
        )
    target = data_home() / known.name
    with writing(target, REMEDY):
        target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target):
        if not target.exists():
            _download(known, target, progress)
    found = known.within(target)
    if found is None:
        raise UserError(f"{target} exists, but holds no {known.name}; remove it to fetch it again")
    return found


def existing_sources(known: KnownSet, found: Path) -> list[Path]:
    """The files and folders that a data set is read from, those that are there."""
    return [path for source in known.sources if (path := found / source).exists()]


def cache_name(name: str, path: Path | None) -> str:
    """The name of the decoded copy; one per path where a user chose the path.

    Otherwise two folders would replace each other's copy in turn.
    """
    if path is None:
        return name
    return f"{name}-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"


def refuse_path(known: KnownSet, path: Path | None) -> None:
    """Refuse a path to a data set that comes inside a package."""
    if path is not None:
        raise UserError(
            f"{known.name} comes inside a package and is read from nowhere else; leave out {path}"
        )


def is_offline() -> bool:
    """Whether the user has ruled downloads out."""
    return environment(OFFLINE) not in ("", "0")


def nowhere(known: KnownSet, path: Path | None, remark: str = "") -> UserError:
    """The error for a data set that is not on this machine: the places searched, what helps."""
    places = candidates(known.hints, explicit=path)
    folders = dict.fromkeys(f"  {place.folder} ({place.origin})" for place in places)
    lines = [f"{known.name} was not found; searched for {', '.join(known.hints)} in", *folders]
    if path is None and not environment(VARIABLE):
        lines.append(f"  ({VARIABLE}, which may name further folders, is not set)")
    lines.append("what helps:")
    if known.files:
        lines.append(f"  driftwise data fetch {known.name}   (from {_host(known)})")
    lines += [f"  {way}" for way in _by_hand(known)]
    lines.append(f'  data="PATH", or {VARIABLE}=FOLDER, if it lies elsewhere')
    return UserError("\n".join([*lines, f"({remark})"] if remark else lines))


def _obtain(
    known: KnownSet, path: Path | None, progress: Progress | None, warn: Warn | None
) -> Path:
    """Download a data set that was not found, or raise an error with the places searched."""
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


def _download(known: KnownSet, target: Path, progress: Progress | None) -> None:
    """Fetch and unpack beside the target, which appears when all is done."""
    beside = target.with_name(f"{target.name}.fetching")
    refuse_links(target.parent, beside)
    entries: list[Path] = []
    for file in known.files:
        here = download.fetch(
            file.url,
            beside / file.name,
            md5=file.md5,
            sha256=file.sha256,
            size=file.size,
            progress=stage(progress, f"downloading {file.name}"),
        )
        if file.extract:
            unpacked = beside / f"{file.name}.unpacked"
            shutil.rmtree(unpacked, ignore_errors=True)  # of a process that was killed
            archive.extract(here, unpacked, progress=stage(progress, f"unpacking {file.name}"))
            entries += unpacked.iterdir()
        else:
            entries.append(here)
    content = beside / "content"
    with writing(target, REMEDY):
        shutil.rmtree(content, ignore_errors=True)
        content.mkdir()
        for entry in entries:
            _move_into(content, entry)
        content.rename(target)
    shutil.rmtree(beside, ignore_errors=True)  # the archives are no longer needed


def _move_into(folder: Path, entry: Path) -> None:
    """Move a file or a folder into another one; folders of the same name become one."""
    target = folder / entry.name
    if not target.exists():
        entry.rename(target)
    elif target.is_dir() and entry.is_dir():
        for inner in entry.iterdir():
            _move_into(target, inner)
    # The same readme in two archives is no contradiction.
    elif not (target.is_file() and entry.is_file() and filecmp.cmp(target, entry, shallow=False)):
        raise UserError(
            f"two of the archives hold different files at {target}; they do not belong together"
        )


def _by_hand(known: KnownSet) -> list[str]:
    """Further ways for the user to get a data set."""
    return [way.format(place=data_home() / known.name) for way in known.by_hand]


def _host(known: KnownSet) -> str:
    return known.files[0].url.split("/")[2]


def _bytes_in(paths: Iterable[Path]) -> int:
    """The size of files and of everything in folders."""
    total = 0
    for path in paths:
        if not path.is_dir():
            total += path.stat().st_size
        for folder, _, names in os.walk(path):
            total += sum(os.lstat(f"{folder}/{name}").st_size for name in names)
    return total
