"""What has been seen so far: mean and spread by feature, and which samples lie far outside."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

ENOUGH = 20
"""samples from which on mean and spread are taken for known"""
FEWEST = 5
"""samples without which nothing is called far outside"""
AGREEING, OF_LAST = 5, 10
"""so many far samples among the last ones of a class agree: it has drifted"""
RECENT = 50
"""last samples of which, if most are far, everything has come to lie elsewhere"""


class InputStatistics:
    """Statistics of the samples that came, from which single outliers are kept away.

    Mean and standard deviation are those of all samples but the far ones, by channel of an image
    and by feature of a vector. What few samples say is not trusted: of the first ones the most
    extreme value of each feature is left out before others are measured by them. Where most
    samples have come to be far (another unit), both begin anew.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, *, factor: float | None) -> None:
        """`factor`: spreads from the mean, beyond which a sample lies far outside; None: none."""
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
        """Samples that came, outliers left out."""
        return self._count

    @property
    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation by channel or feature, (channels,), of network inputs.

        A feature without spread is only shifted.
        """
        std = self._spread
        return self._mean, torch.where(std > 1e-6 * self._mean.abs() + 1e-12, std, 1.0)

    def far(self, images: Tensor) -> Tensor:
        """bool (samples,): which lie far outside what has been seen."""
        if self._factor is None or not len(images):
            return torch.zeros(len(images), dtype=torch.bool)
        if self._count < ENOUGH:
            return self._far_of_first(torch.cat([self._first, images]))[len(self._first) :]
        return _beyond(self._factor, _values(images), self._mean, self._spread)

    def _far_of_first(self, first: Tensor) -> Tensor:
        """The same of the first samples, by one another."""
        if self._factor is None or len(first) < FEWEST:
            return torch.zeros(len(first), dtype=torch.bool)
        values = _values(first)
        return _beyond(self._factor, values, *_without_extremes(values))

    @property
    def _spread(self) -> Tensor:
        return (self._squares / max(1, self._count)).sqrt()

    def agrees(self, labels: Tensor, far: Tensor) -> Tensor:
        """bool (samples,): which of the far ones are no single outliers, as their class goes on so.

        Samples of a class are counted in the order in which they come.
        """
        agrees = torch.zeros_like(far)
        if self._factor is None:
            return agrees
        self._recent.extend(far.tolist())
        if not self._flags and not bool(far.any()):
            return agrees
        for number, (label, is_far) in enumerate(zip(labels.tolist(), far.tolist(), strict=True)):
            if not is_far and label not in self._flags:
                continue  # nearly always: nothing is kept of classes without outliers
            flags = self._flags.setdefault(label, deque(maxlen=OF_LAST))
            flags.append(is_far)
            agrees[number] = is_far and sum(flags) >= AGREEING
            if not any(flags):
                del self._flags[label]
        return agrees

    @property
    def has_moved(self) -> bool:
        """Whether most of what came last is far outside."""
        return 2 * sum(self._recent) > RECENT

    def begin_anew(self) -> None:
        """Forget what was seen."""
        self._count = 0
        self._first = self._first[:0]
        self._flags.clear()
        self._recent.clear()

    def add(self, images: Tensor) -> None:
        """These are not far outside."""
        if not len(images):
            return
        if self._count < ENOUGH:
            first = torch.cat([self._first, images])
            self._mean, self._squares = _moments(_values(first[~self._far_of_first(first)]))
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
        """Take up where `state_dict` left off."""
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
            raise ValueError("expected a number of samples, and which of the last were far")
        self._count = state["count"]
        self._mean = state["mean"].clone()
        self._squares = state["squares"].clone()
        self._first = state["first"].clone()
        self._recent = deque(state["recent"], maxlen=RECENT)
        self._flags = {label: deque(each, maxlen=OF_LAST) for label, each in flags.items()}


def _values(images: Tensor) -> Tensor:
    """(samples, channels, values of the channel), double precision, as networks are given them."""
    if images.dtype == torch.uint8:
        return images.flatten(1, 2).transpose(1, 2).double() / 255
    return images.double().reshape(len(images), images.shape[1], -1)


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sum of squared deviations, (channels,); all values of a channel count as one."""
    mean = values.mean(dim=(0, 2))
    return mean, (values - mean[:, None]).square().mean(dim=2).sum(dim=0)


def _beyond(factor: float, values: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """bool (samples,): which have a value more than so many spreads from its mean."""
    distance = (values - mean[:, None]).abs() / _lifted(spread)[:, None]
    return (distance > factor).flatten(1).any(dim=1)


def _without_extremes(values: Tensor) -> tuple[Tensor, Tensor]:
    """Median and spread, (channels,), of few samples, one of which may be anything."""
    median = values.transpose(0, 1).flatten(1).median(dim=1).values
    deviation = (values - median[:, None]).square().mean(dim=2)
    return median, deviation.sort(dim=0).values[:-1].mean(dim=0).sqrt()


def _lifted(spread: Tensor) -> Tensor:
    """No spread is less than a tenth of the average: what was constant may begin to vary."""
    some = spread[spread > 0]
    usual = float(some.mean()) if len(some) else torch.inf
    return spread.clamp(min=0.1 * usual)
