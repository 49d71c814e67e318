"""The ledger: nothing is lost, nothing is booked twice, the budget holds."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest

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


def test_a_new_ledger_holds_a_zero_for_every_kind_and_phase() -> None:
    ledger = Ledger()
    assert ledger.labels == dict.fromkeys(LABEL_KINDS, 0)
    assert ledger.seconds == dict.fromkeys(PHASES, 0.0)
    assert ledger.flops == dict.fromkeys(PHASES, 0)
    assert ledger.steps == ledger.refused == 0


def test_labels_are_booked_by_kind() -> None:
    ledger = Ledger()
    ledger.book_labels("stream", 3)
    ledger.book_labels("monitoring", 2)
    ledger.book_labels("stream", 4)
    assert ledger.labels == {"stream": 7, "monitoring": 2, "adaptation": 0}


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


def test_only_labels_that_were_given_use_up_the_budget() -> None:
    ledger = Ledger(label_budget=10)
    assert ledger.allowance(8) == 8
    ledger.book_labels("adaptation", 2)  # the source had no more
    ledger.book_labels("stream", 1000)
    assert ledger.allowance(8) == 8
    assert ledger.refused == 0


def test_booking_past_the_budget_is_an_error_and_books_nothing() -> None:
    ledger = Ledger(label_budget=10)
    with pytest.raises(ValueError, match="past the budget of 10"):
        ledger.book_labels("adaptation", 11)
    assert ledger.labels["adaptation"] == 0


def test_without_a_budget_everything_is_granted() -> None:
    ledger = Ledger()
    assert ledger.allowance(10**9) == 10**9
    assert ledger.refused == 0


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


def test_a_phase_that_fails_is_booked_and_closed() -> None:
    ledger = Ledger()
    with pytest.raises(KeyError), ledger.phase("train"):
        raise KeyError
    assert ledger.seconds["train"] > 0
    with ledger.phase("train"):
        ledger.add_flops(1)
    assert ledger.flops["train"] == 1


def test_phases_exclude_one_another() -> None:
    ledger = Ledger()
    with ledger.phase("train"):
        with pytest.raises(RuntimeError, match="inside of phase 'train'"), ledger.phase("train"):
            pass
        with pytest.raises(RuntimeError, match="inside of phase 'train'"), ledger.phase("detect"):
            pass
        ledger.add_flops(1)  # still in the outer phase
    assert ledger.flops["train"] == 1
    assert ledger.seconds["detect"] == 0.0


def test_flops_outside_of_a_phase_are_refused() -> None:
    with pytest.raises(RuntimeError, match="belong to a phase"):
        Ledger().add_flops(1)


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


def test_what_is_read_cannot_change_the_books() -> None:
    ledger = busy_ledger()
    for book in (ledger.labels, ledger.seconds, ledger.flops, ledger.state_dict()["labels"]):
        book.clear()
    assert ledger.labels["stream"] == 100
    assert ledger.flops["train"] == 7


def test_saving_and_loading_through_json_goes_on_as_if_nothing_had_happened() -> None:
    saved = busy_ledger()
    state = json.loads(json.dumps(saved.state_dict(), allow_nan=False))
    loaded = Ledger(label_budget=10)
    loaded.load_state_dict(state)
    assert loaded.state_dict() == saved.state_dict() == state
    for ledger in (saved, loaded):
        assert ledger.allowance(3) == 0
        ledger.add_step()
    assert (loaded.refused, loaded.steps) == (saved.refused, saved.steps) == (5, 2)


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
