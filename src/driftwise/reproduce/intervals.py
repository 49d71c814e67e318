"""Differences between paired runs, and whether they are at least what a claim needs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
NO_WIDTH = 1e-9
"""Below it an interval is what rounding leaves of none."""

HOLDS, FAILS, UNDECIDED, NOT_MEASURED = "holds", "does not hold", "undecided", "not measured"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and where it may lie; without ends if one value is all there is."""

    mean: float
    low: float | None
    high: float | None

    def at_least(self, threshold: float, *, fixed: bool = False) -> str:
        """Holds if the whole interval is at or above the threshold, fails if it is below.

        Accuracies that do not vary at all decide nothing: something did not happen. Counts that the
        protocol may fix (`fixed`) do.
        """
        if self.low is None or self.high is None:
            return UNDECIDED
        if not fixed and self.high - self.low < NO_WIDTH:
            return UNDECIDED
        return HOLDS if self.low >= threshold else FAILS if self.high < threshold else UNDECIDED

    def below(self, threshold: float) -> str:
        """The opposite claim."""
        return {HOLDS: FAILS, FAILS: HOLDS}.get(told := self.at_least(threshold), told)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Differences of two runs that share everything else, seed by seed, cell by cell."""

    cells: tuple[tuple[float, ...], ...]
    """at least one cell, each with at least one seed"""

    @property
    def means(self) -> list[float]:
        """One per cell, over its seeds."""
        return [statistics.fmean(cell) for cell in self.cells]

    @property
    def num_seeds(self) -> tuple[int, int]:
        """Fewest and most seeds in a cell."""
        counts = [len(cell) for cell in self.cells]
        return min(counts), max(counts)

    @property
    def seed_sd(self) -> float | None:
        """Spread over seeds within a cell, pooled; None: no cell has two seeds."""
        spreads = [(len(cell) - 1, statistics.variance(cell)) for cell in self.cells if cell[1:]]
        weight = sum(degrees for degrees, _ in spreads)
        return math.sqrt(sum(d * v for d, v in spreads) / weight) if weight else None

    @property
    def interval(self) -> Interval:
        """Student's interval over cells, each with its mean over seeds; of one cell, over seeds."""
        return interval_of(self.means if len(self.cells) > 1 else self.cells[0])


def interval_of(values: Sequence[float]) -> Interval:
    """Student's interval for the mean.

    >>> found = interval_of([1.0, 2.0, 3.0])
    >>> round(found.low, 2), found.mean, round(found.high, 2)
    (-0.48, 2.0, 4.48)
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean=mean, low=None, high=None)
    # Here, because no other part of a report needs scipy.
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean=mean, low=mean - half, high=mean + half)


def paired(differences: Iterable[Sequence[float]]) -> Paired | None:
    """Cells with their differences seed by seed; None if there are none."""
    cells = tuple(tuple(values) for values in differences if values)
    return Paired(cells=cells) if cells else None


def both(*verdicts: str) -> str:
    """What holds of several claims together."""
    for told in (FAILS, NOT_MEASURED, UNDECIDED):
        if told in verdicts:
            return told
    return HOLDS
