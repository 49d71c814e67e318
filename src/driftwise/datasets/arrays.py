"""Data sets from what is in memory: arrays, tensors, or any torch data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from driftwise.array_checks import refuse_odd
from driftwise.datasets.convert import (
    Collector,
    class_numbers,
    domain_numbers,
    full_shape,
    tensor_to_array,
    to_bytes,
)
from driftwise.datasets.reading import Allocate, empty
from driftwise.datasets.validate import check_dataset
from driftwise.errors import UserError
from driftwise.types import Dataset


def from_arrays(
    images: Any,
    labels: Any,
    *,
    class_names: Sequence[str] | None = None,
    domains: Any = None,
    is_test: Any = None,
) -> Dataset:
    """A data set from arrays, tensors or lists with one entry per sample.

    Args:
        images: uint8, or floats in [0, 1]; (samples, height, width), (samples, height, width,
            1 or 3), or a tensor (samples, 1 or 3, height, width). uint8 arrays are not copied.
        labels: (samples,) class numbers from 0, or class names.
        class_names: one name per class number, or the order of the names.
        domains: (samples,) where or when each image was taken, numbers or names; None: all alike.
        is_test: (samples,) true where an image belongs to the test part; None: there is none.

    Raises:
        UserError: a shape or a value does not fit.

    >>> data = from_arrays(np.zeros((4, 8, 8), dtype=np.uint8), ["cat", "dog", "cat", "dog"])
    >>> data.images.shape, data.labels.tolist(), data.class_names
    ((4, 8, 8, 1), [0, 1, 0, 1], ('cat', 'dog'))
    """
    source = "data"
    for what, column in (("images", images), ("labels", labels), ("domains", domains)):
        refuse_odd(column, f"{source}: {what}")
    array = (
        tensor_to_array(images, ndim=4) if isinstance(images, torch.Tensor) else np.asarray(images)
    )
    shape = full_shape(array.shape, source)
    numbers, names = class_numbers(_column(labels), class_names, source)
    domain_of, domain_names = (None, ()) if domains is None else domain_numbers(_column(domains))
    test = None if is_test is None else _column(is_test)
    if test is not None and not np.isin(test, (0, 1)).all():
        raise UserError(f"{source}: is_test must be true or false (1 or 0) for each image")
    dataset = Dataset(
        images=to_bytes(array, source).reshape(shape),
        labels=numbers,
        class_names=names,
        domains=domain_of,
        domain_names=domain_names,
        is_test=None if test is None else test.astype(bool),
    )
    return check_dataset(dataset, source=source)


def _column(values: Any) -> np.ndarray:
    return np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)


class MapStyle(Protocol):
    """What `torch.utils.data.Dataset` promises: a length, and a sample per number."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def from_torch(
    dataset: MapStyle,
    *,
    test: MapStyle | None = None,
    class_names: Sequence[str] | None = None,
    allocate: Allocate = empty,
) -> Dataset:
    """A data set from any map-style torch data set of (image, label) pairs, copied once.

    Args:
        dataset: an image is a PIL image, an array (height, width[, 1 or 3]) or a tensor (1 or 3,
            height, width), uint8 or floats in [0, 1]; all of one size. A label is a class number.
        test: the same; it becomes the test part.
        class_names: one name per class number. None: the `classes` that torchvision's data sets
            have, or the numbers themselves.
        allocate: gives the array that the images are written to.
    """
    parts = [dataset] if test is None else [dataset, test]
    for part in parts:
        if not (hasattr(part, "__len__") and hasattr(part, "__getitem__")):
            raise UserError(
                "expected a map-style data set (with a length and samples by number), got"
                f" {type(part).__name__}"
            )
    num_samples = sum(len(part) for part in parts)
    samples = Collector(num_samples, allocate, "data")
    for part in parts:
        for index in range(len(part)):
            pair = part[index]
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                came = type(pair).__name__
                raise UserError(f"data: sample {index} is {came}, expected a pair (image, label)")
            samples.add(*pair)
    if class_names is None:
        class_names = getattr(dataset, "classes", None)
    is_test = None if test is None else np.arange(num_samples) >= len(dataset)
    return samples.dataset(class_names, is_test)


from_torch_dataset = from_torch
"""The name of earlier versions."""
