"""Streams with few labels or none: asking, waiting, and answers that come late."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import Digits, digits, live_learner, play
from run_tools import complaint
from test_live_drift import engine_of

import driftwise
from driftwise.live.engine import BatchOutcome
from driftwise.live.labels import Request
from driftwise.live.reporter import Observation


def learned_then_silent(
    mine: driftwise.LiveLearner, stream: Digits, *, until: int = 2
) -> list[Observation]:
    """Labels up to the turn and a little before it none; ends `until` alarms after the turn."""
    seen: list[Observation] = []
    alarms = 0
    for start, images, labels in stream.batches():
        known = start < stream.turn - 100
        seen.append(mine.observe(images, labels if known else None))
        alarms += bool(seen[-1].drifted)
        if alarms == until:
            break
    return seen


class Oracle:
    """Knows every label, and what it was asked."""

    def __init__(self, stream: Digits) -> None:
        self.stream = stream
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        return self.stream.labels[request.ids]


def test_without_labels_drift_is_found_by_predictions_and_told_as_waiting() -> None:
    mine = live_learner(detector="combined", check_rows=20)
    seen = learned_then_silent(mine, digits(0, classes=5, turn=450), until=1)
    last = seen[-1]
    assert last.drifted
    assert set(last.waiting) == set(last.drifted) == set(mine.waiting)
    assert any("has drifted, no labels to realign with" in note for note in last.notes)
    assert not any(each.drifted for each in seen[:45])
    assert all(each.loss is None for each in seen[36:]), "there was nothing to learn from"


def test_labels_are_asked_for_and_the_class_is_realigned_with_what_was_given() -> None:
    stream = digits(0, classes=5, turn=450)
    ask = Oracle(stream)
    mine = live_learner(detector="combined", check_rows=20, labels=ask)
    seen = learned_then_silent(mine, stream, until=3)
    assert ask.requests
    assert any(each.adapted for each in seen)
    for request in ask.requests:
        assert np.array_equal(request.images, stream.images[request.ids])
        assert (request.predicted == request.label).all()
        assert len(set(request.ids.tolist())) == len(request)
    asked = sum(map(len, ask.requests))
    assert f"driftwise_labels_asked_total {asked}\n" in mine.counters
    assert f"driftwise_labels_given_total {asked}\n" in mine.counters
    ids = [number for request in ask.requests for number in request.ids.tolist()]
    assert len(set(ids)) == len(ids), "nobody is asked about a sample twice"


def test_recent_labelled_samples_come_first_and_cost_nothing() -> None:
    stream = digits(2, classes=4, turn=360)
    ask = Oracle(stream)
    mine = live_learner(labels=ask)
    seen = play(mine, stream)
    assert any(each.adapted for each in seen)
    assert ask.requests == []


@pytest.mark.parametrize("budget", [0, 7, 30])
def test_no_more_labels_are_asked_for_than_the_budget_allows(budget: int) -> None:
    stream = digits(0, classes=5, turn=450)
    ask = Oracle(stream)
    mine = live_learner(detector="combined", check_rows=20, labels=ask, label_budget=budget)
    learned_then_silent(mine, stream, until=4)
    assert sum(map(len, ask.requests)) <= budget
    assert engine_of(mine).ledger.labels["adaptation"] <= budget
    assert bool(ask.requests) == (budget > 0)


@pytest.mark.parametrize("budget", [0, 7])
def test_a_class_that_the_budget_does_not_do_for_is_told_as_waiting(budget: int) -> None:
    stream = digits(0, classes=5, turn=450)
    mine = live_learner(
        detector="combined", check_rows=20, labels=Oracle(stream), label_budget=budget
    )
    seen = learned_then_silent(mine, stream, until=3)
    drifted = {label for each in seen for label in each.drifted}
    assert not any(each.adapted for each in seen)
    assert set(mine.waiting) == drifted != set()


def test_a_class_that_waits_is_realigned_by_labels_that_trickle_in() -> None:
    """Checks go on meanwhile: they do not make samples old that came since it has drifted."""
    stream = digits(0, classes=5, turn=450)
    mine = live_learner(detector="combined", check_rows=20)
    learned_then_silent(mine, stream, until=1)
    waited = set(mine.waiting)
    draw = np.random.default_rng(3)
    alarms, adapted = 0, set()
    for _ in range(2):
        for start, images, labels in stream.batches():
            if start > stream.turn:
                given = [int(label) if draw.random() < 0.08 else None for label in labels]
                seen = mine.observe(images, given)
                alarms += bool(waited & set(seen.drifted))
                adapted |= set(seen.adapted)
    assert alarms > 3
    assert waited <= adapted


def test_labels_that_may_still_come_are_kept_within_the_budget() -> None:
    stream = digits(0, classes=5, turn=450)
    asked: list[Request] = []
    mine = live_learner(detector="combined", check_rows=20, labels=asked.append, label_budget=12)
    learned_then_silent(mine, stream, until=4)
    assert 0 < sum(map(len, asked)) <= 12, "an answer to each of them is still affordable"
    for request in asked:
        mine.answer(request.ids, stream.labels[request.ids])
    mine.observe(stream.images[:0])
    ledger = engine_of(mine).ledger
    assert ledger.labels["adaptation"] == sum(map(len, asked))


def test_partly_labelled_streams_are_watched_in_both_ways() -> None:
    mine = live_learner(detector="combined", check_rows=15)
    stream = digits(1, turn=900)
    seen = play(mine, stream, known=0.5)
    assert not any(each.drifted for each in seen[:90])
    assert any(each.drifted for each in seen[90:])
    assert any(each.adapted for each in seen[90:])
    assert sum(each.labelled for each in seen) < 1000


def fails(request: Request) -> Any:
    raise OSError("the labelling service is down\nand more")


TROUBLES: dict[str, tuple[Any, str]] = {
    "raises": (fails, "failed: OSError: the labelling service is down"),
    "too few": (lambda request: [0] * (len(request) - 1), "expected a label for each of"),
    "a table": (lambda request: np.zeros((len(request), 2)), "expected a label for each of"),
    "words": (lambda request: ["cat"] * len(request), "labels are whole numbers"),
    "fractions": (lambda request: [0.5] * len(request), "labels are whole numbers"),
    "negative": (lambda request: [-3] * len(request), "labels are 0 or more; got -3"),
    "strangers": (lambda request: {10**6: 1}, "sample 1000000 was not asked for"),
    "exits": (lambda request: exec("raise SystemExit(3)"), "failed: SystemExit: 3"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_label_callback_that_fails_is_told_and_counted_and_stops_nothing(trouble: str) -> None:
    callback, text = TROUBLES[trouble]
    mine = live_learner(detector="combined", check_rows=20, labels=callback)
    seen = learned_then_silent(mine, digits(0, classes=5, turn=450), until=1)
    assert any(text in note for note in seen[-1].notes), seen[-1].notes
    assert not any("\n" in note for note in seen[-1].notes)
    assert seen[-1].waiting
    assert not seen[-1].adapted
    assert "label_failures_total 0" not in mine.counters
    mine.observe(digits(0).images[:3])


@pytest.mark.parametrize(
    ("said", "text"),
    [(lambda _: None, "may still come"), (lambda request: [None] * len(request), "0 of")],
    ids=["later", "nobody knows"],
)
def test_no_label_is_no_failure(said: Any, text: str) -> None:
    mine = live_learner(detector="combined", check_rows=20, labels=said)
    seen = learned_then_silent(mine, digits(0, classes=5, turn=450), until=1)
    assert any(text in note for note in seen[-1].notes), seen[-1].notes
    assert seen[-1].waiting
    assert not seen[-1].adapted
    assert "label_failures_total 0\n" in mine.counters


def test_what_a_callback_leaves_out_of_a_mapping_may_come_later() -> None:
    stream = digits(0, classes=5, turn=450)
    later: list[int] = []

    def some(request: Request) -> dict[int, int]:
        later.extend(request.ids[1::2].tolist())
        return {int(number): int(stream.labels[number]) for number in request.ids[::2]}

    mine = live_learner(detector="combined", check_rows=20, labels=some)
    seen = learned_then_silent(mine, stream, until=1)
    assert any("may still come" in note for note in seen[-1].notes)
    given = engine_of(mine).ledger.labels["adaptation"]
    assert given > 0
    assert sorted(number for each in mine.open_requests for number in each.ids) == sorted(later)
    mine.answer(later, stream.labels[later])
    observed = mine.observe(stream.images[:0])
    assert not any("no longer kept" in note for note in observed.notes)
    assert engine_of(mine).ledger.labels["adaptation"] == given + len(later)
    assert mine.open_requests == ()


def test_what_nobody_knows_is_not_waited_for() -> None:
    stream = digits(0, classes=5, turn=450)

    def some(request: Request) -> list[int | None]:
        return [int(stream.labels[n]) if n % 2 else None for n in request.ids]

    mine = live_learner(detector="combined", check_rows=20, labels=some)
    seen = learned_then_silent(mine, stream, until=1)
    assert any("labels that were asked for came" in note for note in seen[-1].notes)
    assert mine.open_requests == ()


def test_a_callback_that_blocks_is_left_behind_and_its_answer_taken_up_later() -> None:
    stream = digits(0, classes=5, turn=450)
    release, calls = threading.Event(), []

    def slow(request: Request) -> Any:
        calls.append(request)
        release.wait(60)
        return stream.labels[request.ids]

    mine = live_learner(detector="combined", check_rows=20, labels=slow, label_seconds=0.05)
    began = time.monotonic()
    seen = learned_then_silent(mine, stream, until=1)
    assert time.monotonic() - began < 60
    assert any("may still come" in note for note in seen[-1].notes)
    assert seen[-1].waiting
    assert len(calls) == 1, "one request at a time"
    release.set()
    wait_for(lambda: len(mine._inbox.state_dict()["answers"]) == 1)
    after = mine.observe(stream.images[:1])
    assert engine_of(mine).ledger.labels["adaptation"] == len(calls[0])
    assert f"labels_late_total {len(calls[0])}\n" in mine.counters
    right = int((stream.labels[calls[0].ids] == calls[0].label).sum())
    assert (calls[0].label in after.adapted) == (right >= 10)
    assert after.loss is not None, "and what came was learned from"


def test_late_answers_realign_a_class_that_waited() -> None:
    stream = digits(0, classes=5, turn=450)
    mine = live_learner(detector="combined", check_rows=20)
    seen = learned_then_silent(mine, stream, until=1)
    assert seen[-1].waiting
    since = len(seen) * 10
    ids = mine.observe(stream.images[since : since + 150]).ids
    waiting = mine.waiting
    mine.answer(ids, stream.labels[ids])
    assert mine.waiting == waiting, "answers are taken up by the next batch"
    after = mine.observe(stream.images[:0])
    # The answers may show that others have drifted, too.
    assert set(after.adapted) == set(waiting) | set(after.drifted)
    assert mine.waiting == ()
    memory = engine_of(mine).learner.buffer
    for label in waiting:
        assert int(memory.samples_of(label).ids.min()) >= since


def test_answers_are_taken_up_in_the_order_in_which_they_came() -> None:
    stream = digits(0, classes=5, turn=None)
    mine = live_learner()
    play(mine, stream, samples=100)
    samples = mine.observe(stream.images[100:160]).ids
    for number in samples[::-1]:
        mine.answer([number], [stream.labels[number]])
    mine.observe(stream.images[160:161])
    learned = engine_of(mine).window.learned.samples().ids
    late = [number for number in learned.tolist() if number >= 100]
    assert late == sorted(late, reverse=True)
    assert len(late) >= 20


def test_the_last_of_two_answers_to_one_sample_does_not_count_and_gone_samples_are_told() -> None:
    stream = digits(0, classes=5, turn=None)
    mine = live_learner(recent_rows=20)
    play(mine, stream, samples=100)
    first = mine.observe(stream.images[100:110]).ids
    mine.answer(first, stream.labels[100:110])
    mine.answer(first, stream.labels[100:110])
    seen = mine.observe(stream.images[110:120])
    assert "10 labels came for samples that are no longer kept" in seen.notes
    ids = engine_of(mine).window.learned.samples().ids.tolist()
    assert len(set(ids)) == len(ids)


def test_samples_that_say_how_classes_look_are_not_trained_on_when_labels_come_for_them() -> None:
    stream = digits(0, classes=5, turn=None)
    mine = live_learner(reference_size=10)
    play(mine, stream, samples=100)
    ids = mine.observe(stream.images[100:200]).ids
    engine = engine_of(mine)
    refers = engine.window.predicted.is_reference(torch.from_numpy(ids)).numpy()
    assert refers.any()
    mine.answer(ids, stream.labels[ids])
    mine.observe(stream.images[200:201])
    learned = set(engine.window.learned.samples().ids.tolist())
    assert learned.isdisjoint(ids[refers].tolist())
    assert not learned.isdisjoint(ids[~refers].tolist())


def test_samples_that_were_rehearsed_by_a_predicted_label_are_not_monitored() -> None:
    stream = digits(0, classes=5, turn=None)
    mine = live_learner(reference_size=30)
    play(mine, stream, samples=150)
    mine.observe(stream.images[150:200])
    engine = engine_of(mine)
    monitored, outcome = engine.window.predicted, BatchOutcome(next_id=150)
    labels = engine._label_source(outcome, (0,), engine.window.labelled)
    unlabelled = labels.unlabelled()
    assert unlabelled.ids.tolist() == list(range(150, 200))
    before = monitored.state_dict()
    assert torch.isin(before["collected"]["ids"], unlabelled.ids).any()
    batch = replace(unlabelled[:20], labels=torch.from_numpy(stream.labels[150:170]))
    task = engine._task((0,), engine.window.labelled)
    engine._context(engine.handlers[0], task, labels, outcome).rehearse(batch)
    for queue in ("collected", "current"):
        assert not torch.isin(monitored.state_dict()[queue]["ids"], batch.ids).any()
    assert labels.unlabelled().ids.tolist() == list(range(170, 200))


def test_answers_that_fit_no_sample_are_refused() -> None:
    mine = live_learner()
    mine.observe(digits(0).images[:10], digits(0).labels[:10])
    assert "2 samples" in complaint(lambda: mine.answer([1, 2], [0]))
    assert "sample 10 has not come yet" in complaint(lambda: mine.answer([10], [0]))
    assert "labels are 0 or more" in complaint(lambda: mine.answer([1], [-2]))


def wait_for(happens: Any) -> None:
    deadline = time.monotonic() + 30
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)
