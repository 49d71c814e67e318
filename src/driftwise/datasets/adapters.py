"""Data sets of other libraries, copied sample by sample into images and labels at rest."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from PIL import Image

from driftwise.array_checks import refuse_odd
from driftwise.datasets.allocate import Allocate, empty
from driftwise.datasets.readers.decode import converted, has_no_colour
from driftwise.datasets.readers.folders import SPLITS
from driftwise.errors import UserError
from driftwise.types import Dataset

INSTALL = "pip install 'driftwise[hf]'"


class MapStyle(Protocol):
    """What `torch.utils.data.Dataset` promises: a length, and a sample per number."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def from_torch_dataset(
    dataset: MapStyle,
    *,
    test: MapStyle | None = None,
    class_names: Sequence[str] | None = None,
    allocate: Allocate = empty,
) -> Dataset:
    """Any torch data set of (image, label), copied once; `test` becomes the test part.

    An image is a PIL image, an array (height, width[, 1 or 3]) or a tensor (1 or 3, height,
    width), uint8 or floats in [0, 1]; all of one size. Without `class_names` the `classes` that
    torchvision's sets carry are taken, or the labels' own numbers.
    """
    parts = [_sized(dataset)] + ([] if test is None else [_sized(test)])
    num_samples = [len(part) for part in parts]
    samples = _Rows(sum(num_samples), allocate)
    for part in parts:
        for index in range(len(part)):
            samples.add(*_pair(part[index], samples.filled))
    if class_names is None:
        class_names = getattr(dataset, "classes", None)
    return Dataset(
        images=samples.images,
        labels=samples.labels,
        class_names=_names(samples.labels, class_names),
        is_test=None if test is None else np.arange(sum(num_samples)) >= num_samples[0],
    )


def read_huggingface(
    path: Path, *, image: str = "image", label: str = "label", allocate: Allocate = empty
) -> Dataset:
    """A Hugging Face data set that `save_to_disk` wrote; `image` and `label` name its columns.

    Of its splits `test` is the test part, or `validation` where there is no `test`; the rest is
    for training.
    """
    library = _library(path)
    if not path.is_dir():
        came = "a file" if path.exists() else "nothing"
        raise UserError(f"expected a folder that save_to_disk wrote at {path}, found {came}")
    try:
        loaded = library.load_from_disk(str(path))
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not a data set that save_to_disk wrote ({reason})") from error
    splits = [
        _Split.of(path, table, is_test, image=image, label=label)
        for table, is_test in _in_order(loaded if isinstance(loaded, Mapping) else {"": loaded})
    ]
    samples = _Rows(sum(len(split.labels) for split in splits), allocate)
    names = splits[0].class_names or _distinct(path, splits)
    number_of = {name: number for number, name in enumerate(names)}
    for split in splits:
        for index, value in enumerate(split.labels):
            samples.add(split.image(index), number_of.get(value, value))
    is_test = np.repeat(
        [split.is_test for split in splits], [len(split.labels) for split in splits]
    )
    return Dataset(
        images=samples.images,
        labels=samples.labels,
        class_names=_names(samples.labels, [str(name) for name in names]),
        is_test=is_test if is_test.any() else None,
    )


def _library(path: Path) -> Any:
    """The package datasets; an error that says what to install."""
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise UserError(f"reading {path} needs the package datasets: {INSTALL}") from error
    # Any folder called datasets that Python comes across passes for a package, an empty one.
    if not hasattr(library, "load_from_disk"):
        raise UserError(f"reading {path} needs the package datasets: {INSTALL}")
    return library


@dataclass(frozen=True, kw_only=True)
class _Split:
    """One part of a Hugging Face data set."""

    labels: Sequence[Any]
    """numbers, or names"""
    class_names: Sequence[str] | None
    """what the numbers stand for, where the set says so"""
    image: Callable[[int], Any]
    is_test: bool

    @staticmethod
    def of(path: Path, table: Any, is_test: bool, *, image: str, label: str) -> _Split:
        for column in (image, label):
            if column not in table.column_names:
                raise UserError(
                    f"{path}: has the columns {', '.join(table.column_names)}; expected {column!r}"
                )
        return _Split(
            # One column at a time: a sample of the table would decode the image with its label.
            labels=list(table[label]),
            class_names=getattr(table.features[label], "names", None),
            image=lambda index: table[index][image],
            is_test=is_test,
        )


def _distinct(path: Path, splits: Sequence[_Split]) -> list[Any]:
    """The labels that occur, in their order, where nothing says what there could be."""
    found = {label for split in splits for label in split.labels}
    if len(kinds := {type(label) for label in found}) > 1:
        came = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise UserError(f"{path}: labels are of several kinds ({came}); expected one")
    return sorted(found)


def _in_order(splits: Mapping[str, Any]) -> list[tuple[Any, bool]]:
    """The splits, those to train on first, and whether each is the test part."""
    role = {name: SPLITS.get(name.lower(), "train") for name in splits}
    test_role = "test" if "test" in role.values() else "val"
    if set(role.values()) == {test_role}:
        return [(table, False) for table in splits.values()]  # nothing else to train on
    chosen = [(table, role[name] == test_role) for name, table in splits.items()]
    return sorted(chosen, key=lambda pair: pair[1])


class _Rows:
    """Images and labels as they come in; the first image says the shape of all."""

    def __init__(self, num_samples: int, allocate: Allocate) -> None:
        if not num_samples:
            raise UserError("expected a data set with at least one sample, got an empty one")
        self._allocate = allocate
        self._images: np.ndarray | None = None
        self.labels = np.empty(num_samples, dtype=np.int64)
        self.filled = 0

    @property
    def images(self) -> np.ndarray:
        """uint8 (samples, height, width, channels)"""
        assert self._images is not None, "there is at least one sample"
        return self._images

    def add(self, image: object, label: object) -> None:
        """The next sample."""
        sample = self.filled
        channels = None if self._images is None else self._images.shape[3]
        pixels = _pixels(image, sample, channels)
        if self._images is None:
            self._images = self._allocate((len(self.labels), *pixels.shape))
        if pixels.shape != self._images.shape[1:]:
            raise UserError(
                f"sample {sample} is {_size(pixels.shape)}, sample 0 {_size(self._images.shape[1:])};"
                " expected one size and kind: resize or convert them in the data set's transform"
            )
        self._images[sample] = pixels
        self.labels[sample] = _number(label, sample)
        self.filled += 1


def _sized(dataset: MapStyle) -> MapStyle:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UserError(
            f"expected a map-style data set (with a length and samples by number), got"
            f" {type(dataset).__name__}"
        )
    return dataset


def _pair(sample: object, number: int) -> tuple[object, object]:
    if not isinstance(sample, (tuple, list)) or len(sample) != 2:
        raise UserError(
            f"sample {number} is {type(sample).__name__}, expected a pair (image, label)"
        )
    return sample[0], sample[1]


def _pixels(image: object, sample: int, channels: int | None) -> np.ndarray:
    """uint8 (height, width, channels); `channels` of the samples before, for what can be either."""
    refuse_odd(image, f"sample {sample}")
    if isinstance(image, Image.Image):
        mode: Literal["L", "RGB"] = "L" if has_no_colour(image) and channels in (None, 1) else "RGB"
        # By the rules for image files: transparency, sixteen bits.
        plain = converted(Path(f"sample {sample}"), image, mode)
        return np.asarray(plain).reshape(image.height, image.width, -1)
    if isinstance(image, torch.Tensor):
        # Torch puts channels first; a tensor that cannot be meant so has them last.
        values = image.detach().cpu()
        if values.ndim == 3 and values.shape[0] in (1, 3):
            values = values.permute(1, 2, 0)
        # numpy has no bfloat16
        array = (values.float() if values.is_floating_point() else values).numpy()
    elif isinstance(image, np.ndarray):
        array = image
    else:
        raise UserError(
            f"sample {sample} has an image of type {type(image).__name__}; expected a PIL image,"
            " an array or a tensor (say, from torchvision's ToTensor)"
        )
    if array.ndim == 2:
        array = array[..., np.newaxis]
    if array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape:
        raise UserError(
            f"sample {sample} has an image of shape {tuple(array.shape)}; expected (height, width, 1"
            " or 3), or a tensor (1 or 3, height, width)"
        )
    return array if array.dtype == np.uint8 else _as_bytes(array, sample)


def _as_bytes(values: np.ndarray, sample: int) -> np.ndarray:
    """Floats in [0, 1] as the nearest of 256 steps."""
    # Written so that NaN is outside too: every comparison with it is false.
    if values.dtype.kind != "f" or not ((values >= 0) & (values <= 1)).all():
        span = f"{values.min()} to {values.max()}"
        raise UserError(
            f"sample {sample} is {values.dtype} from {span}; expected uint8, or floats in [0, 1]:"
            " leave Normalize out of its transform"
        )
    return np.rint(values.astype(np.float32) * 255).astype(np.uint8)


def _number(label: object, sample: int) -> int:
    value = label
    refuse_odd(label, f"the label of sample {sample}")
    if isinstance(label, (torch.Tensor, np.ndarray, np.generic)):
        value = label.item() if np.asarray(label).size == 1 else label
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        came = " ".join(repr(value).split())[:60]
        raise UserError(f"sample {sample} has the label {came}; expected a class number from 0")
    return value


def _names(labels: np.ndarray, class_names: Sequence[str] | None) -> tuple[str, ...]:
    """One name per label, each of them in use; the numbers themselves where nobody gave names."""
    # Without names the labels must count from 0, so that there cannot be more of them than samples.
    top = len(labels) if class_names is None else len(class_names)
    if labels.max() >= top:
        sample = int(np.argmax(labels >= top))
        limit = f"{top} samples" if class_names is None else f"{top} class names"
        raise UserError(
            f"sample {sample} has the label {labels[sample]}; expected 0..{top - 1} ({limit})"
        )
    if class_names is None:
        class_names = [str(number) for number in range(int(labels.max()) + 1)]
    missing = np.flatnonzero(np.bincount(labels, minlength=len(class_names)) == 0)
    if missing.size:
        some = ", ".join(map(str, missing[:3])) + (", ..." if missing.size > 3 else "")
        raise UserError(
            f"no sample has the label {some}; expected at least one of each class,"
            f" 0..{len(class_names) - 1}: number the classes without gaps"
        )
    return tuple(class_names)


def _size(shape: tuple[int, ...]) -> str:
    height, width, channels = shape
    return f"{height}x{width} in {'grey' if channels == 1 else 'colour'}"
