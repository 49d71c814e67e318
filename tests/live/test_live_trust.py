"""What a live learner says and keeps can be relied on: burst weights, silence, counts, old folders."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_tools import digits, live_learner, play
from run_tools import complaint, events_of
from test_live_drift import engine_of
from test_live_input import vectors
from test_live_labels import Oracle, learned_then_silent

import driftwise
from driftwise.live.engine import LiveEngine
from driftwise.live.label_requests import Request
from driftwise.live.settings import to_json
from driftwise.live.window import Window
from driftwise.loop import DriftHandler
from driftwise.protocols import AdaptationContext

CHANGING = digits(0, classes=5, turn=450)


def asking_keeper(ask: Any, **settings: Any) -> driftwise.LiveLearner:
    return live_learner(detector="combined", check_rows=20, labels=ask, **settings)


def test_weights_that_burst_are_neither_snapshots_nor_saved(tmp_path: Path) -> None:
    x, y = vectors(200)
    mine = live_learner("mlp", folder=tmp_path / "kept", lr=0.1, outlier_factor=None)
    mine.observe(x, y)
    before = mine.predict_proba(x)
    spoilt = x.copy()
    spoilt[5] = 9e18
    assert any("went back" in note for note in mine.observe(spoilt, y).notes)
    assert np.array_equal(mine.predict_proba(x), before)
    mine.close()
    with driftwise.LiveLearner.load(tmp_path / "kept") as again:
        assert np.array_equal(again.predict_proba(x), before)


def test_a_failure_after_the_time_limit_costs_no_samples() -> None:
    """As one in time does: somebody else may know the labels."""
    oracle = Oracle(CHANGING)
    gate = threading.Event()

    def fails_late(request: Request) -> Any:
        oracle.requests.append(request)
        gate.wait(10)
        raise OSError("the labelling service is down")

    mine = asking_keeper(fails_late, label_seconds=0.05)
    learned_then_silent(mine, CHANGING, until=1)
    (asked,) = {len(request) for request in mine.open_requests} or {0}
    gate.set()
    deadline = time.monotonic() + 10
    while not mine._inbox._answers and time.monotonic() < deadline:
        time.sleep(0.01)
    first = oracle.requests[0].ids
    assert asked == len(first)
    mine.answer(first, CHANGING.labels[first])
    seen = mine.observe(CHANGING.images[:0])
    assert not any("no longer kept" in note for note in seen.notes)
    assert any("the labelling service is down" in note for note in seen.notes)
    assert f"driftwise_labels_late_total {len(first)}\n" in mine.counters


@pytest.mark.parametrize("what", ["open_requests", "save", "rehearse", "close", "observe"])
def test_a_label_callback_that_wants_more_than_to_answer_is_told_so_at_once(
    what: str, tmp_path: Path
) -> None:
    told: list[str] = []

    def ask(request: Request) -> Any:
        def it() -> object:
            if what == "observe":
                return mine.observe(CHANGING.images[:1])
            found = getattr(mine, what)
            return found() if callable(found) else found

        told.append(complaint(it))
        return CHANGING.labels[request.ids]

    began = time.monotonic()
    with asking_keeper(ask, folder=tmp_path / "kept") as mine:
        learned_then_silent(mine, CHANGING, until=1)
    assert time.monotonic() - began < 30, "the time limit"
    assert told
    assert all("return the labels first" in each for each in told)


def test_what_a_callback_has_saved_and_what_is_logged_agree(tmp_path: Path) -> None:
    """Saved in the middle of telling a batch, the rest of what is told would be cut off."""
    folder = tmp_path / "kept"
    mine = live_learner(folder=folder)
    mine.on("drifted", lambda _: mine.save())
    for _, images, labels in CHANGING.batches():
        if mine.observe(images, labels).adapted:
            break
    mine._release()  # as if killed: nothing more is saved
    with driftwise.LiveLearner.load(folder) as again:
        adapted = sum(len(e["classes"]) for e in events_of(folder) if e["event"] == "realigned")
        assert f"driftwise_adaptations_total {adapted}\n" in again.counters
        assert adapted > 0


def test_what_follows_a_repair_waits_for_checks_that_can_judge_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where samples with labels come, those without do not use it up."""
    mine = asking_keeper(Oracle(CHANGING), adaptation="amr-recovery")
    asked: list[tuple[bool, bool]] = []

    def follow_up(handler: DriftHandler, context: AdaptationContext) -> tuple[str, ...]:
        engine = engine_of(mine)
        asked.append((handler is engine.components.labelled, engine.window.labelled.has_current))
        return ()

    monkeypatch.setattr(DriftHandler, "follow_up", follow_up)
    play(mine, CHANGING, known=0.6)
    assert (True, True) in asked
    assert (False, True) not in asked


def test_silence_of_a_check_that_could_say_nothing_is_told() -> None:
    """A level that is spent on many checks may be too small for the samples of one of them."""
    mine = live_learner(detector="mmd", options={"detector": {"level": 1e-9}})
    seen = play(mine, digits(0, classes=3))
    told = [note for each in seen for note in each.notes if "cannot be tested" in note]
    assert len(told) == len(set(told)) > 0
    assert "distinct samples cannot reach the level" in told[0]
    assert not any(each.drifted for each in seen)
    assert f"driftwise_classes_untestable {len(engine_of(mine).untestable)}\n" in mine.counters


def test_what_is_not_known_yet_is_not_counted() -> None:
    mine = live_learner()
    stream = digits(0)
    first = mine.observe(stream.images[:20], [0] * 20)
    assert (first.predicted == -1).all(), "there was no class to predict"
    assert first.accuracy == 0
    unlabelled = live_learner()
    unlabelled.observe(stream.images[:20], [0] * 19 + [None])
    assert "accuracy_recent" in unlabelled.counters
    assert "accuracy_recent" not in live_learner().counters
    mine.rehearse(50)
    assert "driftwise_steps_total 51\n" in mine.counters


def test_a_folder_from_before_a_setting_was_there_is_loaded_with_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = digits(0)

    def without(*names: str) -> Any:
        return lambda plain: {name: value for name, value in plain.items() if name not in names}

    with monkeypatch.context() as earlier:
        state = LiveEngine.state_dict
        forget, lose = without("catch_up_steps"), without("behind", "untestable")
        window = Window.state_dict
        shrink = without("outdated_before")
        earlier.setattr(Window, "state_dict", lambda self: shrink(window(self)))
        earlier.setattr(
            "driftwise.live.live_learner.to_json", lambda *parts: forget(to_json(*parts))
        )
        earlier.setattr(LiveEngine, "state_dict", lambda self: lose(state(self)))
        with live_learner(folder=tmp_path / "kept") as mine:
            play(mine, stream, samples=200)
    assert "catch_up_steps" not in (tmp_path / "kept" / "config.json").read_text()
    with driftwise.LiveLearner.load(tmp_path / "kept") as again:
        assert again.num_samples == 200
        assert again._settings.catch_up_steps == 100
        again.observe(stream.images[200:210], stream.labels[200:210])


def test_a_batch_of_any_size_is_checked_in_bounded_time() -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(600) % 2
    mine = driftwise.LiveLearner("mlp", recent_rows=100, buffer_size=50, batch_size=512)
    mine.observe(draw.normal(size=(600, 8)) + 4 * labels[:, None], labels)
    mine.observe(draw.normal(size=(700, 8)) + 4 * labels[:1], None)
    many = draw.normal(size=(20_000, 8)) + 4 * (np.arange(20_000) % 2)[:, None]
    seen = mine.observe(many)
    assert seen.verdicts
    assert max(verdict.num_current for verdict in seen.verdicts) <= 1000
    assert len(engine_of(mine).window.unlabelled) == 100
