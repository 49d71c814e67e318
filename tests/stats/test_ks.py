"""The Kolmogorov-Smirnov test against scipy, its definition and an enumeration of all orders."""

from __future__ import annotations

import warnings
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError
from driftwise.stats import ks
from driftwise.stats.ks import (
    Evidence,
    asymptotic_kolmogorov_smirnov,
    kolmogorov_smirnov,
    smallest_asymptotic_p_value,
    smallest_p_value,
)


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def samples_of(values: st.SearchStrategy[float], max_size: int) -> st.SearchStrategy[Tensor]:
    return st.lists(values, min_size=1, max_size=max_size).map(tensor)


samples = (
    samples_of(st.integers(0, 1).map(float), 25)  # hardly anything but ties
    | samples_of(st.integers(-4, 4).map(float) | st.floats(-4, 4), 15)
    | samples_of(st.floats(allow_nan=False), 4)  # infinity included
)


def largest_gap(first: Tensor, second: Tensor) -> float:
    """The statistic by its definition, one threshold after the other."""
    return max(
        abs(float((first <= t).double().mean()) - float((second <= t).double().mean()))
        for t in torch.cat([first, second])
    )


def scipys_exact(first: Tensor, second: Tensor) -> float | None:
    """Scipy's p-value, None where it gave up on the exact one."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        p_value = float(stats.ks_2samp(first.numpy(), second.numpy()).pvalue)
    return None if warned else p_value


def normal(samples: int, shift: float, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(samples, generator=draw, dtype=torch.float64) + shift


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(samples, samples), max_size=4))
def test_ks_is_the_largest_gap_with_scipys_p_value_pair_by_pair(
    pairs: list[tuple[Tensor, Tensor]],
) -> None:
    evidence = kolmogorov_smirnov(pairs)
    assert len(evidence) == len(pairs)
    for (statistic, p_value), (first, second) in zip(evidence, pairs, strict=True):
        assert statistic == pytest.approx(largest_gap(first, second), abs=1e-12)
        expected = scipys_exact(first, second)
        assert p_value == pytest.approx(1 if expected is None else expected, rel=1e-9)
        assert type(statistic) is type(p_value) is float
        assert p_value <= 1
        assert kolmogorov_smirnov([(first, first)]) == [Evidence(0.0, 1.0)]


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (3, 3), (4, 2), (4, 5)])
def test_the_p_value_is_the_share_of_orders_with_as_large_a_gap(n: int, m: int) -> None:
    places = torch.arange(n + m).double()
    orders = []
    for chosen in combinations(range(n + m), n):
        is_first = torch.zeros(n + m, dtype=torch.bool)
        is_first[list(chosen)] = True
        orders.append((places[is_first], places[~is_first]))
    gaps = torch.tensor([largest_gap(*order) for order in orders])
    for (_, p_value), gap in zip(kolmogorov_smirnov(orders), gaps, strict=True):
        assert p_value == pytest.approx(float((gaps >= gap - 1e-9).double().mean()))


SIZES = [(50, 100), (100, 50), (48, 101), (20, 20), (7, 3000), (99, 500), (211, 220), (500, 500)]
SHIFTS = [0.0, 0.3, 1.0, 3.0]


def test_classes_of_all_sizes_and_shifts_agree_with_scipy_in_one_call() -> None:
    pairs = [
        (normal(n, 0, seed), normal(m, shift, seed + 100))
        for seed, (n, m) in enumerate(SIZES)
        for shift in SHIFTS
    ]
    found = [p_value for _, p_value in kolmogorov_smirnov(pairs)]
    expected = [scipys_exact(*pair) for pair in pairs]
    assert found == pytest.approx(expected, rel=1e-9)
    assert min(found) < 1e-150  # as exact there as anywhere


@pytest.mark.parametrize(("n", "m"), [(600, 601), (10_000, 10_000), (10_001, 3)])
def test_large_samples_have_scipys_p_value_exact_up_to_ten_thousand_samples(n: int, m: int) -> None:
    pair = normal(n, 0, 1), normal(m, 0.05, 2)
    ((statistic, p_value),) = kolmogorov_smirnov([pair])
    expected = stats.ks_2samp(pair[0].numpy(), pair[1].numpy())
    assert (statistic, p_value) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (12, 7)])
def test_no_overlap_has_the_smallest_p_value(n: int, m: int) -> None:
    ((_, p_value),) = kolmogorov_smirnov([(normal(n, 0, 0), normal(m, 100, 1))])
    assert p_value == pytest.approx(smallest_p_value(n, m), rel=1e-9)


def test_samples_of_one_size_that_hardly_differ_have_p_value_one_without_a_warning() -> None:
    for samples in range(2, 40):  # rounding would push some of the exact p-values past one
        first = torch.arange(samples).double()
        ((statistic, p_value),) = kolmogorov_smirnov([(first, first + 0.5)])
        assert statistic == pytest.approx(1 / samples)
        assert p_value == pytest.approx(1, abs=1e-12)
        assert p_value <= 1


@pytest.mark.parametrize("samples", [4, 20_000])
def test_scores_that_cannot_be_ordered_are_refused(samples: int) -> None:
    scores = torch.arange(samples).double()
    with pytest.raises(UserError, match="NaN"):
        kolmogorov_smirnov([(scores, scores.clone().fill_(torch.nan))])
    with pytest.raises(UserError, match="empty"):
        kolmogorov_smirnov([(scores[:0], scores)])


def test_an_answer_does_not_depend_on_what_else_is_asked() -> None:
    sizes = [(18, 36), (18, 37), (17, 36), (50, 100), (50, 100), (33, 100)]
    draw = rng.fork(0, "companions")
    pairs = [
        (torch.randn(n, generator=draw), torch.randn(m, generator=draw) + 0.4 * (place % 3))
        for place, (n, m) in enumerate(sizes)
    ]
    ks._answered.clear()
    together = kolmogorov_smirnov(pairs)
    alone = []
    for pair in pairs:
        ks._answered.clear()
        alone += kolmogorov_smirnov([pair])
    assert together == alone
    whole = [(a.mul(4).int(), b.mul(4).int()) for a, b in pairs]
    assert kolmogorov_smirnov(whole) == kolmogorov_smirnov(
        [(a.float(), b.double()) for a, b in whole]
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(samples, samples), max_size=4))
def test_the_asymptotic_p_value_is_scipys(pairs: list[tuple[Tensor, Tensor]]) -> None:
    found = asymptotic_kolmogorov_smirnov(pairs)
    for (first, second), evidence in zip(pairs, found, strict=True):
        if len(first) == len(second) == 1:  # scipy has no number for it
            assert evidence.p_value == 1
            continue
        wanted = stats.ks_2samp(first.numpy(), second.numpy(), method="asymp")
        assert evidence.statistic == pytest.approx(wanted.statistic, abs=1e-12)
        assert evidence.p_value == pytest.approx(wanted.pvalue, abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(1, 1000), (6, 100), (125, 1000), (12_000, 700)])
def test_large_and_lopsided_samples_have_scipys_asymptotic_p_value(n: int, m: int) -> None:
    first, second = normal(n, 0.3, 0), normal(m, 0, 1)
    wanted = stats.ks_2samp(first.numpy(), second.numpy(), method="asymp")
    (found,) = asymptotic_kolmogorov_smirnov([(first, second)])
    assert found == pytest.approx((wanted.statistic, wanted.pvalue), abs=1e-12)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 2), (3, 4), (1, 100)])
def test_no_overlap_has_the_smallest_asymptotic_p_value(n: int, m: int) -> None:
    apart = (torch.zeros(n), torch.ones(m))
    (found,) = asymptotic_kolmogorov_smirnov([apart])
    assert found.p_value == smallest_asymptotic_p_value(n, m)
