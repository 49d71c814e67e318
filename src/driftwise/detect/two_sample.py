"""Comparisons of two samples: what is measured, by which test, and how small p-values can get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.c2st import c2st
from driftwise.stats.calibration import (
    c2st_by_splits,
    ks_by_splits,
    mmd_by_splits,
    smallest_split_p_value,
)
from driftwise.stats.combine import COMBINATIONS
from driftwise.stats.held_out import (
    Learn,
    by_held_out_samples,
    separating,
    smallest_held_out_p_value,
    witness,
)
from driftwise.stats.ks import (
    asymptotic_kolmogorov_smirnov,
    kolmogorov_smirnov,
    smallest_asymptotic_p_value,
    smallest_p_value,
)
from driftwise.stats.mmd import mmd
from driftwise.stats.permutation import Evidence, Pair, smallest_permutation_p_value
from driftwise.stats.scores import SCORES
from driftwise.types import Encoding

Merge = Callable[[Sequence[float]], float]
"""The p-values of one class by several tests -> one p-value."""

KS_SPLITS = 1999
"""of the reference against itself at least, where p-values are measured by them: they are cheap"""

_FAR_FROM_DRIFT = 0.1
"""a p-value above it needs no more digits"""


@dataclass(frozen=True, kw_only=True)
class TwoSampleTest:
    """A test of reference against current measures, of all classes of a check at once."""

    run: Callable[[Sequence[Pair], torch.Generator], list[Evidence]]
    smallest_p_value: Callable[[int, int], float]
    """by samples on both sides: no test of such sizes gets below it"""
    splits: int = 0
    """random ones that it draws; 0: none"""
    with_splits: Callable[[int], TwoSampleTest] | None = None
    """the same by so many random splits; None: it draws none"""

    def refined(self, splits: int) -> TwoSampleTest:
        """The test by at least so many random splits, if it draws any.

        Classes with a small p-value get a second one, by that many splits. Both are valid, and so
        is the result: below the bound it is the second one, above it the first has to be as small.
        """
        if self.with_splits is None or splits <= self.splits:
            return self
        finer = self.with_splits(splits)

        def run(pairs: Sequence[Pair], generator: torch.Generator) -> list[Evidence]:
            found = self.run(pairs, generator)
            close = [n for n, each in enumerate(found) if each.p_value <= _FAR_FROM_DRIFT]
            again = finer.run([pairs[place] for place in close], generator)
            for place, each in zip(close, again, strict=True):
                found[place] = each
            return found

        return replace(finer, run=run)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One way of comparing two samples: a measure and a test.

    >>> ks_on("entropy").name
    'ks-entropy'
    """

    name: str
    measure: Callable[[Encoding], Tensor]
    """what is compared: (samples,) scores or (samples, d) features"""
    test: TwoSampleTest
    alternatives: Mapping[str, TwoSampleTest] = field(default_factory=dict)
    """other null distributions of the statistic (asymptotic, split), and the test that replaces it
    where random splits do not reach small p-values (held-out)"""

    def calibrated(self, calibration: str) -> Comparison:
        """The comparison whose p-values are measured against what the options name."""
        if calibration == "test":
            return self
        if calibration not in self.alternatives:
            raise UserError(f"the test {self.name} has no calibration {calibration}; use test")
        return replace(self, test=self.alternatives[calibration], alternatives={})

    def on_held_out_samples(self) -> Comparison:
        """The comparison without random splits, where there is one."""
        return replace(self, test=self.alternatives.get("held-out", self.test))

    def refined(self, splits: int) -> Comparison:
        """The comparison by at least so many random splits, if it draws any."""
        return replace(self, test=self.test.refined(splits))


def ks_on(score: str, *, grows: bool = False) -> Comparison:
    """Kolmogorov-Smirnov on a score of the logits; `grows`: a single output is no mistake."""
    function = SCORES[score]

    def measure(encoding: Encoding) -> Tensor:
        if encoding.logits.shape[1] < 2 and score != "energy" and not grows:
            raise UserError(
                f"the encoder has one output, whose {score} is always the same; use the detector "
                'mmd or c2st, or options={"detector": {"score": "energy"}}'
            )
        return function(encoding.logits)

    return by_ks(f"ks-{score}", measure)


def by_ks(name: str, measure: Callable[[Encoding], Tensor]) -> Comparison:
    """Kolmogorov-Smirnov on any score, (samples,)."""
    return Comparison(
        name=name,
        measure=measure,
        test=TwoSampleTest(
            run=lambda pairs, _: kolmogorov_smirnov(pairs), smallest_p_value=smallest_p_value
        ),
        alternatives={
            "asymptotic": TwoSampleTest(
                run=lambda pairs, _: asymptotic_kolmogorov_smirnov(pairs),
                smallest_p_value=smallest_asymptotic_p_value,
            ),
            "split": _by_splits(ks_by_splits, KS_SPLITS),
        },
    )


def by_mmd(permutations: int) -> Comparison:
    """Maximum mean discrepancy of features, by at least so many permutations."""
    return _on_features("mmd", mmd, mmd_by_splits, permutations, witness)


def by_c2st(permutations: int) -> Comparison:
    """A classifier two-sample test on features, by at least so many permutations."""
    return _on_features("c2st", c2st, c2st_by_splits, permutations, separating)


def all_three(permutations: int, *, grows: bool = False) -> list[Comparison]:
    """The tests that the combination merges."""
    return [ks_on("entropy", grows=grows), by_mmd(permutations), by_c2st(permutations)]


def merging(method: str) -> Merge:
    """A way of combining p-values, for those of one class."""
    combine = COMBINATIONS[method]
    return lambda p_values: float(combine(np.asarray(p_values, dtype=np.float64)))


def _on_features(
    name: str,
    permuted: Callable[..., list[Evidence]],
    split: Callable[..., list[Evidence]],
    permutations: int,
    learn: Learn,
) -> Comparison:
    return Comparison(
        name=name,
        measure=lambda encoding: encoding.features,
        test=_by_permutations(permuted, permutations),
        alternatives={
            "split": _by_splits(split, permutations),
            "held-out": TwoSampleTest(
                run=lambda pairs, draw: by_held_out_samples(pairs, learn=learn, generator=draw),
                smallest_p_value=smallest_held_out_p_value,
            ),
        },
    )


def _by_permutations(test: Callable[..., list[Evidence]], permutations: int) -> TwoSampleTest:
    """Measured against splits of both samples together."""
    return TwoSampleTest(
        run=lambda pairs, draw: test(pairs, permutations=permutations, generator=draw),
        smallest_p_value=partial(smallest_permutation_p_value, permutations),
        splits=permutations,
        with_splits=partial(_by_permutations, test),
    )


def _by_splits(test: Callable[..., list[Evidence]], splits: int) -> TwoSampleTest:
    """Measured against splits of the reference."""
    return TwoSampleTest(
        run=lambda pairs, draw: test(pairs, splits=splits, generator=draw),
        smallest_p_value=lambda num_reference, _: smallest_split_p_value(num_reference, splits),
        splits=splits,
        with_splits=partial(_by_splits, test),
    )
