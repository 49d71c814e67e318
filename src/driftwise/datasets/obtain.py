"""Known data sets from their official addresses: checked, unpacked, in place in one step."""

from __future__ import annotations

import filecmp
import shutil
from functools import partial
from pathlib import Path

from driftwise.datasets import archive, download
from driftwise.datasets.catalogue import KnownSet, known_set
from driftwise.datasets.paths import data_home
from driftwise.datasets.progress import Progress, StageProgress
from driftwise.errors import UserError
from driftwise.files import alone, refuse_links, writing

REMEDY = "free some space or let XDG_DATA_HOME name another folder"


def fetch(name: str, *, progress: Progress | None = None) -> Path:
    """Download a data set into the user's data folder; where it then lies.

    What is there already is kept. Nothing shows in its place until all of it is there; an
    interrupted download goes on where it stopped.
    """
    known = known_set(name)
    if known.is_embedded:
        raise UserError(f"{known.name} comes inside a package; there is nothing to fetch")
    if not known.files:
        raise UserError(
            f"{known.name} has no official address to fetch it from; {'; '.join(how_to_get(known))}"
        )
    target = home_of(known)
    with writing(target, REMEDY):
        target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target):
        if not target.exists():
            _bring(known, target, progress)
    found = known.within(target)
    if found is None:
        raise UserError(f"{target} exists, but holds no {known.name}; remove it to fetch it anew")
    return found


def home_of(known: KnownSet) -> Path:
    """Where a data set lies once it has been fetched."""
    return data_home() / known.name


def how_to_get(known: KnownSet) -> list[str]:
    """What a person can do to get a data set, other than let it be fetched."""
    return [way.format(place=home_of(known)) for way in known.by_hand]


def _bring(known: KnownSet, target: Path, progress: Progress | None) -> None:
    """Fetch and unpack beside the target, which appears when all is done."""
    desk = target.with_name(f"{target.name}.fetching")
    refuse_links(target.parent, desk)
    brought: list[Path] = []
    for file in known.files:
        here = download.fetch(
            file.url,
            desk / file.name,
            md5=file.md5,
            sha256=file.sha256,
            size=file.size,
            progress=_about(f"downloading {file.name}", progress),
        )
        if file.extract:
            unpacked = desk / f"{file.name}.unpacked"
            shutil.rmtree(unpacked, ignore_errors=True)  # of a process that was killed
            archive.extract(here, unpacked, progress=_about(f"unpacking {file.name}", progress))
            brought += unpacked.iterdir()
        else:
            brought.append(here)
    content = desk / "content"
    with writing(target, REMEDY):
        shutil.rmtree(content, ignore_errors=True)
        content.mkdir()
        for entry in brought:
            _move_into(content, entry)
        content.rename(target)
    shutil.rmtree(desk, ignore_errors=True)  # the archives have served their purpose


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


def _about(what: str, progress: Progress | None) -> StageProgress | None:
    return None if progress is None else partial(progress, what)
