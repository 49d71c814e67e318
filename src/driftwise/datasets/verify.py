"""Is a data set on disk what it should be? Checksums, counts, and images that do not decode."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from driftwise.datasets.cache import verify_cache
from driftwise.datasets.catalogue import KnownSet, known_set, recognise
from driftwise.datasets.library import cache_name, existing_sources, find, nowhere, refuse_path
from driftwise.datasets.own import copy_name, kind_of
from driftwise.datasets.paths import cache_home
from driftwise.datasets.readers.decode import BadImage, WrongSize, decode, decode_all, undecodable
from driftwise.datasets.readers.folders import SUFFIXES, Listing, list_folder
from driftwise.datasets.readers.npz import read_npz
from driftwise.datasets.reading import Progress, discard, stage
from driftwise.errors import UserError
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
    """what is wrong"""
    notes: tuple[str, ...] = ()
    """what is not wrong but worth knowing"""

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
        return _verify_read(known, Path(), None)
    found = find(name, path)
    if found is None:
        raise nowhere(known, path)
    sums = dict(_sums(known, found, progress))
    reading = _verify_read(known, found, progress)
    return Verification(
        name=known.name,
        path=found,
        right_sums=tuple(name for name, problem in sums.items() if problem is None),
        class_names=reading.class_names,
        counts=reading.counts,
        problems=(
            *filter(None, sums.values()),
            *reading.problems,
            *_cache_problems(cache_name(known.name, path and found)),
        ),
        notes=reading.notes,
    )


def verify_own(path: Path, *, progress: Progress | None = None) -> Verification:
    """Check whatever `load_own` reads, or the known data set that a path holds."""
    known = recognise(path)
    if known is not None:
        return verify(known.name, path, progress=progress)
    kind = kind_of(path)
    found: Dataset | Listing
    notes: list[str] = []
    problems: list[str] = []
    if kind == "an .npz file":
        found = read_npz(path, allocate=discard)
    elif kind == "a Hugging Face data set":
        from driftwise.datasets.readers.huggingface import read_huggingface

        found = read_huggingface(path, allocate=discard)
    else:
        found = list_folder(path)
        notes += found.remarks
        if found.num_hidden:
            notes.append(f"hidden files that are left out: {found.num_hidden:,}")
        skipped = _odd_images(found.files, progress)
        problems += [str(bad) for bad in skipped if not isinstance(bad, WrongSize)]
        notes += _about_sizes([bad for bad in skipped if isinstance(bad, WrongSize)])
    problems += _cache_problems(copy_name(path))
    return _report(path.name, path, found, notes, problems)


def count(dataset: Dataset | Listing) -> Counts:
    """Images per class in every part and in every domain."""
    everywhere = np.ones(len(dataset.labels), dtype=bool)
    parts = {"all": everywhere}
    if dataset.is_test is not None:
        parts = {"train": ~dataset.is_test, "test": dataset.is_test}
    if dataset.domains is not None:
        parts |= {name: dataset.domains == i for i, name in enumerate(dataset.domain_names)}
    num_classes = len(dataset.class_names)
    return {
        part: tuple(np.bincount(dataset.labels[mask], minlength=num_classes).tolist())
        for part, mask in parts.items()
    }


def _report(
    name: str,
    path: Path | None,
    dataset: Dataset | Listing,
    notes: Sequence[str],
    problems: Sequence[str] = (),
) -> Verification:
    return Verification(
        name=name,
        path=path,
        class_names=dataset.class_names,
        counts=count(dataset),
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _verify_read(known: KnownSet, found: Path, progress: Progress | None) -> Verification:
    """Read the whole set and throw the pixels away."""
    path = None if known.is_embedded else found
    try:
        dataset = known.read(found, discard, stage(progress, f"decoding {known.name}"))
    except BadImage as error:
        files = sorted(_images_in(existing_sources(known, found)))
        bad = undecodable(files, stage(progress, "decoding all images"))
        # The first one may decode well and have the wrong size.
        problems = dict.fromkeys([str(error), *map(str, bad)])
        return Verification(name=known.name, path=path, problems=tuple(problems))
    except UserError as error:
        return Verification(name=known.name, path=path, problems=(str(error),))
    return _report(known.name, path, dataset, _about_size(known, dataset))


def _about_size(known: KnownSet, dataset: Dataset) -> list[str]:
    """Whether this is the whole official set."""
    num_test = 0 if dataset.is_test is None else int(dataset.is_test.sum())
    here = (len(dataset.labels) - num_test, num_test)
    if known.num_samples in (None, here):
        return []
    official = f"{known.num_samples[0]:,} + {known.num_samples[1]:,}"
    return [
        f"{here[0]:,} + {here[1]:,} images to train and to test on; the official set has {official}"
    ]


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
    try:
        with file.open("rb") as raw:
            if unzip and file.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw) as stream:
                    got = _md5(stream)
            else:
                got = _md5(raw)
    except (OSError, EOFError, zlib.error) as error:
        return f"{file}: cannot be read ({error})"
    return None if got == md5 else f"{file}: not the official file (md5 {got}, expected {md5})"


def _md5(stream: IO[bytes] | gzip.GzipFile) -> str:
    return hashlib.file_digest(
        stream,  # type: ignore[arg-type]  # a GzipFile has readinto
        lambda: hashlib.md5(usedforsecurity=False),
    ).hexdigest()


def _odd_images(files: Sequence[Path], progress: Progress | None) -> list[BadImage]:
    """Every file that is no usable image, or one of another size than the first that is."""
    height, width = _first_size(files)
    out = discard((len(files), height, width, 3))
    decoding = stage(progress, "decoding all images")
    return decode_all(files, out, fit="exact", on_bad="skip", progress=decoding)


def _first_size(files: Sequence[Path]) -> tuple[int, int]:
    """The height and width of the first usable image, anything if there is none."""
    for file in files:
        with contextlib.suppress(BadImage):
            height, width, _ = decode(file, channels=3).shape
            return height, width
    return 1, 1


def _about_sizes(others: Sequence[BadImage]) -> list[str]:
    """A note that images differ in size, and what loading them needs."""
    if not others:
        return []
    return [
        f"images differ in size, so that a size must be given to load them: {others[0].file}:"
        f" {others[0].reason}"
    ]


def _images_in(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        for folder, _, names in os.walk(path):
            yield from (Path(folder, name) for name in names if name.lower().endswith(SUFFIXES))


def _cache_problems(name: str) -> list[str]:
    """What is wrong with the decoded copies of that name, if there are any."""
    copies = sorted((cache_home() / "datasets").glob(f"{name}-{'[0-9a-f]' * 16}"))
    return [
        f"{copy}: {problem}; remove it to have it made anew"
        for copy in copies
        for problem in verify_cache(copy)
    ]
