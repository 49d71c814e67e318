"""P-values measured by splitting the reference against itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from driftwise import rng
from driftwise.detect import ClassTests, ComparisonOptions
from driftwise.detect.two_sample import all_three, by_mmd, ks_on, merging
from driftwise.errors import UserError
from driftwise.stats.c2st import areas_under_curve, c2st, held_out_scores
from driftwise.stats.calibration import (
    c2st_by_splits,
    ks_by_splits,
    mmd_by_splits,
    smallest_split_p_value,
)
from driftwise.stats.ks import kolmogorov_smirnov
from driftwise.stats.mmd import kernel_matrices, mmd
from driftwise.stats.permutation import Evidence, Pair, random_splits
from driftwise.types import Encoding

SplitTest = Callable[..., list[Evidence]]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(samples: int, width: int | None, draw: torch.Generator) -> Tensor:
    shape = (samples,) if width is None else (samples, width)
    return torch.randn(shape, generator=draw, dtype=torch.float64)


def rate(evidence: Sequence[Evidence], level: float = 0.05) -> float:
    return statistics.fmean(each.p_value <= level for each in evidence)


def often(chance: float, tries: int) -> float:
    """A share that one in a thousand such experiments would exceed."""
    return float(stats.binom.ppf(0.999, tries, chance)) / tries


# What a p-value is


def literal_gap(first: np.ndarray, second: np.ndarray) -> float:
    return max(
        abs(float((first <= t).mean()) - float((second <= t).mean()))
        for t in np.concatenate([first, second])
    )


def literal_scale(n: int, m: int) -> float:
    root = math.sqrt(n * m / (n + m))
    return root + 0.12 + 0.11 / root


@pytest.mark.parametrize("samples", [7, 12])
def test_a_gap_is_ranked_among_those_of_halves_a_near_tie_counting_in_part(samples: int) -> None:
    reference = (normal(samples, None, generator(1)) * 2).round()  # with ties
    current = (normal(9, None, generator(2)) * 2).round() + 1
    ((gap, p_value),) = ks_by_splits([(reference, current)], splits=60, generator=generator(3))
    assert gap == kolmogorov_smirnov([(reference, current)])[0].statistic

    every = np.array([-1e9, -1e9, *sorted(reference.tolist()), 1e9, 1e9])
    sizes = len(every) // 2, len(every) - len(every) // 2
    scaled = gap * literal_scale(samples, 9) / literal_scale(*sizes)
    count = 0.0
    for split in random_splits(1, 60, sizes, generator(3))[0, 1:].numpy():
        samples_above = (literal_gap(every[~split], every[split]) - scaled) * sizes[0]
        count += min(max(samples_above + 0.5, 0), 1)
    assert 1 < count < 59
    assert p_value == pytest.approx((1 + count) / 61)


def variance_ratio(kernels: np.ndarray, split: np.ndarray) -> float:
    """Analysis of variance by squared distances, one block after the other."""
    squared = 2 - 2 * (kernels + np.eye(len(kernels)))
    total = squared.sum() / (2 * len(squared))
    within = sum(squared[np.ix_(side, side)].sum() / (2 * side.sum()) for side in (split, ~split))
    return float((total - within) / (within / (len(squared) - 2)))


def test_a_discrepancy_is_ranked_by_variance_between_over_variance_within() -> None:
    reference, current = normal(9, 3, generator(1)), normal(14, 3, generator(2)) + 0.6
    ((statistic, p_value),) = mmd_by_splits(
        [(reference, current)], splits=80, generator=generator(3)
    )
    assert statistic == mmd([(reference, current)], generator=generator())[0].statistic

    kernels = kernel_matrices(torch.cat([reference, current])[None])[0].numpy()
    observed = variance_ratio(kernels, np.arange(23) >= 9)
    halves = random_splits(1, 80, (4, 5), generator(3))[0, 1:].numpy()
    count = sum(variance_ratio(kernels[:9, :9], split) >= observed - 1e-10 for split in halves)
    assert 1 < count < 79
    assert p_value == pytest.approx((1 + count) / 81)


def test_an_area_is_ranked_in_standard_deviations_of_the_rank_sum() -> None:
    reference, current = normal(9, 2, generator(1)), normal(15, 2, generator(2)) + 0.8
    ((area, p_value),) = c2st_by_splits([(reference, current)], splits=80, generator=generator(3))

    draw = generator(3)

    def areas(samples: Tensor, splits: Tensor) -> Tensor:
        order = torch.rand(1, len(samples), generator=draw).argsort(dim=1)[0]
        splits = splits[None, :, order]
        scores = held_out_scores(samples[order][None], splits, folds=10, ridge=0.01)
        return areas_under_curve(scores, splits)[0]

    def deviations(areas: Tensor, n: int, m: int) -> Tensor:
        return (areas - 0.5) / math.sqrt((n + m + 1) / (12 * n * m))

    observed = areas(torch.cat([reference, current]), (torch.arange(24) >= 9)[None])
    assert area == observed.item()
    halves = random_splits(1, 80, (6, 7), draw)[0, 1:]
    imagined = torch.zeros(13, 4, dtype=torch.float64)
    imagined[:9, :2] = reference
    imagined[9:, :2] = reference.mean(dim=0)
    imagined[9:11, 2] = imagined[11:, 3] = 1
    reached = deviations(areas(imagined, halves), 6, 7) >= deviations(observed, 9, 15) - 1e-9
    count = int(reached.sum())
    assert 1 < count < 79
    assert p_value == pytest.approx((1 + count) / 81)


@pytest.mark.parametrize(
    ("samples", "splits", "halves"), [(5, 999, 10), (6, 999, 10), (9, 999, 126), (9, 99, 99)]
)
def test_no_p_value_is_smaller_than_the_number_of_halves_allows(
    samples: int, splits: int, halves: int
) -> None:
    smallest = smallest_split_p_value(samples, splits)
    assert smallest == 1 / (1 + halves)
    draw = generator(samples)
    scores = normal(samples, None, draw), normal(200, None, draw) + 50
    features = normal(samples, 2, draw), normal(200, 2, draw) + 50
    for split_test, pair in [(ks_by_splits, scores), (mmd_by_splits, features)]:
        (found,) = split_test([pair], splits=splits, generator=draw)
        assert found.p_value == pytest.approx(smallest)


# What it promises


def scores_with_ties(samples: int, draw: torch.Generator) -> Tensor:
    return (normal(samples, None, draw) * 2).round()


def scores_mostly_zero(samples: int, draw: torch.Generator) -> Tensor:
    seldom = torch.rand(samples, generator=draw) < 0.1
    return torch.where(seldom, 0.5 + normal(samples, None, draw).abs(), 0.0)


@pytest.mark.parametrize(("n", "m"), [(10, 20), (20, 300)])
@pytest.mark.parametrize(
    "scores",
    [lambda samples, draw: normal(samples, None, draw), scores_with_ties, scores_mostly_zero],
)
def test_false_alarms_of_gaps_stay_at_their_level_when_nothing_drifts(
    scores: Callable[[int, torch.Generator], Tensor], n: int, m: int
) -> None:
    draw = generator(n)
    pairs = [(scores(n, draw), scores(m, draw)) for _ in range(400)]
    assert rate(ks_by_splits(pairs, splits=199, generator=draw)) <= often(0.05, 400)


@pytest.mark.parametrize(("n", "m", "width"), [(10, 20, 2), (20, 100, 24)])
@pytest.mark.parametrize("split_test", [mmd_by_splits, c2st_by_splits])
def test_false_alarms_on_features_stay_at_their_level_when_nothing_drifts(
    split_test: SplitTest, n: int, m: int, width: int
) -> None:
    draw = generator(width + n)
    pairs = [(normal(n, width, draw), normal(m, width, draw)) for _ in range(200)]
    assert rate(split_test(pairs, splits=99, generator=draw)) <= often(0.05, 200)


@pytest.mark.parametrize(
    ("split_test", "test"),
    [
        (ks_by_splits, lambda pairs, draw: kolmogorov_smirnov(pairs)),
        (mmd_by_splits, lambda pairs, draw: mmd(pairs, generator=draw)),
        (c2st_by_splits, lambda pairs, draw: c2st(pairs, generator=draw)),
    ],
)
def test_drift_is_found_about_as_often_as_by_the_tests_own_distribution(
    split_test: SplitTest, test: Callable[[list[Pair], torch.Generator], list[Evidence]]
) -> None:
    draw = generator(4)
    width = None if split_test is ks_by_splits else 4
    pairs = [(normal(30, width, draw), normal(60, width, draw) + 0.7) for _ in range(100)]
    by_test = rate(test(pairs, draw))
    by_splits = rate(split_test(pairs, splits=99, generator=draw))
    assert by_test > 0.5
    assert abs(by_splits - by_test) < 0.1


def test_the_first_sample_that_differs_from_a_reference_of_equal_samples_is_no_alarm() -> None:
    constant = torch.zeros(20, dtype=torch.float64)
    for differing, alarm in ((1, False), (5, False), (60, True)):
        current = torch.zeros(100, dtype=torch.float64)
        current[:differing] = 1
        (gap,) = ks_by_splits([(constant, current)], generator=generator())
        assert (gap.p_value <= 0.05) is alarm
        for split_test in (mmd_by_splits, c2st_by_splits):
            pair = constant[:, None], current[:, None]
            (found,) = split_test([pair], splits=199, generator=generator())
            assert (found.p_value <= 0.05) is alarm


@pytest.mark.parametrize(("split_test", "test"), [(mmd_by_splits, mmd), (c2st_by_splits, c2st)])
def test_only_classes_with_equal_samples_of_features_are_permuted(
    split_test: SplitTest, test: SplitTest
) -> None:
    draw = generator(6)
    reference, current = normal(12, 3, draw), normal(30, 3, draw) + 0.4
    tied = torch.cat([reference[:11], reference[:1]])
    expected = test([(tied, current)], permutations=99, generator=generator(7))
    assert split_test([(tied, current)], splits=99, generator=generator(7)) == expected
    both = split_test([(tied, current), (reference, current)], splits=99, generator=generator(7))
    alone = split_test([(reference, current)], splits=99, generator=generator(7))
    assert both[1] == alone[0]


# How the tests of classes use it


def encodings(samples: int, shift: float, draw: torch.Generator) -> Encoding:
    features = normal(samples, 4, draw) + shift
    return Encoding(logits=features * torch.linspace(1, 2, 4), features=features)


def sides(n: int, m: int, classes: int = 3) -> dict[int, tuple[Encoding, Encoding]]:
    """Class 1 drifts."""
    draw = generator(n + m)
    return {
        label: (encodings(n, 0, draw), encodings(m, 3.0 * (label == 1), draw))
        for label in range(classes)
    }


def test_verdicts_by_splits_have_the_statistics_of_the_tests_and_other_p_values() -> None:
    given = sides(20, 60)
    by_test, by_splits = (
        ClassTests([by_mmd(199)], ComparisonOptions(calibration=each)).verdicts(2, given)
        for each in ("test", "split")
    )
    assert [v.score for v in by_splits] == [v.score for v in by_test]
    assert [v.p_value for v in by_splits] != [v.p_value for v in by_test]
    options = ComparisonOptions(calibration="split")
    tests = ClassTests(all_three(499), options, merge=merging("bonferroni"), seed=3)
    found = tests.verdicts(2, given)
    assert [v.drifted for v in found] == [False, True, False]
    features = [(kept.features, now.features) for kept, now in given.values()]
    draw = rng.fork(3, "permutations", "mmd", 2)
    expected = mmd_by_splits(features, splits=499, generator=draw)
    assert [(v.p_values or {})["mmd"] for v in found] == [each.p_value for each in expected]
    assert tests.verdicts(2, given) == found


def test_a_reference_with_too_few_halves_for_the_level_is_not_testable() -> None:
    tests = ClassTests([ks_on("entropy")], ComparisonOptions(calibration="split"))
    (few,) = tests.verdicts(2, sides(6, 100, classes=1))
    assert few.drifted is None
    assert few.reason == "6 against 100 distinct samples cannot reach the level among 1"
    (enough,) = tests.verdicts(2, sides(7, 100, classes=1))
    assert enough.drifted is not None


def test_classes_come_back_in_their_order_and_bad_numbers_are_refused() -> None:
    draw = generator(8)
    sizes = [(12, 9), (15, 30), (12, 9), (12, 30)]
    for split_test, width in ((ks_by_splits, None), (mmd_by_splits, 3), (c2st_by_splits, 3)):
        pairs = [(normal(n, width, draw), normal(m, width, draw) + 9 * (n == 15)) for n, m in sizes]
        found = split_test(pairs, splits=99, generator=draw)
        assert [each.p_value <= 0.01 for each in found] == [False, True, False, False]
        assert split_test([], generator=draw) == []
        first, second = pairs[0]
        with pytest.raises(UserError, match="NaN"):
            split_test([(first, second.clone().fill_(torch.nan))], generator=draw)
        with pytest.raises(UserError, match=r"empty|two samples"):
            split_test([(first[:0], second)], generator=draw)
