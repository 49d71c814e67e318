"""Checks what users pass in: samples, labels and sample ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise.array_checks import refuse_odd
from driftwise.errors import UserError
from driftwise.types import Samples

UNKNOWN = -1
"""the label of an unlabelled sample"""

HUGE = 1e19
"""values from here on are refused like infinite ones: single precision cannot square them"""


@dataclass(frozen=True, kw_only=True)
class InputBatch:
    """A batch as it came in."""

    ids: Tensor
    """int64 (samples,): of all samples"""
    samples: Samples
    """those that can be used"""
    usable: Tensor
    """bool (samples,): which of all samples these are"""

    @cached_property
    def refused(self) -> tuple[int, ...]:
        """Positions of samples with values that are not finite, or too large."""
        return tuple((~self.usable).nonzero().squeeze(1).tolist())


class InputReader:
    """Turns arrays into samples; each sample gets an id."""

    def __init__(self) -> None:
        self.count = 0
        """samples so far, refused ones included"""
        self.shape: tuple[int, ...] | None = None
        """of a sample; None: none has come"""
        self.dtype = torch.uint8

    def read(self, x: Any, y: Any = None, *, max_label: int) -> InputBatch:
        """A batch with labels where `y` has them. A batch that is refused changes nothing.

        The samples are copies: the caller may overwrite the arrays.
        """
        images = self._checked(_tensor(x)).clone()
        labels = labels_from(y, len(images), max_label=max_label)
        ids = torch.arange(self.count, self.count + len(images))
        self.count += len(images)
        self.shape, self.dtype = tuple(images.shape[1:]), images.dtype
        usable = _finite(images)
        samples = Samples(images=images, labels=labels, ids=ids, concepts=torch.zeros_like(ids))
        if not bool(usable.all()):
            samples = samples[usable]
        return InputBatch(ids=ids, samples=samples, usable=usable)

    def images(self, x: Any) -> Tensor:
        """Images or vectors to predict, of the shape of the samples so far."""
        images = self._checked(_tensor(x))
        if images.dtype == torch.uint8:
            return images
        if not bool((usable := _finite(images)).all()):
            first = int((~usable).nonzero()[0])
            raise UserError(
                f"sample {first} holds values that are not finite; leave such samples out"
            )
        return images

    def _checked(self, images: Tensor) -> Tensor:
        if images.dtype == torch.uint8:
            layout = (
                "images as bytes are (samples, height, width, channels); got the shape "
                f"{tuple(images.shape)}"
            )
            if images.ndim != 4:
                raise UserError(layout)
            if self.shape is None and _has_channels_first(images):
                raise UserError(f"{layout}, with channels first: give x.permute(0, 2, 3, 1)")
        if images.ndim < 2 or 0 in images.shape[1:]:
            raise UserError(
                f"expected samples of numbers, (samples, ...); got the shape {tuple(images.shape)}"
            )
        shape = tuple(images.shape[1:])
        if self.shape is not None and (shape, images.dtype) != (self.shape, self.dtype):
            raise UserError(
                f"samples were {_kind(self.dtype)} of shape {self.shape} at first; got "
                f"{_kind(images.dtype)} of shape {shape}: convert them to one shape and type"
            )
        return images

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "count": self.count,
            "shape": None if self.shape is None else list(self.shape),
            "bytes": self.dtype == torch.uint8,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        numbers = [state["count"], *(state["shape"] or ())]
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
            raise ValueError("expected the number of samples, and the shape of one")
        self.count = state["count"]
        self.shape = None if state["shape"] is None else tuple(state["shape"])
        self.dtype = torch.uint8 if state["bytes"] else torch.float32


def _has_channels_first(images: Tensor) -> bool:
    """Whether bytes are likely (samples, channels, height, width)."""
    _, height, width, channels = images.shape
    return height in (1, 3) and min(width, channels) > 4


def labels_from(y: Any, count: int, *, max_label: int) -> Tensor:
    """int64 (count,), UNKNOWN where a label is None, NaN or -1."""
    if y is None:
        return torch.full((count,), UNKNOWN)
    expected = "labels are whole numbers, None where there is none"
    refuse_odd(y, expected)
    if isinstance(y, np.ndarray) and y.dtype == object:
        y = y.tolist()
    if isinstance(y, list | tuple):
        y = [UNKNOWN if label is None else label for label in y]
    labels = _numbers(y, expected)
    if labels.dtype == torch.bool or (isinstance(y, list) and bool in set(map(type, y))):
        raise UserError(f"{expected}; got booleans: give y.astype(int) if 0 and 1 are classes")
    if labels.shape != (count,):
        raise UserError(
            f"expected a label for each of {count} samples, None where there is none; got the "
            f"shape {tuple(labels.shape)}"
        )
    if labels.is_floating_point():
        labels = torch.where(labels.isnan(), float(UNKNOWN), labels)
        if not bool((labels == labels.round()).all()):
            raise UserError(f"{expected}; got fractions")
    else:  # before any comparison: uint8 has no negative numbers
        labels = labels.to(torch.int64)
    if bool((labels < UNKNOWN).any()):
        raise UserError(f"labels are 0 or more; got {labels.min().item():g}")
    if bool((labels > max_label).any()):
        raise UserError(
            f"labels are at most {max_label} here; got {labels.max().item():g}: let the network "
            "grow (grow=True, max_classes), or number the classes from 0 without gaps"
        )
    return labels.to(torch.int64)


def ids_from(ids: Any) -> Tensor:
    """int64 (samples,): sample ids, as in `Observation` and `Request`."""
    complaint = "ids are whole numbers, see Observation.ids"
    numbers = _numbers(ids, complaint)
    if numbers.shape == (0,):  # an empty list has no type
        return numbers.to(torch.int64)
    if numbers.ndim != 1 or numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise UserError(f"{complaint}; got {numbers.dtype} of shape {tuple(numbers.shape)}")
    numbers = numbers.to(torch.int64)
    if int(numbers.min()) < 0:
        raise UserError(f"{complaint}; got {int(numbers.min())}")
    return numbers


def _tensor(x: Any) -> Tensor:
    """uint8 as it is, all other numbers as float32; on the CPU and detached."""
    values = _numbers(x, f"expected an array or a tensor of numbers; got {type(x).__name__}")
    if values.ndim == 4 and values.dtype != torch.uint8 and not values.is_floating_point():
        raise UserError(
            f"images are bytes (uint8), or floats as the network takes them; got {values.dtype}"
        )
    return values if values.dtype == torch.uint8 else values.float()


def _numbers(values: Any, complaint: str) -> Tensor:
    refuse_odd(values, complaint)
    if isinstance(values, Tensor):
        numbers = values.detach().cpu()
    else:
        try:
            array = np.asarray(values)
            if array.dtype.kind not in "biuf":
                raise UserError(complaint)
            refuse_odd(array, complaint)
            # torch needs native byte order, no negative strides, and writable memory.
            native = array.dtype.newbyteorder("=")
            numbers = torch.from_numpy(np.require(array, native, requirements=["C", "W"]))
        except UserError:
            raise
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(complaint) from error
    if numbers.is_complex():
        raise UserError(complaint)
    return numbers


def _finite(images: Tensor) -> Tensor:
    """bool (samples,): which have finite values only, whose squares are finite."""
    if images.dtype == torch.uint8:
        return torch.ones(len(images), dtype=torch.bool)
    return (images.flatten(1).abs() < HUGE).all(dim=1)


def _kind(dtype: torch.dtype) -> str:
    return "bytes" if dtype == torch.uint8 else "floats"
