"""Combinations of p-values: known answers, what they promise under dependence, power."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from driftwise.errors import UserError
from driftwise.stats.combine import (
    COMBINATIONS,
    bonferroni,
    cauchy,
    harmonic,
    worst_case_factor,
)

Floats = npt.NDArray[np.float64]

every_combination = pytest.mark.parametrize("name", sorted(COMBINATIONS))
NUM_DRAWS = 20_000
SIGMA = math.sqrt(0.05 * 0.95 / NUM_DRAWS)

p_lists = st.lists(st.floats(1e-6, 1), min_size=1, max_size=6)


def dependent(tests: int, correlation: float, shift: float = 0.0, seed: int = 0) -> Floats:
    """p-values (draws, tests) of equally correlated normal statistics, two-sided."""
    draw = np.random.default_rng(seed)
    shared, own = draw.normal(size=(NUM_DRAWS, 1)), draw.normal(size=(NUM_DRAWS, tests))
    z = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    return np.asarray(2 * stats.norm.sf(np.abs(z + shift)))


def rate(name: str, p_values: Floats, level: float = 0.05) -> float:
    return float((COMBINATIONS[name](p_values) <= level).mean())


# Known answers


@settings(max_examples=40)
@given(p_lists)
def test_combinations_are_their_formulas(values: list[float]) -> None:
    p_values = np.array(values)
    k = len(values)
    assert bonferroni(p_values) == pytest.approx(min(1, k * min(values)))
    mean = k / math.fsum(1 / p for p in values)
    assert harmonic(p_values) == pytest.approx(min(1, worst_case_factor(k) * mean))
    quantiles = [math.tan((0.5 - min(p, 0.99)) * math.pi) for p in values]
    expected = 0.5 - math.atan(math.fsum(quantiles) / k) / math.pi
    assert cauchy(p_values) == pytest.approx(expected, rel=1e-6)


@every_combination
@settings(max_examples=30)
@given(values=p_lists, place=st.integers(0, 5), share=st.floats(0, 1))
def test_stronger_evidence_never_raises_the_p_value(
    name: str, values: list[float], place: int, share: float
) -> None:
    stronger = values.copy()
    stronger[place % len(values)] *= share
    combine = COMBINATIONS[name]
    before, after = combine(np.array(values)), combine(np.array(stronger))
    assert 0 <= after <= before * (1 + 1e-9) <= 1 + 1e-9


@every_combination
def test_classes_are_combined_one_by_one(name: str) -> None:
    p_values = dependent(3, 0.5)[:4]
    samples = [COMBINATIONS[name](sample).item() for sample in p_values]
    assert COMBINATIONS[name](p_values).tolist() == pytest.approx(samples)
    single = np.array([[0.0], [0.003], [0.4], [0.98]])
    assert COMBINATIONS[name](single) == pytest.approx(single[:, 0]), "a single test keeps its own"
    assert COMBINATIONS[name](np.array([1e-6, 1.0])) < 1e-4, "a p-value of 1 does not decide alone"


# Promises under dependence


@pytest.mark.parametrize("name", ["bonferroni", "harmonic"])
@pytest.mark.parametrize(("correlation", "tests"), [(0.0, 5), (0.5, 2), (0.9, 5), (1.0, 2)])
def test_the_level_holds_under_every_correlation(name: str, correlation: float, tests: int) -> None:
    assert rate(name, dependent(tests, correlation)) <= 0.05 + 3 * SIGMA


@pytest.mark.parametrize(("correlation", "tests"), [(0.0, 2), (0.9, 3), (1.0, 5)])
def test_cauchy_is_near_its_level_however_strong_the_correlation(
    correlation: float, tests: int
) -> None:
    found = rate("cauchy", dependent(tests, correlation))
    assert 0.05 - 3 * SIGMA <= found <= 0.055 + 3 * SIGMA
    tail = rate("cauchy", dependent(tests, correlation), level=0.005)
    assert tail <= 0.005 + 3 * math.sqrt(0.005 / NUM_DRAWS)


@pytest.mark.parametrize("tests", [3, 5, 50])
def test_the_harmonic_factor_is_the_smallest_that_holds_in_the_worst_case(tests: int) -> None:
    """A proof in numbers: a function of one p-value whose mean over tests bounds the alarms.

    Let f(p) = (1/p - c) / (a - c), cut to lie in [0, tests]. Whenever a times the harmonic mean is
    at most 1, f's mean over the tests is at least 1; so alarms at level l are at most l times the
    integral of f. At the best c it is 1 for the factor a, and more than 1 for any smaller one.
    """

    def integral(c: float, a: float) -> float:
        full = 1 / (c + tests * (a - c))  # up to here f is cut to the number of tests
        slope = (math.log(1 / (c * full)) - 1 + c * full) / (a - c)
        return tests * full + slope

    def best(a: float) -> float:
        found = optimize.minimize_scalar(
            lambda c: integral(c, a), bounds=(1e-6, a - 1e-6), method="bounded"
        )
        return float(found.fun)

    factor = worst_case_factor(tests)
    assert best(factor) == pytest.approx(1, abs=1e-6)
    assert best(0.99 * factor) > 1.005
    assert factor < math.e * math.log(tests)


# Power


def test_what_promises_less_finds_more_when_all_tests_see_the_drift() -> None:
    p_values = dependent(4, 0.5, shift=2.5)
    powers = {name: rate(name, p_values) for name in COMBINATIONS}
    single = float((p_values[:, 0] <= 0.05).mean())
    assert powers["cauchy"] > powers["bonferroni"] > powers["harmonic"] > 0.5
    assert powers["cauchy"] > single + 0.1


@pytest.mark.parametrize("bad", [[], 0.5, [0.1, 1.5], [-0.1], [math.nan, 0.5]])
def test_what_are_no_p_values_is_refused(bad: float | list[float]) -> None:
    for combine in COMBINATIONS.values():
        with pytest.raises(UserError, match="expected p-values"):
            combine(np.array(bad))
