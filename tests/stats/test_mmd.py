"""Maximum mean discrepancy against literal loops; validity and degenerate samples."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.mmd import mmd
from driftwise.stats.permutation import random_splits


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(samples: int, width: int, seed: int, shift: float = 0.0) -> Tensor:
    return torch.randn(samples, width, generator=generator(seed), dtype=torch.float64) + shift


def literal_mmd(reference: list[list[float]], current: list[list[float]]) -> float:
    """Three double loops over the pairs of samples."""
    pooled = reference + current
    bandwidth = statistics.median_low(
        math.dist(a, b) ** 2 for i, a in enumerate(pooled) for b in pooled[:i]
    )

    def within(samples: list[list[float]]) -> float:
        kernels = [
            math.exp(-(math.dist(a, b) ** 2) / bandwidth)
            for i, a in enumerate(samples)
            for j, b in enumerate(samples)
            if i != j
        ]
        return statistics.fmean(kernels)

    across = [math.exp(-(math.dist(a, b) ** 2) / bandwidth) for a in reference for b in current]
    return within(reference) + within(current) - 2 * statistics.fmean(across)


@pytest.mark.parametrize(("n", "m", "width"), [(2, 2, 1), (9, 5, 1), (6, 8, 40)])
def test_the_statistic_is_that_of_a_literal_double_loop(n: int, m: int, width: int) -> None:
    pair = features(n, width, 1), features(m, width, 2, shift=0.7)
    ((statistic, _),) = mmd([pair], permutations=1, generator=generator())
    assert statistic == pytest.approx(literal_mmd(pair[0].tolist(), pair[1].tolist()), rel=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.6])
def test_the_p_value_is_the_observed_rank_among_itself_and_the_permuted_splits(
    shift: float,
) -> None:
    reference, current = features(5, 2, 3), features(7, 2, 4, shift)
    ((observed, p_value),) = mmd([(reference, current)], permutations=60, generator=generator(9))
    pooled = torch.cat([reference, current])
    (splits,) = random_splits(1, 60, (5, 7), generator(9))
    permuted = [
        literal_mmd(pooled[~split].tolist(), pooled[split].tolist()) for split in splits[1:]
    ]
    at_least = sum(value >= observed - 1e-12 for value in permuted)
    assert 0 < at_least < 60
    assert p_value == pytest.approx((1 + at_least) / 61)


def test_splits_keep_their_sizes_begin_as_observed_and_treat_all_samples_alike() -> None:
    splits = random_splits(2, 3000, (6, 4), generator())
    assert splits.shape == (2, 3001, 10)
    assert splits[:, 0].tolist() == [[False] * 6 + [True] * 4] * 2
    assert (splits.sum(dim=2) == 4).all()
    shares = splits[:, 1:].double().mean(dim=(0, 1))
    assert (shares - 0.4).abs().max() < 4 * math.sqrt(0.4 * 0.6 / 6000)
    assert not torch.equal(splits[0], splits[1])


def test_false_alarms_stay_at_their_level_when_nothing_drifts() -> None:
    draw = generator(5)
    pairs = [
        (torch.randn(10, 3, generator=draw), torch.randn(14, 3, generator=draw))
        for _ in range(1500)
    ]
    found = [p_value for _, p_value in mmd(pairs, permutations=99, generator=draw)]
    rate = statistics.fmean(p_value <= 0.05 for p_value in found)
    sigma = math.sqrt(0.05 * 0.95 / 1500)
    # With 99 permutations of continuous features the level is met exactly: far below is wrong, too.
    assert 0.05 - 4 * sigma <= rate <= 0.05 + 3 * sigma


def test_ties_between_splits_raise_no_false_alarms() -> None:
    """Two against two samples: a third of all splits are as good as the observed one."""
    pairs = [
        (features(2, 3, seed).float(), features(2, 3, seed + 500).float()) for seed in range(200)
    ]
    found = [p_value for _, p_value in mmd(pairs, permutations=60, generator=generator())]
    assert min(found) > 0.15


def test_classes_of_different_sizes_come_back_in_their_order() -> None:
    pairs = [(features(n, 4, n), features(m, 4, m)) for n, m in [(5, 9), (8, 6), (5, 9), (4, 4)]]
    before = torch.get_rng_state()
    found = mmd(pairs, permutations=5, generator=generator())
    assert found == mmd(pairs, permutations=5, generator=generator())
    assert torch.equal(torch.get_rng_state(), before), "draws come from the generator alone"
    together = [statistic for statistic, _ in found]
    alone = [mmd([pair], permutations=5, generator=generator())[0].statistic for pair in pairs]
    assert together == pytest.approx(alone, rel=1e-12)
    assert mmd([], generator=generator()) == []


def test_neither_place_nor_unit_of_the_features_matters() -> None:
    pair = features(12, 5, 1), features(9, 5, 2, shift=0.4)
    (expected,) = mmd([pair], generator=generator())
    for scale, offset in [(1e-6, 0.0), (1e6, 0.0), (1.0, 1e5)]:
        moved = tuple(side * scale + offset for side in pair)
        (found,) = mmd([(moved[0], moved[1])], generator=generator())
        assert found == pytest.approx(expected, rel=1e-6)


def test_single_precision_in_gives_the_same_as_double() -> None:
    pairs = [(features(20, 64, 1), features(30, 64, 2, shift)) for shift in (0.0, 0.2, 3.0)]
    expected = mmd(pairs, generator=generator())
    found = mmd([(a.float(), b.float()) for a, b in pairs], generator=generator())
    for single, double in zip(found, expected, strict=True):
        assert single.statistic == pytest.approx(double.statistic, abs=1e-6)
        assert single.p_value == double.p_value


CONSTANT = torch.full((6, 3), 0.1)
TWO_KINDS = torch.tensor([[0.0], [0.0], [0.0], [0.0], [0.0], [1.0]])


@pytest.mark.parametrize(
    ("reference", "current"),
    [
        (CONSTANT, CONSTANT),
        (CONSTANT.double() * 1e8, CONSTANT.double()[:2] * 1e8),
        (TWO_KINDS, TWO_KINDS.flip(0)),  # the median distance is 0
        (TWO_KINDS[:2], TWO_KINDS[:2]),
    ],
)
def test_what_is_the_same_on_both_sides_has_p_value_one(reference: Tensor, current: Tensor) -> None:
    ((statistic, p_value),) = mmd([(reference, current)], generator=generator())
    assert math.isfinite(statistic)
    assert p_value > 0.9
    ((statistic, p_value),) = mmd([(CONSTANT, CONSTANT + 1)], generator=generator())
    assert statistic > 1
    assert p_value < 0.05


@pytest.mark.parametrize(
    ("reference", "current", "words"),
    [
        (torch.zeros(4, 3), torch.zeros(4, 2), "one width"),
        (torch.zeros(4), torch.zeros(4), "one width"),
        (torch.zeros(1, 3), torch.zeros(4, 3), "two samples"),
        (torch.zeros(4, 3), torch.full((4, 3), torch.nan), "NaN"),
        (torch.zeros(4, 3), torch.full((4, 3), torch.inf), "NaN"),
        (torch.zeros(4, 3), torch.full((4, 3), 1e30), "huge"),
    ],
)
def test_features_that_cannot_be_compared_are_refused(
    reference: Tensor, current: Tensor, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        mmd([(reference, current)], generator=generator())
