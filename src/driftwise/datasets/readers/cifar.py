"""CIFAR-10 and CIFAR-100 in their official layouts: python batches, or the binary version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from driftwise.datasets.readers.cifar_pickle import load_batch
from driftwise.datasets.reading import Allocate, StageProgress, empty, must_be_folder, silent
from driftwise.errors import UserError
from driftwise.types import Dataset

_SIDE = 32
_PLANE = _SIDE * _SIDE
_PIXELS = 3 * _PLANE


@dataclass(frozen=True, kw_only=True)
class _Layout:
    folder: str
    """the name of the folder in the official archive"""
    train: tuple[str, ...]
    test: str
    names: str
    """the file that names the classes"""
    keys: tuple[str, str] | None = None
    """of the labels and of the class names, in pickles"""
    label_bytes: int = 0
    """before the pixels of each image, in binary files"""

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.names)


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR10 = (
    _Layout(
        folder="cifar-10-batches-py",
        train=_BATCHES,
        test="test_batch",
        names="batches.meta",
        keys=("labels", "label_names"),
    ),
    _Layout(
        folder="cifar-10-batches-bin",
        train=tuple(f"{name}.bin" for name in _BATCHES),
        test="test_batch.bin",
        names="batches.meta.txt",
        label_bytes=1,
    ),
)
_CIFAR100 = (
    _Layout(
        folder="cifar-100-python",
        train=("train",),
        test="test",
        names="meta",
        keys=("fine_labels", "fine_label_names"),
    ),
    _Layout(
        folder="cifar-100-binary",
        train=("train.bin",),
        test="test.bin",
        names="fine_label_names.txt",
        label_bytes=2,
    ),
)


def read_cifar10(
    folder: Path, *, allocate: Allocate = empty, progress: StageProgress = silent
) -> Dataset:
    """CIFAR-10 from `cifar-10-batches-py` or `cifar-10-batches-bin`, or from the folder above."""
    return _read(folder, _CIFAR10, 10, allocate, progress)


def read_cifar100(
    folder: Path, *, allocate: Allocate = empty, progress: StageProgress = silent
) -> Dataset:
    """CIFAR-100 by its fine labels, from `cifar-100-python` or `cifar-100-binary` or from above."""
    return _read(folder, _CIFAR100, 100, allocate, progress)


def _read(
    folder: Path,
    layouts: Sequence[_Layout],
    num_classes: int,
    allocate: Allocate,
    progress: StageProgress,
) -> Dataset:
    """All images as (samples, 32, 32, 3), the training samples first and in the files' order."""
    place, layout = _locate(folder, layouts)
    class_names = _read_names(place / layout.names, layout)
    if len(class_names) != num_classes:
        raise UserError(
            f"{place / layout.names}: names {len(class_names)} classes, expected {num_classes}"
        )
    paths = [place / name for name in (*layout.train, layout.test)]
    batches = [_read_batch(path, layout) for path in paths]
    for path, (_, labels) in zip(paths, batches, strict=True):
        outside = (labels < 0) | (labels >= num_classes)
        if outside.any():
            sample = int(np.argmax(outside))
            raise UserError(
                f"{path}: label {labels[sample]} in sample {sample}, expected 0..{num_classes - 1}"
            )
    num_samples = sum(len(labels) for _, labels in batches)
    images = allocate((num_samples, _SIDE, _SIDE, 3))
    start = 0
    for planes, labels in batches:
        target = images[start : start + len(labels)]
        # Plane by plane is three times as fast as one transposed copy.
        for channel in range(3):
            plane = planes[:, channel * _PLANE : (channel + 1) * _PLANE]
            target[..., channel] = plane.reshape(-1, _SIDE, _SIDE)
        start += len(target)
        progress(start, num_samples)
    return Dataset(
        images=images,
        labels=np.concatenate([labels for _, labels in batches]),
        class_names=class_names,
        is_test=np.arange(num_samples) >= num_samples - len(batches[-1][1]),
    )


def _locate(folder: Path, layouts: Sequence[_Layout]) -> tuple[Path, _Layout]:
    """The first complete layout, in `folder` or in its official folder inside."""
    known = " or ".join(layout.folder for layout in layouts)
    must_be_folder(folder, f"a folder ({known})")
    places = [(place, it) for it in layouts for place in (folder / it.folder, folder)]
    missing = [[name for name in it.files if not (at / name).is_file()] for at, it in places]
    best = min(range(len(places)), key=lambda i: len(missing[i]) / len(places[i][1].files))
    place, layout = places[best]
    if len(missing[best]) == len(layout.files):
        raise UserError(
            f"{folder}: found no {known}; expected e.g. {layouts[0].folder} with "
            f"{', '.join(layouts[0].files)}"
        )
    if missing[best]:
        raise UserError(f"{place}: expected files that are missing: {', '.join(missing[best])}")
    return place, layout


def _read_batch(path: Path, layout: _Layout) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (samples, 3072), the red, green and blue plane of each image; int64 (samples,)."""
    if layout.keys is None:
        record, size = layout.label_bytes + _PIXELS, path.stat().st_size
        if size == 0 or size % record:
            raise UserError(
                f"{path}: {size} bytes are no whole number of {record}-byte records; fetch it again"
            )
        records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, record)
        # CIFAR-100 writes the coarse label first; the fine one stands next to the pixels.
        labels = records[:, layout.label_bytes - 1].astype(np.int64)
        return records[:, layout.label_bytes :], labels
    content, key = load_batch(path), layout.keys[0]
    planes, listed = (_entry(path, content, name) for name in ("data", key))
    if not isinstance(planes, np.ndarray) or planes.ndim != 2 or planes.shape[1] != _PIXELS:
        found = getattr(planes, "shape", type(planes).__name__)
        raise UserError(f"{path}: 'data' is {found}, expected uint8 (samples, {_PIXELS})")
    if not isinstance(listed, list) or set(map(type, listed)) != {int}:
        raise UserError(f"{path}: {key!r} is no list of whole numbers")
    if len(listed) != len(planes):
        raise UserError(f"{path}: {len(listed)} labels for {len(planes)} images")
    if not -(2**63) <= min(listed) <= max(listed) < 2**63:
        raise UserError(f"{path}: {key!r} holds numbers that are no labels")
    return planes, np.array(listed, dtype=np.int64)


def _read_names(path: Path, layout: _Layout) -> tuple[str, ...]:
    if layout.keys is not None:
        names = _entry(path, load_batch(path), layout.keys[1])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{path}: {layout.keys[1]!r} is no list of names")
        return tuple(names)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not UTF-8 text ({error}); fetch it again") from error
    return tuple(line.strip() for line in lines if line.strip())


def _entry(path: Path, content: dict[str, object], key: str) -> object:
    if key not in content:
        raise UserError(f"{path}: holds {', '.join(sorted(content))}; expected {key!r} among them")
    return content[key]
