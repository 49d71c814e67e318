"""CIFAR-10 and CIFAR-100 in their official layouts: python batches, or the binary version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from driftwise.datasets.readers.cifar_pickle import load_batch
from driftwise.datasets.reading import Allocate, StageProgress, empty, must_be_folder
from driftwise.errors import UserError
from driftwise.types import Dataset

_SIDE = 32
_PLANE = _SIDE * _SIDE
_PIXELS = 3 * _PLANE


@dataclass(frozen=True, kw_only=True)
class _Batch:
    path: Path
    planes: np.ndarray
    """uint8 (samples, 3072): the red, the green, then the blue plane of each image"""
    labels: np.ndarray
    """int64 (samples,)"""


@dataclass(frozen=True, kw_only=True)
class _Layout:
    folder: str
    """what the official archive calls its folder"""
    train: tuple[str, ...]
    test: str
    names: str
    """the file that names the classes"""
    read_batch: Callable[[Path], _Batch]
    read_names: Callable[[Path], Sequence[str]]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.names)


def read_cifar10(
    folder: Path, *, allocate: Allocate = empty, progress: StageProgress | None = None
) -> Dataset:
    """CIFAR-10 from `cifar-10-batches-py` or `cifar-10-batches-bin`, or from the folder above."""
    return _read(folder, _CIFAR10, 10, allocate, progress)


def read_cifar100(
    folder: Path, *, allocate: Allocate = empty, progress: StageProgress | None = None
) -> Dataset:
    """CIFAR-100 by its fine labels, from `cifar-100-python` or `cifar-100-binary` or from above."""
    return _read(folder, _CIFAR100, 100, allocate, progress)


def _read(
    folder: Path,
    layouts: Sequence[_Layout],
    num_classes: int,
    allocate: Allocate,
    progress: StageProgress | None,
) -> Dataset:
    """All images as (samples, 32, 32, 3), the training samples first and in the files' order."""
    place, layout = _locate(folder, layouts)
    class_names = tuple(layout.read_names(place / layout.names))
    if len(class_names) != num_classes:
        raise UserError(
            f"{place / layout.names}: names {len(class_names)} classes, expected {num_classes}"
        )
    # Batches are views of mapped files, so that opening them all to count their samples costs nothing.
    batches = [layout.read_batch(place / name) for name in (*layout.train, layout.test)]
    for batch in batches:
        _check_labels(batch, num_classes)
    num_samples = sum(len(batch.labels) for batch in batches)
    images = allocate((num_samples, _SIDE, _SIDE, 3))
    start = 0
    for batch in batches:
        target = images[start : start + len(batch.labels)]
        # Plane by plane is three times as fast as one transposed copy.
        for channel in range(3):
            plane = batch.planes[:, channel * _PLANE : (channel + 1) * _PLANE]
            target[..., channel] = plane.reshape(-1, _SIDE, _SIDE)
        start += len(target)
        if progress is not None:
            progress(start, num_samples)
    return Dataset(
        images=images,
        labels=np.concatenate([batch.labels for batch in batches]),
        class_names=class_names,
        is_test=np.arange(num_samples) >= num_samples - len(batches[-1].labels),
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


def _check_labels(batch: _Batch, num_classes: int) -> None:
    outside = (batch.labels < 0) | (batch.labels >= num_classes)
    if outside.any():
        sample = int(np.argmax(outside))
        raise UserError(
            f"{batch.path}: label {batch.labels[sample]} in sample {sample}, expected 0..{num_classes - 1}"
        )


def _pick(path: Path, content: dict[str, Any], key: str) -> Any:
    """One entry of a pickled dictionary."""
    if key not in content:
        raise UserError(f"{path}: holds {', '.join(sorted(content))}; expected {key!r} among them")
    return content[key]


def _pickled_batch(label_key: str) -> Callable[[Path], _Batch]:
    def read(path: Path) -> _Batch:
        content = load_batch(path)
        planes, labels = _pick(path, content, "data"), _pick(path, content, label_key)
        if not isinstance(planes, np.ndarray) or planes.ndim != 2 or planes.shape[1] != _PIXELS:
            came = getattr(planes, "shape", type(planes).__name__)
            raise UserError(f"{path}: 'data' is {came}, expected uint8 (samples, {_PIXELS})")
        if not isinstance(labels, list) or set(map(type, labels)) != {int}:
            raise UserError(f"{path}: {label_key!r} is no list of whole numbers")
        if len(labels) != len(planes):
            raise UserError(f"{path}: {len(labels)} labels for {len(planes)} images")
        if not -(2**63) <= min(labels) <= max(labels) < 2**63:
            raise UserError(f"{path}: {label_key!r} holds numbers that are no labels")
        return _Batch(path=path, planes=planes, labels=np.array(labels, dtype=np.int64))

    return read


def _pickled_names(key: str) -> Callable[[Path], Sequence[str]]:
    def read(path: Path) -> Sequence[str]:
        names = _pick(path, load_batch(path), key)
        if not isinstance(names, list) or not set(map(type, names)) <= {str, bytes}:
            raise UserError(f"{path}: {key!r} is no list of names")
        return [_text(path, name) for name in names]

    return read


def _binary_batch(num_label_bytes: int) -> Callable[[Path], _Batch]:
    def read(path: Path) -> _Batch:
        record = num_label_bytes + _PIXELS
        size = path.stat().st_size
        if size == 0 or size % record:
            raise UserError(
                f"{path}: {size} bytes are no whole number of {record}-byte records; fetch it again"
            )
        records = _mapped(path).reshape(-1, record)
        return _Batch(
            path=path,
            planes=records[:, num_label_bytes:],
            # CIFAR-100 writes the coarse label first; the fine one stands next to the pixels.
            labels=records[:, num_label_bytes - 1].astype(np.int64),
        )

    return read


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def _text_names(path: Path) -> Sequence[str]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    return [line.strip() for line in _text(path, content).splitlines() if line.strip()]


def _text(path: Path, text: str | bytes) -> str:
    try:
        return text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: a class name is not UTF-8 text; fetch it again") from error


_CIFAR10 = (
    _Layout(
        folder="cifar-10-batches-py",
        train=tuple(f"data_batch_{number}" for number in range(1, 6)),
        test="test_batch",
        names="batches.meta",
        read_batch=_pickled_batch("labels"),
        read_names=_pickled_names("label_names"),
    ),
    _Layout(
        folder="cifar-10-batches-bin",
        train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        test="test_batch.bin",
        names="batches.meta.txt",
        read_batch=_binary_batch(1),
        read_names=_text_names,
    ),
)
_CIFAR100 = (
    _Layout(
        folder="cifar-100-python",
        train=("train",),
        test="test",
        names="meta",
        read_batch=_pickled_batch("fine_labels"),
        read_names=_pickled_names("fine_label_names"),
    ),
    _Layout(
        folder="cifar-100-binary",
        train=("train.bin",),
        test="test.bin",
        names="fine_label_names.txt",
        read_batch=_binary_batch(2),
        read_names=_text_names,
    ),
)
