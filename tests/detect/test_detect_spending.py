"""Alpha-spending: what checks may spend adds up to the level of the stream."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect.detect.spending import even, inverse_square
from recollect.errors import UserError

levels = st.floats(1e-6, 0.5)


@given(levels, st.integers(1, 3000))
def test_a_stream_without_end_never_spends_more_than_its_level(level: float, checks: int) -> None:
    spent = [inverse_square(level, check) for check in range(1, checks + 1)]
    assert math.fsum(spent) < level
    assert all(later < earlier for earlier, later in pairwise(spent))


def test_a_stream_without_end_spends_all_of_its_level_in_time() -> None:
    spent = math.fsum(inverse_square(0.05, check) for check in range(1, 10_001))
    assert spent == pytest.approx(0.05, rel=1e-4)


def test_the_inverse_squares_are_the_hand_worked_ones() -> None:
    first, second = 0.05 * 6 / math.pi**2, 0.05 * 6 / math.pi**2 / 4
    assert [inverse_square(0.05, check) for check in (1, 2)] == pytest.approx([first, second])


@given(levels, st.integers(1, 500))
def test_a_known_number_of_checks_spends_the_whole_level_evenly(level: float, checks: int) -> None:
    spent = [even(level, check, checks=checks) for check in range(1, checks + 1)]
    assert len(set(spent)) == 1
    assert math.fsum(spent) == pytest.approx(level)
    assert math.fsum(spent) <= level * (1 + 1e-12)


@pytest.mark.parametrize("spend", [inverse_square, partial(even, checks=50)])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_false_alarms_of_fifty_checks_together_stay_at_the_level(
    spend: partial[float], correlation: float
) -> None:
    """Streams without drift; checks that share their reference are alike."""
    draw = torch.Generator().manual_seed(0)
    streams = 20_000
    shared, own = torch.randn(streams, 1, generator=draw), torch.randn(streams, 50, generator=draw)
    z = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    p_values = torch.special.erfc(z.double().abs() / math.sqrt(2))
    thresholds = torch.tensor([spend(0.05, check) for check in range(1, 51)])
    rate = (p_values <= thresholds).any(dim=1).double().mean().item()
    sigma = math.sqrt(0.05 * 0.95 / streams)
    assert rate <= 0.05 + 3 * sigma
    if correlation == 0:
        assert rate > 0.04  # the promise is kept without waste
    uncorrected = (p_values <= 0.05).any(dim=1).double().mean().item()
    assert uncorrected > 0.15


def test_checks_past_the_known_number_and_impossible_ones_are_refused() -> None:
    with pytest.raises(UserError, match="shared among 10 checks; this is check 11"):
        even(0.05, 11, checks=10)
    for spend in (inverse_square, partial(even, checks=5)):
        with pytest.raises(UserError, match="counted from 1"):
            spend(0.05, 0)
        with pytest.raises(UserError, match="between 0 and 1"):
            spend(1.5, 1)
