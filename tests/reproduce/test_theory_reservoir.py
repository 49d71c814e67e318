"""Replacement chances against real memories, and against the definition written out."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy import stats

from driftwise.reproduce.reservoir_replacement import (
    chance_all_replaced,
    chance_replaced,
    paper_chance_all_replaced,
    paper_chance_replaced,
    simulate,
)

FALSE_FAILURE = 1e-6
"""Had the seeds been drawn, a right memory would fail a test with at most this probability."""


def exact_law(rows: int, *, stale: int, seen: int) -> list[Fraction]:
    """Chances that 0, 1, ... of the stale slots are still unhit, row by row."""
    left = [Fraction(0)] * stale + [Fraction(1)]
    for j in range(seen + 1, seen + rows + 1):
        left = [
            left[s] * (1 - Fraction(s, j))
            + (left[s + 1] * Fraction(s + 1, j) if s < stale else Fraction(0))
            for s in range(stale + 1)
        ]
    return left


@pytest.mark.parametrize(("rows", "stale", "seen"), [(1, 1, 5), (4, 3, 6), (9, 4, 4), (2, 3, 8)])
def test_the_closed_forms_are_the_law_written_out(rows: int, stale: int, seen: int) -> None:
    law = exact_law(rows, stale=stale, seen=seen)
    assert sum(law) == 1
    kept = sum(s * chance for s, chance in enumerate(law)) / stale
    assert chance_replaced(rows, seen=seen, capacity=4) == pytest.approx(float(1 - kept))
    everything = chance_all_replaced(rows, stale=stale, seen=seen, capacity=4)
    assert everything == pytest.approx(float(law[0]))
    assert law[0] == Fraction(comb(rows, stale), comb(seen + rows, stale))


def test_a_real_reservoir_replaces_stale_rows_with_the_exact_chance() -> None:
    before, after = np.arange(60) % 3, np.full(90, 3)
    rows, repeats = [5, 20, 90], 1500
    found = simulate(
        before,
        after,
        drifted=0,
        rows=rows,
        capacity=9,
        policy="reservoir",
        repeats=repeats,
        seed=0,
    )
    exact = chance_replaced(rows, seen=60, capacity=9)
    # Slots of one memory are not independent: the spread over repeats says how far chance reaches.
    reach = stats.norm.isf(FALSE_FAILURE / 6) * found.replaced_error
    assert (np.abs(found.replaced - exact) < reach).all(), (found.replaced, exact, reach)
    assert reach.max() < 0.05
    paper = paper_chance_replaced(rows, capacity=9)
    assert (np.abs(found.replaced - paper) > 4 * reach).all()

    every = np.mean(
        [chance_all_replaced(rows, stale=s, seen=60, capacity=9) for s in found.stale], axis=0
    )
    low, high = stats.binom.interval(1 - FALSE_FAILURE / 3, len(found.stale), every)
    hits = found.all_replaced * len(found.stale)
    assert ((low <= hits) & (hits <= high)).all(), (hits, low, high)


def test_a_memory_that_is_not_full_replaces_nothing_until_it_is() -> None:
    assert chance_replaced([0, 5, 10], seen=5, capacity=10).tolist() == [0, 0, 1 / 3]
    found = simulate(
        np.zeros(5, dtype=np.int64),
        np.ones(5, dtype=np.int64),
        drifted=0,
        rows=[5],
        capacity=10,
        policy="reservoir",
        repeats=2,
        seed=0,
    )
    assert found.replaced.tolist() == [0]


def test_a_balanced_memory_replaces_no_more_than_it_must_to_stay_level() -> None:
    """Two classes of ten rows each make room for a third: about a third of each leaves, then the
    new class makes room for itself."""
    before, after = np.arange(40) % 2, np.full(4000, 2)
    found = simulate(
        before,
        after,
        drifted=0,
        rows=[200, 4000],
        capacity=20,
        policy="balanced",
        repeats=40,
        seed=0,
    )
    assert found.replaced[-1] == pytest.approx(1 / 3, abs=0.06)
    assert found.all_replaced.tolist() == [0, 0]
    assert chance_replaced([4000], seen=40, capacity=20) > 0.98


def test_the_two_formulas_of_the_paper_disagree_on_a_single_row() -> None:
    assert paper_chance_all_replaced([5], stale=1, capacity=10) == pytest.approx(5 / 10)
    assert paper_chance_replaced([5], capacity=10) == pytest.approx(1 - 0.9**5)


def test_the_papers_second_formula_ends_at_the_capacity() -> None:
    chances = paper_chance_all_replaced([4, 10, 11], stale=5, capacity=10)
    assert chances[:2].tolist() == pytest.approx([0, 1])
    assert np.isnan(chances[2])


def test_with_more_classes_one_class_is_replaced_more_easily_and_all_of_them_never() -> None:
    """Theorem 2's conclusion holds for all drifted classes together, since rows seen grow with
    them; for one class, of capacity / classes slots, both formulas say the opposite."""
    capacity, per_class = 60, 100
    one, paper_one, together = [], [], []
    for classes in (2, 3, 5, 10, 20, 30):
        seen, stale = classes * per_class, capacity // classes
        one.append(chance_all_replaced(per_class, stale=stale, seen=seen, capacity=capacity))
        paper_one.append(paper_chance_all_replaced(50, stale=stale, capacity=capacity))
        together.append(
            chance_all_replaced(per_class, stale=capacity, seen=seen, capacity=capacity)
        )
    assert (np.diff(one) > 0).all()
    assert (np.diff(paper_one) > 0).all()
    assert (np.diff(together) < 0).all()
    assert together[0] < 1e-30
