"""Alpha-spending: what checks may spend adds up to the level of the stream."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from driftwise.errors import UserError
from driftwise.stats.alpha_spending import inverse_square

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
    with pytest.raises(UserError, match="counted from 1"):
        inverse_square(0.05, 0)
    with pytest.raises(UserError, match="between 0 and 1"):
        inverse_square(1.5, 1)
