"""From values in any usual form to uint8 images and int64 labels; anything doubtful is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from driftwise.datasets.reading import Allocate
from driftwise.errors import UserError

if TYPE_CHECKING:
    from driftwise.types import Dataset


def full_shape(shape: tuple[int, ...], source: str) -> tuple[int, ...]:
    """(samples, height, width, channels) for images of a usual shape, else a UserError."""
    if len(shape) == 3:
        return (*shape, 1)
    if len(shape) == 4 and shape[3] in (1, 3):
        return shape
    if len(shape) == 4 and shape[1] in (1, 3):
        hint = "; channels come last: use images.transpose(0, 2, 3, 1)"
    elif len(shape) == 4 and shape[3] == 4:
        hint = "; give them without the alpha channel: images[..., :3]"
    else:
        hint = ""
    raise UserError(
        f"{source}: images are {shape}, expected (samples, height, width) or "
        f"(samples, height, width, 1 or 3){hint}"
    )


def check_pixel_type(dtype: np.dtype, source: str) -> None:
    """Refuse pixels that are neither uint8 nor floats."""
    if dtype != np.uint8 and dtype.kind != "f":
        raise UserError(
            f"{source}: images are {dtype}, expected uint8, or floats in [0, 1]; "
            "use images.astype(np.uint8) if they are 0..255"
        )


def to_bytes(values: np.ndarray, source: str, first_sample: int = 0) -> np.ndarray:
    """Pixels as uint8 of the same shape: (samples, ...) of uint8, or floats in [0, 1], rounded."""
    if values.dtype == np.uint8:
        return values
    check_pixel_type(values.dtype, source)
    # Written so that NaN is outside too: every comparison with it is false.
    inside = (values >= 0) & (values <= 1)
    if not inside.all():
        position = np.unravel_index(int(np.argmin(inside)), inside.shape)
        raise UserError(
            f"{source}: images hold {values[position]} in sample {first_sample + position[0]}, "
            "expected uint8, or floats in [0, 1]: use images.astype(np.uint8) if they are 0..255, "
            "and leave out a transform that normalises them"
        )
    return np.rint(values.astype(np.float32, copy=False) * 255).astype(np.uint8)


def class_numbers(
    labels: np.ndarray, class_names: Sequence[str] | None, source: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as int64 (samples,) positions in the class names; every class has a sample.

    Args:
        labels: (samples,) whole numbers from 0, or names.
        class_names: the names of the numbers, or the order of the names. None: the numbers
            themselves, or the names in alphabetical order.
        source: what messages call the data.
    """
    if labels.dtype.kind not in "iuU" or labels.ndim != 1:
        raise UserError(
            f"{source}: labels are {labels.dtype} {labels.shape}, expected (samples,) of whole "
            "numbers or names"
        )
    values, inverse = np.unique(labels, return_inverse=True)
    if labels.dtype.kind == "U":
        found = values.tolist()
        names = found if class_names is None else list(class_names)
        if unknown := sorted(set(found) - set(names)):
            raise UserError(f"{source}: label {unknown[0]!r}, expected one of {', '.join(names)}")
        positions = np.array([names.index(name) for name in found], dtype=np.int64)
    else:
        # Without names the labels must count from 0, so that there are as many as values.
        top = len(values) if class_names is None else len(class_names)
        outside = values[(values < 0) | (values >= top)]
        if outside.size:
            raise UserError(
                f"{source}: label {outside[0]} in sample {np.argmax(labels == outside[0])}, "
                f"expected 0..{top - 1} "
                + ("without gaps" if class_names is None else f"({top} class names)")
            )
        names = [str(value) for value in values] if class_names is None else list(class_names)
        positions = values.astype(np.int64)
    if empty_classes := sorted(set(range(len(names))) - set(positions.tolist())):
        raise UserError(f"{source}: class {names[empty_classes[0]]!r} has no images")
    return positions[inverse], tuple(names)


def domain_numbers(values: np.ndarray, group: int = 1) -> tuple[np.ndarray, tuple[str, ...]]:
    """Domains as int64 (samples,) positions in their names, in ascending order.

    `group` puts that many consecutive numbers (years) together.
    """
    if group > 1:
        values = values // group * group
    distinct, positions = np.unique(values, return_inverse=True)
    return positions.astype(np.int64), tuple(_span(value, group) for value in distinct.tolist())


def _span(first: object, size: int) -> str:
    """What to call a domain: itself, or the years it spans.

    >>> _span("sketch", 1), _span(1931, 1), _span(1930, 10), _span(1930, 5)
    ('sketch', '1931', '1930s', '1930-1934')
    """
    if size == 1 or not isinstance(first, int):
        return str(first)
    return f"{first}s" if size == 10 else f"{first}-{first + size - 1}"


class Collector:
    """Collects (image, label) pairs one by one; the first image gives the shape of all."""

    def __init__(self, num_samples: int, allocate: Allocate, source: str) -> None:
        if not num_samples:
            raise UserError(f"{source}: expected at least one sample, got none")
        self._num_samples = num_samples
        self._allocate = allocate
        self._source = source
        self._images: np.ndarray | None = None
        self._labels: list[int | str] = []

    def add(self, image: object, label: object) -> None:
        """Add the next sample: an image as `_pixels` takes it, and a class number or name."""
        sample = len(self._labels)
        where = f"{self._source}: sample {sample}"
        pixels = _pixels(image, where, None if self._images is None else self._images.shape[3])
        if self._images is None:
            self._images = self._allocate((self._num_samples, *pixels.shape))
        if pixels.shape != (expected := self._images.shape[1:]):
            raise UserError(
                f"{where} is {_size(pixels.shape)}, sample 0 {_size(expected)}; expected one size"
                " and kind: resize or convert them in the data set's transform"
            )
        self._images[sample] = pixels
        self._labels.append(_label(label, where))

    def dataset(
        self, class_names: Sequence[str] | None = None, is_test: np.ndarray | None = None
    ) -> Dataset:
        """The data set of all samples added."""
        from driftwise.types import Dataset

        assert self._images is not None
        if len(kinds := {type(label) for label in self._labels}) > 1:
            came = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise UserError(f"{self._source}: labels are of several kinds ({came}); expected one")
        labels, names = class_numbers(np.array(self._labels), class_names, self._source)
        return Dataset(images=self._images, labels=labels, class_names=names, is_test=is_test)


def _pixels(image: object, where: str, channels: int | None) -> np.ndarray:
    """A PIL image, an array or a tensor as uint8 (height, width, channels).

    `channels`: those of the samples before, for an image that can be grey or colour.
    """
    import torch
    from PIL import Image

    from driftwise.array_checks import refuse_odd
    from driftwise.datasets.readers.decode import converted, has_no_colour

    refuse_odd(image, where)
    if isinstance(image, Image.Image):
        mode: Literal["L", "RGB"] = "L" if has_no_colour(image) and channels in (None, 1) else "RGB"
        # By the rules for image files: transparency, sixteen bits.
        plain = converted(Path(where), image, mode)
        return np.asarray(plain).reshape(image.height, image.width, -1)
    if isinstance(image, torch.Tensor):
        array = tensor_to_array(image, ndim=3)
    elif isinstance(image, np.ndarray):
        array = image
    else:
        raise UserError(
            f"{where} has an image of type {type(image).__name__}; expected a PIL image,"
            " an array or a tensor (say, from torchvision's ToTensor)"
        )
    if array.ndim == 2:
        array = array[..., np.newaxis]
    if array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape:
        raise UserError(
            f"{where} has an image of shape {tuple(array.shape)}; expected (height, width, 1"
            " or 3), or a tensor (1 or 3, height, width)"
        )
    pixels: np.ndarray = to_bytes(array[np.newaxis], where)[0]
    return pixels


def tensor_to_array(values: object, ndim: int) -> np.ndarray:
    """Images of a tensor with channels last; torch puts them first where both are possible."""
    import torch

    assert isinstance(values, torch.Tensor)
    values = values.detach().cpu()
    if values.ndim == ndim and values.shape[ndim - 3] in (1, 3):
        values = values.movedim(ndim - 3, -1)
    # numpy has no bfloat16
    array: np.ndarray = (values.float() if values.is_floating_point() else values).numpy()
    return array


def _label(label: object, where: str) -> int | str:
    """A class number or name as a plain int or str."""
    from driftwise.array_checks import refuse_odd

    refuse_odd(label, f"{where}, label")
    value = label.item() if hasattr(label, "item") and np.asarray(label).size == 1 else label
    if isinstance(value, str):
        return value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        came = " ".join(repr(value).split())[:60]
        raise UserError(f"{where} has the label {came}; expected a class number from 0, or a name")
    return value


def _size(shape: tuple[int, ...]) -> str:
    height, width, channels = shape
    return f"{height}x{width} in {'grey' if channels == 1 else 'colour'}"
