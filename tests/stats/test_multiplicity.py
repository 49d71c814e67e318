"""Corrections against their stepwise definitions, written out slowly."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise.errors import UserError
from driftwise.stats.multiplicity import CORRECTIONS, inverse_square

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
def test_each_correction_flags_what_its_steps_flag_and_what_a_stricter_one_does(
    p_values: list[float],
) -> None:
    assert flagged("holm", p_values) == holm_stepwise(p_values, LEVEL)
    assert flagged("benjamini-hochberg", p_values) == benjamini_hochberg_stepwise(p_values, LEVEL)
    assert flagged("bonferroni", p_values) == [p <= LEVEL / len(p_values) for p in p_values]
    assert flagged("none", p_values) == [p <= LEVEL for p in p_values]
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


@settings(deadline=None, max_examples=30)
@given(st.floats(0.001, 0.5), st.integers(1, 3000))
def test_a_stream_without_end_spends_all_of_its_level_and_never_more(
    level: float, num: int
) -> None:
    spent = [inverse_square(level, check) for check in range(1, num + 1)]
    assert spent[0] == pytest.approx(level * 6 / math.pi**2)
    assert all(later < earlier for earlier, later in pairwise(spent))
    # What is left after k checks is the tail of the series: between its integrals.
    left = level - math.fsum(spent)
    tail = 6 * level / math.pi**2
    assert tail / (num + 1) < left < tail / num


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_false_alarms_of_fifty_checks_together_stay_at_the_level(correlation: float) -> None:
    """Streams without drift; checks that share their reference are alike."""
    draw = torch.Generator().manual_seed(0)
    streams = 20_000
    shared, own = torch.randn(streams, 1, generator=draw), torch.randn(streams, 50, generator=draw)
    z = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    p_values = torch.special.erfc(z.double().abs() / math.sqrt(2))
    thresholds = torch.tensor([inverse_square(0.05, check) for check in range(1, 51)])
    rate = (p_values <= thresholds).any(dim=1).double().mean().item()
    sigma = math.sqrt(0.05 * 0.95 / streams)
    assert rate <= 0.05 + 3 * sigma
    if correlation == 0:
        assert rate > 0.04  # the promise is kept without waste
    uncorrected = (p_values <= 0.05).any(dim=1).double().mean().item()
    assert uncorrected > 0.15


def test_impossible_levels_and_checks_are_refused() -> None:
    for level, check in ((0.05, 0), (1.5, 1)):
        with pytest.raises(UserError, match="level between 0 and 1, and checks counted from 1"):
            inverse_square(level, check)
