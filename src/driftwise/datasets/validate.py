"""Whether a data set is what the rest of the house takes it for; checked once, at the door."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from driftwise.array_checks import refuse_odd
from driftwise.errors import UserError
from driftwise.types import Dataset


def check_dataset(dataset: object, *, source: str) -> Dataset:
    """The data set itself, if it is one; UserError in one line otherwise.

    Arrays that run backwards are copied.
    """
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"{source}: expected a driftwise.types.Dataset; got {type(dataset).__name__}"
        )
    images, labels = dataset.images, dataset.labels
    _check_array(images, "images", np.uint8, 4, "(samples, height, width, channels)", source)
    _check_array(labels, "labels", np.int64, 1, "(samples,)", source)
    if 0 in images.shape[1:]:
        raise UserError(f"{source}: images must have pixels and channels; got {images.shape}")
    if not len(labels):
        raise UserError(f"{source}: the data set has no samples")
    last = len(dataset.class_names) - 1
    if not 0 <= labels.min() <= labels.max() <= last:
        raise UserError(
            f"{source}: labels must be 0 to {last}, as there are {last + 1} class names; "
            f"got {labels.min()} to {labels.max()}"
            + (": -1 marks samples without a label, leave them out" if labels.min() == -1 else "")
        )
    columns = {"labels": labels}
    if dataset.is_test is not None:
        _check_array(dataset.is_test, "is_test", np.bool_, 1, "(samples,)", source)
        columns["is_test"] = dataset.is_test
    if dataset.domains is not None:
        _check_array(dataset.domains, "domains", np.int64, 1, "(samples,)", source)
        columns["domains"] = dataset.domains
        if not 0 <= dataset.domains.min() <= dataset.domains.max() < len(dataset.domain_names):
            names = ", ".join(dataset.domain_names)
            raise UserError(f"{source}: every domain needs a name; the names are {names}")
    for name, column in columns.items():
        if len(column) != len(images):
            raise UserError(f"{source}: {len(images)} images but {len(column)} {name}")
    present = np.bincount(labels, minlength=last + 1) > 0
    if not present.all():
        absent = [dataset.class_names[label] for label in np.flatnonzero(~present)[:5]]
        raise UserError(
            f"{source}: class {', '.join(map(repr, absent))} has no images; "
            "add some, or leave the class out"
        )
    arrays = {"images": images, "is_test": dataset.is_test, **columns}
    backwards: dict[str, Any] = {
        name: np.ascontiguousarray(array)
        for name, array in arrays.items()
        if array is not None and min(array.strides) < 0  # which torch cannot read
    }
    return dataclasses.replace(dataset, **backwards) if backwards else dataset


def _check_array(
    array: object, name: str, kind: type[np.generic], axes: int, shape: str, source: str
) -> None:
    if not isinstance(array, np.ndarray):
        raise UserError(f"{source}: {name} must be a numpy array; got {type(array).__name__}")
    refuse_odd(array, f"{source}: {name}")
    if array.dtype != kind or array.ndim != axes:
        raise UserError(
            f"{source}: {name} must be {np.dtype(kind)} {shape}; got {array.dtype} {array.shape}"
        )
