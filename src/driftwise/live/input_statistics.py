"""Running mean and standard deviation of the inputs, and which samples are outliers."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

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
        self._is_bytes = dtype == torch.uint8
        self._factor = None if self._is_bytes else factor
        channels = shape[-1] if self._is_bytes else shape[0]
        self._count = 0
        self._mean = torch.zeros(channels, dtype=torch.float64)
        self._squares = torch.zeros(channels, dtype=torch.float64)
        self._first = torch.zeros(0, *shape, dtype=dtype)
        self._flags: dict[int, deque[bool]] = {}
        self._recent: deque[bool] = deque(maxlen=RECENT)

    @property
    def count(self) -> int:
        """Samples so far, without outliers."""
        return self._count

    @property
    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of network inputs, (channels,) each; 1 for constant features."""
        std = self._std
        return self._mean, torch.where(std > 1e-6 * self._mean.abs() + 1e-12, std, 1.0)

    def outliers(self, images: Tensor) -> Tensor:
        """bool (samples,): which are far from the mean of the samples so far."""
        if self._factor is None or not len(images):
            return torch.zeros(len(images), dtype=torch.bool)
        if self._count < ENOUGH:
            return self._outliers_of_first(torch.cat([self._first, images]))[len(self._first) :]
        return _beyond(self._factor, _values(images), self._mean, self._std)

    def _outliers_of_first(self, first: Tensor) -> Tensor:
        """The same among the first samples."""
        if self._factor is None or len(first) < FEWEST:
            return torch.zeros(len(first), dtype=torch.bool)
        values = _values(first)
        return _beyond(self._factor, values, *_without_extremes(values))

    @property
    def _std(self) -> Tensor:
        return (self._squares / max(1, self._count)).sqrt()

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
        self._count = 0
        self._first = self._first[:0]
        self._flags.clear()
        self._recent.clear()

    def add(self, images: Tensor) -> None:
        """Add samples that are no outliers."""
        if not len(images):
            return
        if self._count < ENOUGH:
            first = torch.cat([self._first, images])
            self._mean, self._squares = _moments(_values(first[~self._outliers_of_first(first)]))
            self._count = len(first)
            self._first = first if len(first) < ENOUGH else first[:0].clone()
            return
        mean, squares = _moments(_values(images))
        total, gap = self._count + len(images), mean - self._mean
        self._squares += squares + gap.square() * (self._count * len(images) / total)
        self._mean += gap * (len(images) / total)
        self._count = total

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "count": self._count,
            "mean": self._mean,
            "squares": self._squares,
            "first": self._first,
            "flags": {str(label): list(flags) for label, flags in self._flags.items()},
            "recent": list(self._recent),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        mine = {"mean": self._mean, "squares": self._squares, "first": self._first[0:0]}
        for name, own in mine.items():
            given = state[name]
            shape = given[0:0].shape if name == "first" else given.shape
            if (shape, given.dtype) != (own.shape, own.dtype):
                raise ValueError(f"expected {name} of samples like {tuple(own.shape)}, {own.dtype}")
        flags = {int(label): each for label, each in state["flags"].items()}
        if type(state["count"]) is not int or not all(
            type(flag) is bool for each in (state["recent"], *flags.values()) for flag in each
        ):
            raise ValueError("expected a number of samples, and which of the last were outliers")
        self._count = state["count"]
        self._mean = state["mean"].clone()
        self._squares = state["squares"].clone()
        self._first = state["first"].clone()
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


def _without_extremes(values: Tensor) -> tuple[Tensor, Tensor]:
    """Median and standard deviation, (channels,), of samples one of which may be anything."""
    median = values.transpose(0, 1).flatten(1).median(dim=1).values
    deviation = (values - median[:, None]).square().mean(dim=2)
    return median, deviation.sort(dim=0).values[:-1].mean(dim=0).sqrt()
