"""Detectors by two-sample tests: which measure, which test, which options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from driftwise.detect.base import Setting, TwoSampleDetector
from driftwise.detect.class_tests import ComparisonOptions, Judge
from driftwise.detect.two_sample import Calibrated, Comparison, Merge
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

KS_SPLITS = 1999
"""of the reference against itself at least, where p-values are measured by them: they are cheap"""


class PermutationTest(Protocol):
    """A test measured against splits of both samples together."""

    def __call__(
        self, pairs: Sequence[Pair], *, permutations: int, generator: torch.Generator
    ) -> list[Evidence]:
        """One piece of evidence per pair."""
        ...


class SplitTest(Protocol):
    """A test measured against splits of the reference."""

    def __call__(
        self, pairs: Sequence[Pair], *, splits: int, generator: torch.Generator
    ) -> list[Evidence]:
        """One piece of evidence per pair."""
        ...


@dataclass(frozen=True, kw_only=True)
class KS(ComparisonOptions):
    """The paper's detector: Kolmogorov-Smirnov on predictive entropy."""

    score: Literal["entropy", "margin", "energy", "max-probability"] = "entropy"
    """what is compared: one number per sample, from the encoder's logits"""
    fewest_samples: ClassVar[int] = 1

    def bind(self, setting: Setting) -> TwoSampleDetector:
        """The detector, for one stream and one learner."""
        return _detector(setting, [ks_on(self.score, grows=setting.grows)], self)


@dataclass(frozen=True, kw_only=True)
class PermutationOptions(ComparisonOptions):
    """What can be chosen about a detector that permutes."""

    permutations: int = 1000
    """random splits at least; many classes, or a small level, get as many as they need"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 19 <= self.permutations <= 10**6:
            raise UserError(
                f"the detector's permutations must be 19 to 1000000; got {self.permutations}"
            )


@dataclass(frozen=True, kw_only=True)
class MMD(PermutationOptions):
    """The paper's second detector: maximum mean discrepancy of features."""

    def bind(self, setting: Setting) -> TwoSampleDetector:
        """The detector, for one stream and one learner."""
        return _detector(setting, [by_mmd(self.permutations)], self)


@dataclass(frozen=True, kw_only=True)
class C2ST(PermutationOptions):
    """A linear classifier tries to tell current features from reference features."""

    def bind(self, setting: Setting) -> TwoSampleDetector:
        """The detector, for one stream and one learner."""
        return _detector(setting, [by_c2st(self.permutations)], self)


@dataclass(frozen=True, kw_only=True)
class Combined(PermutationOptions):
    """Uncertainty and features together: entropy by KS, features by MMD and by a classifier."""

    method: Literal["cauchy", "harmonic", "bonferroni"] = "cauchy"
    """how the tests' p-values become one: cauchy has the most power and holds nearly, the others
    hold under every dependence"""

    def bind(self, setting: Setting) -> TwoSampleDetector:
        """The detector, for one stream and one learner."""
        tests = all_three(self.permutations, grows=setting.grows)
        return _detector(setting, tests, self, merging(self.method))


def all_three(permutations: int, *, grows: bool = False) -> list[Comparison]:
    """The tests that the combination merges."""
    return [ks_on("entropy", grows=grows), by_mmd(permutations), by_c2st(permutations)]


def merging(method: str) -> Merge:
    """A way of combining p-values, for those of one class."""
    combine = COMBINATIONS[method]

    def merge(p_values: Sequence[float]) -> float:
        return float(combine(np.asarray(p_values, dtype=np.float64)))

    return merge


def _detector(
    setting: Setting,
    comparisons: Sequence[Comparison],
    options: ComparisonOptions,
    merge: Merge | None = None,
) -> TwoSampleDetector:
    judge = Judge(
        comparisons, options, merge=merge, seed=setting.seed, quick_splits=setting.quick_splits
    )
    return TwoSampleDetector(
        setting.encoder(),
        judge,
        labels=setting.labels,
        learner=setting.learner,
        usual=setting.usual,
    )


def ks_on(score: str, *, grows: bool = False) -> Comparison:
    """Kolmogorov-Smirnov on a score of the logits; of one that `grows`, one alone shows nothing."""
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

    def test(pairs: Sequence[Pair], generator: torch.Generator) -> list[Evidence]:
        del generator
        return kolmogorov_smirnov(pairs)

    return Comparison(
        name=name,
        measure=measure,
        test=test,
        smallest_p_value=smallest_p_value,
        asymptotic=Calibrated(
            test=lambda pairs, _: asymptotic_kolmogorov_smirnov(pairs),
            smallest_p_value=smallest_asymptotic_p_value,
        ),
        by_splits=_by_splits(ks_by_splits, KS_SPLITS),
    )


def by_mmd(permutations: int) -> Comparison:
    """Maximum mean discrepancy of features, by at least so many permutations."""
    return _on_features("mmd", mmd, mmd_by_splits, permutations, witness)


def by_c2st(permutations: int) -> Comparison:
    """A classifier two-sample test on features, by at least so many permutations."""
    return _on_features("c2st", c2st, c2st_by_splits, permutations, separating)


def _on_features(
    name: str, test: PermutationTest, split_test: SplitTest, permutations: int, learn: Learn
) -> Comparison:
    permuted = _by_permutations(test, permutations)
    return Comparison(
        name=name,
        measure=lambda encoding: encoding.features,
        test=permuted.test,
        smallest_p_value=permuted.smallest_p_value,
        splits=permuted.splits,
        finer=permuted.finer,
        by_splits=_by_splits(split_test, permutations),
        held_out=_on_held_out_samples(learn),
    )


def _on_held_out_samples(learn: Learn) -> Calibrated:
    def test(pairs: Sequence[Pair], generator: torch.Generator) -> list[Evidence]:
        return by_held_out_samples(pairs, learn=learn, generator=generator)

    return Calibrated(test=test, smallest_p_value=smallest_held_out_p_value)


def _by_permutations(permutation_test: PermutationTest, permutations: int) -> Calibrated:
    def test(pairs: Sequence[Pair], generator: torch.Generator) -> list[Evidence]:
        return permutation_test(pairs, permutations=permutations, generator=generator)

    def smallest(num_reference: int, num_current: int) -> float:
        return smallest_permutation_p_value(permutations, num_reference, num_current)

    return Calibrated(
        test=test,
        smallest_p_value=smallest,
        splits=permutations,
        finer=partial(_by_permutations, permutation_test),
    )


def _by_splits(split_test: SplitTest, splits: int) -> Calibrated:
    def test(pairs: Sequence[Pair], generator: torch.Generator) -> list[Evidence]:
        return split_test(pairs, splits=splits, generator=generator)

    def smallest(num_reference: int, num_current: int) -> float:
        del num_current
        return smallest_split_p_value(num_reference, splits)

    return Calibrated(
        test=test,
        smallest_p_value=smallest,
        splits=splits,
        finer=partial(_by_splits, split_test),
    )
