"""Is a data set on disk what it should be? Checksums, counts, and images that do not decode."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Unpack

import numpy as np

from driftwise.datasets.cache import verify_cache
from driftwise.datasets.catalogue import KnownSet, known_set, recognise
from driftwise.datasets.library import cache_name, existing_sources, find, nowhere, refuse_path
from driftwise.datasets.own import (
    FOLDER,
    READERS,
    TABLE,
    TableOptions,
    copy_name,
    kind_of,
    load_own,
)
from driftwise.datasets.readers.decode import BadImage, WrongSize, decode, decode_all, undecodable
from driftwise.datasets.readers.folders import SUFFIXES, Listing, list_folder
from driftwise.datasets.reading import Progress, discard, read_with, stage
from driftwise.errors import UserError
from driftwise.paths import cache_home
from driftwise.types import Dataset

Counts = Mapping[str, tuple[int, ...]]
"""Images per class, by part: `train` and `test`, or `all`; then each domain."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found out about a data set."""

    name: str
    path: Path | None
    """None: it comes inside a package"""
    right_sums: tuple[str, ...] = ()
    """files whose checksum is the official one"""
    class_names: tuple[str, ...] = ()
    counts: Counts | None = None
    """None: it could not be read"""
    problems: tuple[str, ...] = ()
    """errors: the data set is not as it should be"""
    notes: tuple[str, ...] = ()
    """no errors, but worth knowing"""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(
    name: str, path: Path | None = None, *, progress: Progress | None = None
) -> Verification:
    """Check a known data set, every byte of it; nothing is downloaded and nothing is kept."""
    known = known_set(name)
    if known.is_embedded:
        refuse_path(known, path)
        return _verify_read(known, None, progress)
    found = find(name, path)
    if found is None:
        raise nowhere(known, path)
    sums = dict(_sums(known, found, progress))
    reading = _verify_read(known, found, progress)
    return replace(
        reading,
        right_sums=tuple(name for name, problem in sums.items() if problem is None),
        problems=(
            *filter(None, sums.values()),
            *reading.problems,
            *_cache_problems(cache_name(known.name, path and found)),
        ),
    )


def verify_own(
    path: Path, *, progress: Progress | None = None, **table: Unpack[TableOptions]
) -> Verification:
    """Check whatever `load_own` reads, or the known data set that a path holds.

    `table`: columns of a table, as in `load_own`.
    """
    known = recognise(path)
    if known is not None:
        return verify(known.name, path, progress=progress)
    kind = kind_of(path)
    found: Dataset | Listing
    notes: list[str] = []
    problems: list[str] = []
    if kind == FOLDER:
        found = list_folder(path)
        notes += found.remarks
        if found.num_hidden:
            notes.append(f"hidden files that are left out: {found.num_hidden:,}")
        bad = _odd_images(found.files, progress)
        problems += [str(each) for each in bad if not isinstance(each, WrongSize)]
        if others := [each for each in bad if isinstance(each, WrongSize)]:
            notes.append(
                "images differ in size, so that a size must be given to load them:"
                f" {others[0].file}: {others[0].reason}"
            )
    elif kind == TABLE:
        found = load_own(path, **table)
    else:
        found = read_with(READERS[kind].function, path, discard)
    return Verification(
        name=path.name,
        path=path,
        class_names=found.class_names,
        counts=count(found),
        problems=(*problems, *_cache_problems(copy_name(path))),
        notes=tuple(notes),
    )


def count(dataset: Dataset | Listing) -> Counts:
    """Images per class in every part and in every domain."""
    parts = {"all": np.ones(len(dataset.labels), dtype=bool)}
    if dataset.is_test is not None:
        parts = {"train": ~dataset.is_test, "test": dataset.is_test}
    if dataset.domains is not None:
        parts |= {name: dataset.domains == i for i, name in enumerate(dataset.domain_names)}
    num_classes = len(dataset.class_names)
    return {
        part: tuple(np.bincount(dataset.labels[mask], minlength=num_classes).tolist())
        for part, mask in parts.items()
    }


def _verify_read(known: KnownSet, path: Path | None, progress: Progress | None) -> Verification:
    """Read the whole data set and discard the pixels."""
    found = path or Path()
    try:
        dataset = known.read(found, discard, stage(progress, f"decoding {known.name}"))
    except UserError as error:
        problems = [str(error)]
        if isinstance(error, BadImage):
            files = sorted(_images_in(existing_sources(known, found)))
            bad = undecodable(files, stage(progress, "decoding all images"))
            # The first one may decode well and have the wrong size.
            problems = list(dict.fromkeys([*problems, *map(str, bad)]))
        return Verification(name=known.name, path=path, problems=tuple(problems))
    num_test = 0 if dataset.is_test is None else int(dataset.is_test.sum())
    here = (len(dataset.labels) - num_test, num_test)
    notes: tuple[str, ...] = ()
    if known.num_samples not in (None, here):
        notes = (
            f"{here[0]:,} + {here[1]:,} images to train and to test on; the official set has"
            f" {known.num_samples[0]:,} + {known.num_samples[1]:,}",
        )
    return Verification(
        name=known.name,
        path=path,
        class_names=dataset.class_names,
        counts=count(dataset),
        notes=notes,
    )


def _sums(
    known: KnownSet, found: Path, progress: Progress | None
) -> Iterator[tuple[str, str | None]]:
    """The name of each official file that is present, and what is wrong with its checksum."""
    for name, md5 in known.contents.items():
        for spelling in {name, name.replace("-idx", ".idx")}:
            for file in (found / spelling, found / f"{spelling}.gz"):
                if file.is_file():
                    yield file.name, _compare(file, md5, progress)
    for remote in known.files:
        # Where torchvision leaves the archive: beside the folder that it unpacks to.
        archive = found.parent / remote.name
        if remote.extract and remote.md5 is not None and archive.is_file():
            yield archive.name, _compare(archive, remote.md5, progress, unzip=False)


def _compare(file: Path, md5: str, progress: Progress | None, *, unzip: bool = True) -> str | None:
    """What is wrong with a file by its MD5 sum, that of the unzipped content for `.gz`."""
    if progress is not None:
        progress(f"checking {file.name}", 0, None)
    opened = gzip.open if unzip and file.suffix == ".gz" else open
    try:
        stream: IO[bytes] | gzip.GzipFile
        with opened(file, "rb") as stream:
            digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
    except (OSError, EOFError, zlib.error) as error:
        return f"{file}: cannot be read ({error})"
    if (got := digest.hexdigest()) == md5:
        return None
    return f"{file}: not the official file (md5 {got}, expected {md5})"


def _odd_images(files: Sequence[Path], progress: Progress | None) -> list[BadImage]:
    """Every file that is no usable image, or one of another size than the first that is."""
    height, width = 1, 1
    for file in files:
        with contextlib.suppress(BadImage):
            height, width, _ = decode(file, channels=3).shape
            break
    out = discard((len(files), height, width, 3))
    decoding = stage(progress, "decoding all images")
    return decode_all(files, out, fit="exact", on_bad="skip", progress=decoding)


def _images_in(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        for folder, _, names in os.walk(path):
            yield from (Path(folder, name) for name in names if name.lower().endswith(SUFFIXES))


def _cache_problems(name: str) -> list[str]:
    """What is wrong with the decoded copies of that name, if there are any."""
    copies = sorted((cache_home() / "datasets").glob(f"{name}-{'[0-9a-f]' * 16}"))
    return [
        f"{copy}: {problem}; remove it to have it made again"
        for copy in copies
        for problem in verify_cache(copy)
    ]
