"""The ledger: nothing is lost, nothing is booked twice, the budget holds."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise.errors import UserError
from driftwise.metrics import LABEL_KINDS, PHASES, Ledger


def busy_ledger() -> Ledger:
    ledger = Ledger(label_budget=10)
    ledger.book_labels("stream", 100)
    ledger.book_labels("adaptation", ledger.allowance(12))
    with ledger.phase("train"):
        ledger.add_flops(7)
        ledger.add_step()
    with ledger.phase("evaluate"):
        ledger.add_flops(5)
    return ledger


def test_the_budget_refuses_and_books_what_it_refuses() -> None:
    ledger = Ledger(label_budget=10)
    assert ledger.allowance(7) == 7
    ledger.book_labels("adaptation", 7)
    assert ledger.allowance(7) == 3
    assert ledger.refused == 4
    ledger.book_labels("adaptation", 3)
    assert ledger.allowance(5) == 0
    assert ledger.refused == 9
    assert ledger.labels["adaptation"] == 10


def test_only_labels_that_were_given_use_up_the_budget_and_no_more_can_be_booked() -> None:
    ledger = Ledger(label_budget=10)
    assert ledger.allowance(8) == 8
    ledger.book_labels("adaptation", 2)  # the source had no more
    ledger.book_labels("stream", 1000)
    ledger.labels.clear()  # a copy
    assert ledger.allowance(8) == 8
    assert (ledger.refused, Ledger().allowance(10**9)) == (0, 10**9)
    with pytest.raises(ValueError, match="past the budget of 10"):
        ledger.book_labels("adaptation", 11)
    assert ledger.labels == {"stream": 1000, "monitoring": 0, "adaptation": 2}


def test_seconds_and_flops_go_to_the_running_phase_only() -> None:
    ledger = Ledger()
    with ledger.phase("detect"):
        time.sleep(0.01)
        ledger.add_flops(3)
        ledger.add_flops(4)
        assert ledger.seconds["detect"] >= 0.01  # the running phase shows up to now
    with ledger.phase("adapt"):
        ledger.add_flops(5)
    assert ledger.flops == {"train": 0, "detect": 7, "adapt": 5, "evaluate": 0}
    booked = ledger.seconds
    time.sleep(0.01)
    assert ledger.seconds == booked
    assert booked["detect"] >= 0.01
    assert booked["adapt"] > 0.0
    assert booked["train"] == booked["evaluate"] == 0.0


def test_phases_exclude_one_another_and_a_failed_one_is_recorded_and_closed() -> None:
    ledger = Ledger()
    with pytest.raises(KeyError), ledger.phase("train"):
        raise KeyError
    assert ledger.seconds["train"] > 0
    with ledger.phase("train"):
        with pytest.raises(RuntimeError, match="inside of phase 'train'"), ledger.phase("detect"):
            pass
        ledger.add_flops(1)  # still in the outer phase
    assert ledger.flops["train"] == 1
    assert ledger.seconds["detect"] == 0.0
    with pytest.raises(RuntimeError, match="belong to a phase"):
        ledger.add_flops(1)


def test_unknown_names_get_the_nearest_known_one() -> None:
    with pytest.raises(UserError, match="did you mean 'train'"), Ledger().phase("trian"):
        pass
    with pytest.raises(UserError, match="did you mean 'stream'"):
        Ledger().book_labels("steam", 1)


@pytest.mark.parametrize("count", [-1, 1.5, True])
def test_counts_are_whole_and_not_negative(count: Any) -> None:
    with pytest.raises(ValueError, match="whole number"):
        Ledger().book_labels("stream", count)
    with pytest.raises(ValueError, match="whole number"):
        Ledger().allowance(count)
    with pytest.raises(ValueError, match="whole number"):
        Ledger(label_budget=count)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("steps",), -1),
        (("refused",), 0.5),
        (("labels", "stream"), True),
        (("labels", "other"), 1),
        (("flops", "train"), "7"),
        (("seconds", "train"), float("nan")),
        (("seconds", "train"), -1.0),
        (("seconds",), None),
        (("extra",), 1),
    ],
)
def test_loading_is_strict_and_a_failed_load_changes_nothing(
    path: tuple[str, ...], value: object
) -> None:
    ledger = busy_ledger()
    before = ledger.state_dict()
    state = copy.deepcopy(before)
    state["labels"]["monitoring"] = 55
    place = state
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match="must"):
        ledger.load_state_dict(state)
    assert ledger.state_dict() == before


def test_a_missing_book_and_a_running_phase_stop_a_load() -> None:
    ledger = busy_ledger()
    state = ledger.state_dict()
    with ledger.phase("train"), pytest.raises(RuntimeError, match="inside of phase"):
        ledger.load_state_dict(state)
    del state["flops"]
    with pytest.raises(ValueError, match="exactly labels, refused, seconds, flops, steps"):
        ledger.load_state_dict(state)


# Any sequence of records

asked = st.tuples(st.just("ask"), st.integers(0, 30), st.integers(0, 30))
booked = st.tuples(st.sampled_from(LABEL_KINDS), st.integers(0, 30), st.just(0))
worked = st.tuples(st.sampled_from(PHASES), st.integers(0, 10**15), st.integers(0, 3))
histories = st.lists(asked | booked | worked, max_size=20)
budgets = st.none() | st.integers(0, 60)


def record(ledger: Ledger, history: list[tuple[str, int, int]]) -> None:
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


@settings(deadline=None, max_examples=40)
@given(histories, histories, budgets)
def test_saved_at_any_moment_the_budget_holds_and_everything_is_counted_once(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], budget: int | None
) -> None:
    whole, first, second = (Ledger(label_budget=budget) for _ in range(3))
    record(whole, before + after)
    record(first, before)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    record(second, after)
    assert (second.labels, second.flops) == (whole.labels, whole.flops)
    assert (second.steps, second.refused) == (whole.steps, whole.refused)
    assert budget is None or whole.labels["adaptation"] <= budget
    history = before + after
    for phase in PHASES:
        assert whole.flops[phase] == sum(flops for what, flops, _ in history if what == phase)
    assert whole.steps == sum(steps for what, _, steps in history if what in PHASES)
    assert all(seconds >= 0 for seconds in whole.seconds.values())
