"""The ledger under any sequence of bookings."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given
from hypothesis import strategies as st

from driftwise.metrics import LABEL_KINDS, PHASES, Ledger

asked = st.tuples(st.just("ask"), st.integers(0, 30), st.integers(0, 30))
booked = st.tuples(st.sampled_from(LABEL_KINDS), st.integers(0, 30), st.just(0))
worked = st.tuples(st.sampled_from(PHASES), st.integers(0, 10**15), st.integers(0, 3))
histories = st.lists(asked | booked | worked, max_size=20)
budgets = st.none() | st.integers(0, 60)


def play(ledger: Ledger, history: list[tuple[str, int, int]]) -> None:
    """An ask books what was granted and was there; whatever the budget forbids is not booked."""
    for what, first, second in history:
        if what == "ask":
            ledger.book_labels("adaptation", min(ledger.allowance(first), second))
        elif what in LABEL_KINDS:
            with contextlib.suppress(Exception):
                ledger.book_labels(what, first)
        else:
            with ledger.phase(what):
                ledger.add_flops(first)
                for _ in range(second):
                    ledger.add_step()


@given(histories, budgets)
def test_the_budget_holds_and_every_step_and_flop_is_counted_once(
    history: list[tuple[str, int, int]], budget: int | None
) -> None:
    ledger = Ledger(label_budget=budget)
    play(ledger, history)
    assert budget is None or ledger.labels["adaptation"] <= budget
    for phase in PHASES:
        assert ledger.flops[phase] == sum(flops for what, flops, _ in history if what == phase)
    assert ledger.steps == sum(steps for what, _, steps in history if what in PHASES)
    assert all(seconds >= 0 for seconds in ledger.seconds.values())


@given(histories, histories, budgets)
def test_a_ledger_saved_at_any_moment_goes_on_as_if_it_had_not_been(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], budget: int | None
) -> None:
    whole, first, second = (Ledger(label_budget=budget) for _ in range(3))
    play(whole, before + after)
    play(first, before)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    play(second, after)
    assert (second.labels, second.flops) == (whole.labels, whole.flops)
    assert (second.steps, second.refused) == (whole.steps, whole.refused)
