"""Samples and labels as users pass them in: checks, ids, and how they are scaled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from driftwise.array_checks import columns_of, in_column_order, refuse_odd
from driftwise.errors import UserError
from driftwise.types import Samples

UNKNOWN = -1
"""the label of an unlabelled sample"""
HUGE = 1e19
"""values from here on are refused like infinite ones: single precision cannot square them"""

# Arrays become samples


@dataclass(frozen=True, kw_only=True)
class InputBatch:
    """A batch as it came in."""

    ids: Tensor
    """int64 (samples,): of all samples"""
    samples: Samples
    """those that can be used"""
    usable: Tensor
    """bool (samples,): which of all samples these are"""


class InputReader:
    """Turns arrays into samples; each sample gets an id."""

    def __init__(self) -> None:
        self.count = 0
        """samples so far, refused ones included"""
        self.shape: tuple[int, ...] | None = None
        """of a sample; None: none has come"""
        self.columns: tuple[str, ...] | None = None
        """of the first data frame; None: none has come"""
        self.dtype = torch.uint8

    @property
    def dtype_name(self) -> Literal["uint8", "float32"]:
        """Of a sample's numbers."""
        return "uint8" if self.dtype == torch.uint8 else "float32"

    def read(self, x: Any, y: Any = None, *, max_label: int) -> InputBatch:
        """A batch with labels where `y` has them. A batch that is refused changes nothing.

        The samples are copies: the caller may overwrite the arrays.
        """
        images = self._checked(x).clone()
        labels = labels_from(y, len(images), max_label=max_label)
        ids = torch.arange(self.count, self.count + len(images))
        self.count += len(images)
        self.shape, self.dtype = tuple(images.shape[1:]), images.dtype
        usable = _finite(images)
        samples = Samples(images=images, labels=labels, ids=ids, concepts=torch.zeros_like(ids))
        if not bool(usable.all()):
            samples = samples[usable]
        return InputBatch(ids=ids, samples=samples, usable=usable)

    def matched(self, x: Any) -> Any:
        """Of a data frame, the values, columns in the order of the first frame; all else as it is."""
        names = columns_of(x)
        if names is None:
            return x
        order = names if self.columns is None else self.columns
        return in_column_order(x, order, "the first one's")

    def images(self, x: Any) -> Tensor:
        """Images or vectors to predict, of the shape of the samples so far."""
        images = self._checked(x)
        if not bool((usable := _finite(images)).all()):
            first = int((~usable).nonzero()[0])
            raise UserError(
                f"sample {first} holds values that are not finite; leave such samples out"
            )
        return images

    def _checked(self, x: Any) -> Tensor:
        """Images of uint8 as they are, all other numbers as float32; of the shape of the samples so far."""
        came = f"{type(x).__name__} of {x.dtype}" if hasattr(x, "dtype") else type(x).__name__
        images = _numbers(x, f"expected an array or a tensor of numbers; got {came}")
        if images.ndim == 4 and images.dtype != torch.uint8 and not images.is_floating_point():
            raise UserError(
                f"images are bytes (uint8), or floats as the network takes them; got {images.dtype}"
            )
        if images.dtype == torch.uint8 and images.ndim != 2:
            layout = (
                "images as bytes are (samples, height, width, channels); got the shape "
                f"{tuple(images.shape)}"
            )
            if images.ndim != 4:
                raise UserError(layout)
            _, height, width, channels = images.shape
            if self.shape is None and height in (1, 3) and min(width, channels) > 4:
                raise UserError(f"{layout}, with channels first: give x.permute(0, 2, 3, 1)")
        else:
            images = images.float()
        if images.ndim < 2 or 0 in images.shape[1:]:
            raise UserError(
                f"expected samples of numbers, (samples, ...); got the shape {tuple(images.shape)}"
            )
        shape = tuple(images.shape[1:])
        if self.shape is not None and (shape, images.dtype) != (self.shape, self.dtype):
            kinds = [
                "bytes" if each == torch.uint8 else "floats" for each in (self.dtype, images.dtype)
            ]
            raise UserError(
                f"samples were {kinds[0]} of shape {self.shape} at first; got {kinds[1]} of shape "
                f"{shape}: convert them to one shape and type"
            )
        return images

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "count": self.count,
            "shape": None if self.shape is None else list(self.shape),
            "columns": None if self.columns is None else list(self.columns),
            "bytes": self.dtype == torch.uint8,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        numbers = [state["count"], *(state["shape"] or ())]
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers):
            raise ValueError("expected the number of samples, and the shape of one")
        columns = state.get("columns")  # states of earlier versions have none
        if not all(type(name) is str for name in columns or ()):
            raise ValueError("expected columns by their names")
        self.count = state["count"]
        self.shape = None if state["shape"] is None else tuple(state["shape"])
        self.columns = None if columns is None else tuple(columns)
        self.dtype = torch.uint8 if state["bytes"] else torch.float32


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
    labels = _numbers(
        y, f"{expected}; number the classes, or use LiveClassifier, which takes texts"
    )
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


def _numbers(values: Any, complaint: str) -> Tensor:
    """A tensor of real numbers on the CPU, detached."""
    refuse_odd(values, complaint)
    if isinstance(values, Tensor):
        if values.is_complex():
            raise UserError(complaint)
        return values.detach().cpu()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(complaint) from error
    if array.dtype.kind not in "biuf":
        raise UserError(complaint)
    refuse_odd(array, complaint)
    try:
        # torch needs native byte order, no negative strides, and writable memory.
        native = array.dtype.newbyteorder("=")
        return torch.from_numpy(np.require(array, native, requirements=["C", "W"]))
    except TypeError as error:  # torch has no float128
        raise UserError(complaint) from error


def _finite(images: Tensor) -> Tensor:
    """bool (samples,): which have finite values only, whose squares are finite."""
    if images.dtype == torch.uint8:
        return torch.ones(len(images), dtype=torch.bool)
    return (images.flatten(1).abs() < HUGE).all(dim=1)


# Statistics of the samples

ENOUGH = 20
"""samples from which on mean and standard deviation are trusted"""
FEWEST = 5
"""with fewer samples, none is called an outlier"""
AGREEING, OF_LAST = 5, 10
"""with so many outliers among its last samples a class has drifted"""
RECENT = 50
"""last samples; if most of them are outliers, all inputs have changed (another unit)"""


class InputStatistics:
    """Mean and standard deviation of all samples but outliers.

    By channel of an image, by feature of a vector. With few samples, the most extreme value of
    each feature is left out before others are compared. Where most samples have become outliers,
    the statistics begin anew.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, *, factor: float | None) -> None:
        """`factor`: an outlier is more standard deviations from the mean; None: no outliers."""
        is_bytes = dtype == torch.uint8
        channels = shape[-1] if is_bytes else shape[0]
        self.count = 0
        """samples so far, without outliers"""
        self._factor = None if is_bytes else factor
        self._mean = torch.zeros(channels, dtype=torch.float64)
        self._squares = torch.zeros(channels, dtype=torch.float64)
        self._first = torch.zeros(0, *shape, dtype=dtype)
        self._flags: dict[int, deque[bool]] = {}
        self._recent: deque[bool] = deque(maxlen=RECENT)

    @property
    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of network inputs, (channels,) each; 1 for constant features."""
        std = self._std
        return self._mean, torch.where(std > 1e-6 * self._mean.abs() + 1e-12, std, 1.0)

    @property
    def _std(self) -> Tensor:
        return (self._squares / max(1, self.count)).sqrt()

    def outliers(self, images: Tensor) -> Tensor:
        """bool (samples,): which are far from the mean of the samples so far."""
        if self._factor is None or not len(images):
            return torch.zeros(len(images), dtype=torch.bool)
        if self.count < ENOUGH:
            return self._outliers_of_first(torch.cat([self._first, images]))[len(self._first) :]
        return _beyond(self._factor, _values(images), self._mean, self._std)

    def _outliers_of_first(self, first: Tensor) -> Tensor:
        """The same among the first samples, one of which may be anything."""
        if self._factor is None or len(first) < FEWEST:
            return torch.zeros(len(first), dtype=torch.bool)
        values = _values(first)
        median = values.transpose(0, 1).flatten(1).median(dim=1).values
        deviation = (values - median[:, None]).square().mean(dim=2)
        std = deviation.sort(dim=0).values[:-1].mean(dim=0).sqrt()
        return _beyond(self._factor, values, median, std)

    def drifted(self, labels: Tensor, far: Tensor) -> Tensor:
        """bool (samples,): which far samples are no single outliers, but a drift of their class.

        `labels` (samples,) in the order of the stream; `far` (samples,) from `outliers`.
        """
        drifted = torch.zeros_like(far)
        if self._factor is None:
            return drifted
        self._recent.extend(far.tolist())
        if not self._flags and not bool(far.any()):
            return drifted
        for number, (label, is_far) in enumerate(zip(labels.tolist(), far.tolist(), strict=True)):
            if not is_far and label not in self._flags:
                continue  # the usual case: classes without outliers need no record
            flags = self._flags.setdefault(label, deque(maxlen=OF_LAST))
            flags.append(is_far)
            drifted[number] = is_far and sum(flags) >= AGREEING
            if not any(flags):
                del self._flags[label]
        return drifted

    @property
    def all_changed(self) -> bool:
        """Whether most of the last samples are outliers."""
        return 2 * sum(self._recent) > RECENT

    def reset(self) -> None:
        """Forget all samples."""
        self.count = 0
        self._first = self._first[:0]
        self._flags.clear()
        self._recent.clear()

    def add(self, images: Tensor) -> None:
        """Add samples that are no outliers."""
        if not len(images):
            return
        if self.count < ENOUGH:
            first = torch.cat([self._first, images])
            self._mean, self._squares = _moments(_values(first[~self._outliers_of_first(first)]))
            self.count = len(first)
            self._first = first if len(first) < ENOUGH else first[:0].clone()
            return
        mean, squares = _moments(_values(images))
        total, gap = self.count + len(images), mean - self._mean
        self._squares += squares + gap.square() * (self.count * len(images) / total)
        self._mean += gap * (len(images) / total)
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "count": self.count,
            "mean": self._mean,
            "squares": self._squares,
            "first": self._first,
            "flags": {str(label): list(flags) for label, flags in self._flags.items()},
            "recent": list(self._recent),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        mean, squares, first = (state[name] for name in ("mean", "squares", "first"))
        like = ((mean, self._mean), (squares, self._squares), (first[:0], self._first[:0]))
        flags = {int(label): each for label, each in state["flags"].items()}
        if (
            any((given.shape, given.dtype) != (own.shape, own.dtype) for given, own in like)
            or type(state["count"]) is not int
            or not {type(flag) for each in (state["recent"], *flags.values()) for flag in each}
            <= {bool}
        ):
            raise ValueError("expected statistics of inputs, and which of the last were outliers")
        self.count = state["count"]
        self._mean, self._squares, self._first = mean.clone(), squares.clone(), first.clone()
        self._recent = deque(state["recent"], maxlen=RECENT)
        self._flags = {label: deque(each, maxlen=OF_LAST) for label, each in flags.items()}


def _values(images: Tensor) -> Tensor:
    """(samples, channels, values of the channel), float64, as inputs of a network."""
    if images.dtype == torch.uint8:
        return images.flatten(1, 2).transpose(1, 2).double() / 255
    return images.double().reshape(len(images), images.shape[1], -1)


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sum of squared deviations, (channels,); all values of a channel count as one."""
    mean = values.mean(dim=(0, 2))
    return mean, (values - mean[:, None]).square().mean(dim=2).sum(dim=0)


def _beyond(factor: float, values: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """bool (samples,): which have a value more than `factor` deviations from its mean."""
    # At least a tenth of the average deviation: a constant feature may begin to vary.
    positive = std[std > 0]
    smallest = 0.1 * float(positive.mean()) if len(positive) else torch.inf
    distance = (values - mean[:, None]).abs() / std.clamp(min=smallest)[:, None]
    return (distance > factor).flatten(1).any(dim=1)
