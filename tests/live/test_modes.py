"""Modes, approval, corrections, and the way back to an earlier state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import CHANGING, Oracle, before_drift, engine_of, live_learner, state_of, unlabelled
from same_state import same

from driftwise.errors import UserError
from driftwise.live import LiveLearner


def weights(mine: LiveLearner) -> list[torch.Tensor]:
    return [each.clone() for each in engine_of(mine).learner.network.parameters()]


def test_ask_holds_drifted_classes_until_they_are_approved() -> None:
    oracle = Oracle()
    mine = before_drift(labels=oracle)
    mine.mode = "ask"
    seen = unlabelled(mine, alarms=1)[-1]
    assert seen.held == mine.held == seen.drifted != ()
    assert seen.adapted == seen.waiting == ()
    assert oracle.requests == []
    mine.approve([seen.held[0]])
    done = mine.observe(CHANGING.images[:0])
    assert {each.label for each in oracle.requests} == {seen.held[0]}
    assert {*done.adapted, *done.waiting} == {seen.held[0]}
    assert mine.held == seen.held[1:]
    mine.dismiss()
    assert mine.held == ()


def test_back_in_auto_all_that_is_held_is_adapted_to() -> None:
    mine = before_drift(labels=Oracle())
    mine.mode = "ask"
    held = unlabelled(mine, alarms=1)[-1].held
    mine.mode = "auto"
    assert {*held} <= {*(done := mine.observe(CHANGING.images[:0])).adapted, *done.waiting}


def test_in_shadow_the_network_and_the_buffer_stay_and_drift_is_found() -> None:
    oracle = Oracle()
    mine = before_drift(labels=oracle)
    mine.mode = "shadow"
    first, held = weights(mine), state_of(mine)["parts"]["learner"]
    probabilities = mine.predict_proba(CHANGING.images[:20])
    seen = unlabelled(mine)
    assert any(each.drifted for each in seen)
    assert mine.held
    assert not any(each.adapted or each.waiting for each in seen)
    assert mine.observe(CHANGING.images[:20], CHANGING.labels[:20]).loss is None
    assert oracle.requests == []
    assert same(weights(mine), first)
    assert same(state_of(mine)["parts"]["learner"], held)
    assert (mine.predict_proba(CHANGING.images[:20]) == probabilities).all()


def test_in_shadow_inputs_are_normalised_as_before() -> None:
    mine = live_learner(normalise=True)
    mine.observe(CHANGING.images[:40], CHANGING.labels[:40])
    mine.mode = "shadow"
    before = mine.predict_proba(CHANGING.images[:20])
    mine.observe(CHANGING.images[40:60] // 4)
    assert (mine.predict_proba(CHANGING.images[:20]) == before).all()


def test_a_mode_set_before_the_first_batch_holds_and_is_saved(tmp_path: Path) -> None:
    with live_learner(folder=tmp_path / "kept") as mine:
        mine.mode = "ask"
        mine.extra_state = {"position": 7, "texts": ["a", "b"]}
        mine.observe(CHANGING.images[:40], CHANGING.labels[:40])
        assert engine_of(mine).mode == "ask"
    with LiveLearner.load(tmp_path / "kept") as again:
        assert (again.mode, engine_of(again).mode) == ("ask", "ask")
        assert again.extra_state == {"position": 7, "texts": ["a", "b"]}


def test_what_is_held_and_approved_is_saved() -> None:
    mine = before_drift(labels=Oracle())
    mine.mode = "ask"
    held = unlabelled(mine, alarms=1)[-1].held
    mine.approve(held[:1])
    again = live_learner(detector="mmd", check_rows=20, labels=Oracle())
    again._load_state(mine.state_dict())
    assert again.held == held
    for each in (mine, again):
        each.observe(CHANGING.images[:10])
    assert same(state_of(mine), state_of(again))


@pytest.mark.parametrize("right", [3, None])
def test_a_corrected_label_takes_the_place_of_the_wrong_one(right: int | None) -> None:
    mine = live_learner(buffer_size=100)
    wrong = CHANGING.labels[:30].copy()
    ids = np.flatnonzero(wrong == 3)[:1]
    wrong[ids] = 1
    assert np.count_nonzero(wrong[: ids[0]] == 1) % 3 != 2, "it is monitored, not learned"
    mine.observe(CHANGING.images[:30], wrong)
    buffer = engine_of(mine).learner.buffer
    assert ids[0] in buffer.samples_of(1).ids
    mine.correct(ids, [right])
    mine.observe(CHANGING.images[:0])
    assert ids[0] not in buffer.samples_of(1).ids
    learned = engine_of(mine).window.learned.samples()
    assert learned.labels[learned.ids == ids[0]].tolist() == ([] if right is None else [3])
    assert (ids[0] in buffer.samples_of(3).ids) == (right is not None)


def test_rolled_back_it_predicts_as_before_and_gives_no_id_twice() -> None:
    mine = live_learner()
    mine.observe(CHANGING.images[:60], CHANGING.labels[:60])
    earlier, before = mine.state_dict(), mine.predict_proba(CHANGING.images[:50])
    mine.observe(CHANGING.images[60:120], np.roll(CHANGING.labels[60:120], 1))
    spent = mine.status["labels"]["stream"]
    assert (mine.predict_proba(CHANGING.images[:50]) != before).any()
    mine.roll_back(earlier)
    assert (mine.predict_proba(CHANGING.images[:50]) == before).all()
    assert mine.status["labels"]["stream"] == spent
    assert mine.observe(CHANGING.images[120:130]).ids.tolist() == list(range(120, 130))


def test_after_a_roll_back_the_learner_goes_on_as_from_the_earlier_state() -> None:
    def after(*steps: Any) -> list[torch.Tensor]:
        mine = live_learner()
        for step in steps:
            step(mine)
        return weights(mine)

    states: list[dict[str, Any]] = []

    def observe(start: int, stop: int) -> Any:
        return lambda mine: mine.observe(CHANGING.images[start:stop], CHANGING.labels[start:stop])

    straight = after(observe(0, 60), observe(90, 120))
    around = after(
        observe(0, 60),
        lambda mine: states.append(mine.state_dict()),
        observe(60, 90),
        lambda mine: mine.roll_back(states[0]),
        observe(90, 120),
    )
    assert same(straight, around)


def test_refusals() -> None:
    mine = live_learner()
    with pytest.raises(UserError, match="unknown mode 'sure'"):
        mine.mode = "sure"  # type: ignore[assignment]
    with pytest.raises(UserError, match="nothing had been learned"):
        mine.roll_back(mine.state_dict())
    with pytest.raises(UserError, match="has not come yet"):
        mine.correct([5], [1])


@pytest.mark.parametrize("labels", [None, lambda _: None])
def test_a_drift_is_reported_with_samples_from_before_and_after(labels: Any) -> None:
    mine = before_drift(labels=labels)
    seen = unlabelled(mine, alarms=1)[-1]
    assert set(seen.examples) == set(seen.drifted)
    for before, after in seen.examples.values():
        assert 0 < len(before) <= 8
        assert 0 < len(after) <= 8
        assert before.shape[1:] == after.shape[1:] == (8, 8, 1)


def test_confidence_is_the_probability_of_the_prediction() -> None:
    mine = live_learner(average_steps=0)
    mine.observe(CHANGING.images[:40], CHANGING.labels[:40])
    expected = mine.predict_proba(CHANGING.images[40:50]).max(axis=1)
    assert np.allclose(mine.observe(CHANGING.images[40:50]).confidence, expected, atol=1e-6)
