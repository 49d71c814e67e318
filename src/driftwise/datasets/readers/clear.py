"""CLEAR-10 in its official layout: ten classes photographed over ten periods, oldest first.

train_image_only/labeled_images/BUCKET/CLASS/*  and  test/labeled_images/BUCKET/CLASS/*

A bucket becomes a domain, so that a schedule can let a class come back from a later period. The
class BACKGROUND, images of none of the ten, is left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from driftwise.datasets.readers.decode import decode_all
from driftwise.datasets.readers.folders import folders_in, images_in
from driftwise.datasets.reading import Allocate, StageProgress, empty, must_be_folder, silent
from driftwise.errors import UserError
from driftwise.types import Dataset

CLASSES = (
    "baseball",
    "bus",
    "camera",
    "cosplay",
    "dress",
    "hockey",
    "laptop",
    "racing",
    "soccer",
    "sweater",
)
BACKGROUND = "BACKGROUND"


def read_clear10(
    path: Path,
    *,
    size: int = 224,
    allocate: Allocate = empty,
    progress: StageProgress = silent,
) -> Dataset:
    """All labelled images, short side resized and centre cropped to (samples, size, size, 3).

    Training samples come first, then the test samples, each bucket by bucket and class by class.
    """
    must_be_folder(path)
    train = _labelled(path / "train_image_only" / "labeled_images")
    test = _labelled(path / "test" / "labeled_images")
    samples = train + test
    buckets = sorted({bucket for _, bucket, _ in samples})
    files = [file for file, _, _ in samples]
    images = allocate((len(files), size, size, 3))
    decode_all(files, images, fit="crop", progress=progress)
    return Dataset(
        images=images,
        labels=np.array([label for _, _, label in samples], dtype=np.int64),
        class_names=CLASSES,
        is_test=np.arange(len(samples)) >= len(train),
        domains=np.searchsorted(buckets, [bucket for _, bucket, _ in samples]).astype(np.int64),
        domain_names=tuple(str(bucket) for bucket in buckets),
    )


def _labelled(folder: Path) -> list[tuple[Path, int, int]]:
    """(file, bucket, label) of every image of the ten classes."""
    samples = []
    for bucket in _buckets(must_be_folder(folder)):
        present = set(folders_in(folder / str(bucket))) - {BACKGROUND}
        if unknown := present.difference(CLASSES):
            raise UserError(
                f"unknown class folder {folder / str(bucket) / min(unknown)};"
                f" expected {', '.join(CLASSES)} or {BACKGROUND}"
            )
        for label, name in enumerate(CLASSES):
            if name in present:
                images = images_in(folder / str(bucket) / name)
                samples += [(file, bucket, label) for file in images]
    found = {label for _, _, label in samples}
    for label, name in enumerate(CLASSES):
        if label not in found:
            raise UserError(f"no images of class {name!r} in {folder}; unpack the archive again")
    return samples


def _buckets(folder: Path) -> list[int]:
    """The buckets' numbers, ascending: 10 comes after 9, which names alone would not give."""
    names = folders_in(folder)
    for name in names:
        if not name.isascii() or not name.isdigit() or name != str(int(name)):
            raise UserError(f"expected a bucket number as the name of {folder / name}")
    return sorted(int(name) for name in names)
