"""Ways of comparing two samples, several at once, and how small their p-values can get."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.permutation import Evidence, Pair
from driftwise.types import Encoding

Test = Callable[[Sequence[Pair], torch.Generator], list[Evidence]]
"""Reference and current measures of each class, and what splits are drawn from -> evidence."""

Merge = Callable[[Sequence[float]], float]
"""The p-values of one class by several tests -> one p-value."""

Sizes = tuple[int, int]
"""distinct reference samples and current samples of a class"""

_ENDLESS = 10**9

_FAR_FROM_DRIFT = 0.1
"""a p-value above it needs no more digits"""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A test, and how far its p-values reach."""

    test: Test
    smallest_p_value: Callable[[int, int], float]
    """by samples on both sides: no test of such sizes gets below it"""
    splits: int = 0
    """random ones that it draws; 0: none"""
    finer: Callable[[int], Calibrated] | None = None
    """the same by so many random splits; None: it draws none"""


@dataclass(frozen=True, kw_only=True)
class Comparison(Calibrated):
    """One way of comparing two samples: a measure and a test."""

    name: str
    measure: Callable[[Encoding], Tensor]
    """what is compared: (samples,) scores or (samples, d) features"""
    asymptotic: Calibrated | None = None
    """the same statistic, measured against its limit for many samples; None: no such"""
    by_splits: Calibrated | None = None
    """the same statistic, measured against the reference split against itself; None: no such"""
    held_out: Calibrated | None = None
    """what takes its place where random splits do not get far enough down; None: nothing does"""

    def calibrated(self, calibration: str) -> Comparison:
        """The comparison whose p-values are measured against what the options say."""
        if calibration == "test":
            return self
        by = self.by_splits if calibration == "split" else self.asymptotic
        if by is None:
            raise UserError(f"the test {self.name} has no calibration {calibration}; use test")
        return replace(
            self,
            test=by.test,
            smallest_p_value=by.smallest_p_value,
            splits=by.splits,
            finer=by.finer,
            held_out=None,
        )

    def on_held_out_samples(self) -> Comparison:
        """What takes its place, if anything does."""
        by = self.held_out
        if by is None:
            return self
        return replace(
            self, test=by.test, smallest_p_value=by.smallest_p_value, splits=0, finer=None
        )

    def refined(self, splits: int) -> Comparison:
        """The comparison by at least so many random splits, if it draws any.

        Classes with a small p-value get a new one, by that many splits. Both being valid, what is
        returned is too: at a rate below the bound it is the second one, at others the first has to
        be as small.
        """
        if self.finer is None or splits <= self.splits:
            return self
        finer = self.finer(splits)

        def test(pairs: Sequence[Pair], generator: torch.Generator) -> list[Evidence]:
            found = self.test(pairs, generator)
            close = [n for n, each in enumerate(found) if each.p_value <= _FAR_FROM_DRIFT]
            again = finer.test([pairs[place] for place in close], generator)
            anew = dict(zip(close, again, strict=True))
            return [anew.get(place, each) for place, each in enumerate(found)]

        return replace(self, test=test, smallest_p_value=finer.smallest_p_value, splits=splits)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Several comparisons of the same samples, whose p-values become one."""

    comparisons: tuple[Comparison, ...]
    merge: Merge | None
    """None: there is a single comparison"""

    def merged(self, p_values: Sequence[float]) -> float:
        """One p-value of those of all comparisons."""
        return p_values[0] if self.merge is None else self.merge(p_values)

    def reaching(self, p_value: float, *, max_splits: int) -> Panel | None:
        """The panel with as many random splits as it takes to get down to a p-value.

        Of several tests, one may see nothing. None: it takes more than the most.
        """
        blind = [] if self.merge is None else [1.0]
        seeing = len(self.comparisons) - len(blind)
        most = max(max_splits, *(each.splits for each in self.comparisons))
        splits = bisect_left(
            range(most + 1),
            True,
            key=lambda count: self.merged([*blind, *[1 / (1 + count)] * seeing]) <= p_value,
        )
        return None if splits > most else self.refined(splits)

    def on_held_out_samples(self) -> Panel:
        """The panel without random splits, as far as something can take their place."""
        held_out = tuple(each.on_held_out_samples() for each in self.comparisons)
        return replace(self, comparisons=held_out)

    def refined(self, splits: int) -> Panel:
        """The panel with at least so many random splits."""
        return replace(self, comparisons=tuple(each.refined(splits) for each in self.comparisons))

    def smallest(self, sizes: Sizes) -> float:
        """No samples of such sizes have a smaller p-value."""
        return self.merged([each.smallest_p_value(*sizes) for each in self.comparisons])

    def smallest_without_one(self, sizes: Sizes) -> float:
        """The same where any one of several tests sees nothing."""
        if self.merge is None:
            return self.smallest(sizes)
        smallest = [each.smallest_p_value(*sizes) for each in self.comparisons]
        places = range(len(smallest))
        return max(self.merge([*smallest[:i], 1.0, *smallest[i + 1 :]]) for i in places)

    def lacks_splits(self, sizes: Sizes, p_value: float) -> bool:
        """Whether more random splits would bring samples of such sizes down to a p-value."""
        return self.refined(_ENDLESS).smallest_without_one(sizes) <= p_value
