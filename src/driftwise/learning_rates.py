"""Learning rates over the epochs of a task: factors on the rate that was set."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Rate = Callable[[int, int], float]
"""(epoch from 1, epochs of the task) -> factor"""


def constant(epoch: int, epochs: int) -> float:
    """Always 1."""
    del epoch, epochs
    return 1.0


def steps(milestones: Sequence[int], drop: float) -> Rate:
    """Times `drop` after each of the milestones.

    >>> rate = steps((35, 45), 0.1)
    >>> [round(rate(epoch, 50), 3) for epoch in (1, 35, 36, 45, 46)]
    [1.0, 1.0, 0.1, 0.1, 0.01]
    """

    def rate(epoch: int, epochs: int) -> float:
        del epochs
        return float(drop ** sum(epoch > milestone for milestone in milestones))

    return rate


def cosine(floor: float) -> Rate:
    """Half a cosine from 1 at the first epoch towards `floor`, which it would reach after the last.

    >>> rate = cosine(0.01)
    >>> [round(rate(epoch, 100), 4) for epoch in (1, 51, 101)]
    [1.0, 0.505, 0.01]
    """

    def rate(epoch: int, epochs: int) -> float:
        return floor + (1 - floor) * (1 + math.cos(math.pi * (epoch - 1) / epochs)) / 2

    return rate
