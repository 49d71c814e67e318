"""Corrections against their stepwise definitions, written out slowly."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftwise.stats.multiplicity import CORRECTIONS

LEVEL = 0.05

p_lists = st.lists(
    # some on the very edges of the steps, some repeated
    st.floats(0, 1) | st.floats(0, 0.06) | st.sampled_from([LEVEL / k for k in range(1, 7)]),
    max_size=6,
)


def flagged(name: str, p_values: list[float], level: float = LEVEL) -> list[bool]:
    threshold = CORRECTIONS[name](p_values, level)
    return [p_value <= threshold for p_value in p_values]


def holm_stepwise(p_values: list[float], level: float) -> list[bool]:
    """Test the smallest at level / m, the next at level / (m - 1), ...; stop at the first miss."""
    verdicts = [False] * len(p_values)
    open_tests = list(range(len(p_values)))
    while open_tests:
        smallest = min(open_tests, key=lambda i: p_values[i])
        if p_values[smallest] > level / len(open_tests):
            break
        verdicts[smallest] = True
        open_tests.remove(smallest)
    return verdicts


def benjamini_hochberg_stepwise(p_values: list[float], level: float) -> list[bool]:
    """Find the largest rank k with p_(k) <= k level / m; flag the k smallest."""
    m = len(p_values)
    by_size = sorted(range(m), key=lambda i: p_values[i])
    for k in range(m, 0, -1):
        if p_values[by_size[k - 1]] <= k * level / m:
            return [i in by_size[:k] for i in range(m)]
    return [False] * m


@given(p_lists)
def test_holm_flags_what_its_steps_flag(p_values: list[float]) -> None:
    assert flagged("holm", p_values) == holm_stepwise(p_values, LEVEL)


@given(p_lists)
def test_benjamini_hochberg_flags_what_its_steps_flag(p_values: list[float]) -> None:
    assert flagged("benjamini-hochberg", p_values) == benjamini_hochberg_stepwise(p_values, LEVEL)


@given(p_lists)
def test_bonferroni_shares_the_level_and_none_gives_it_to_every_test(p_values: list[float]) -> None:
    assert flagged("bonferroni", p_values) == [p <= LEVEL / len(p_values) for p in p_values]
    assert flagged("none", p_values) == [p <= LEVEL for p in p_values]


@given(p_lists)
def test_each_correction_flags_at_least_what_the_stricter_one_does(p_values: list[float]) -> None:
    verdicts = [
        flagged(name, p_values) for name in ("bonferroni", "holm", "benjamini-hochberg", "none")
    ]
    for stricter, looser in pairwise(verdicts):
        assert all(b or not a for a, b in zip(stricter, looser, strict=True))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", [True, True, True, True, False]),
        ("bonferroni", [True, False, False, False, False]),  # 0.05 / 5 = 0.010
        ("holm", [True, True, False, False, False]),  # then 0.0125, and 0.020 > 0.0167
        ("benjamini-hochberg", [True, True, True, True, False]),  # 0.040 <= 4/5 of 0.05
    ],
)
def test_a_hand_worked_family(name: str, expected: list[bool]) -> None:
    assert flagged(name, [0.004, 0.011, 0.020, 0.040, 0.300]) == expected


@pytest.mark.parametrize("name", sorted(CORRECTIONS))
def test_a_single_test_gets_the_whole_level_and_a_check_of_nothing_is_no_error(name: str) -> None:
    assert CORRECTIONS[name]([0.5], LEVEL) == LEVEL
    assert 0 < CORRECTIONS[name]([], LEVEL) <= LEVEL
