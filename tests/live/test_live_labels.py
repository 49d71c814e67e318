"""Streams with few labels or none: requests, failures, and labels that come late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import (
    CHANGING,
    STABLE,
    Oracle,
    before_drift,
    digits,
    engine_of,
    feed,
    live_learner,
    unlabelled,
)
from run_tools import complaint
from test_window import NOTHING, samples
from torch import Tensor

from driftwise.live.engine import BatchOutcome
from driftwise.live.labels import MIN_FRESH, Inbox, LabelRequester, LiveLabels, Request
from driftwise.live.settings import LiveSettings
from driftwise.live.window import Window
from driftwise.metrics import Ledger

NONE = CHANGING.images[:0]


def wait_for(happens: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Requests


def test_without_a_callback_drift_is_found_by_predictions_and_classes_wait() -> None:
    mine = before_drift()
    seen = unlabelled(mine, alarms=1)
    last = seen[-1]
    assert set(last.waiting) == set(last.drifted) == set(mine.waiting) != set()
    assert any("has drifted, no labels to realign with" in note for note in last.notes)
    assert all(each.loss is None for each in seen), "there was nothing to learn from"


def test_requested_labels_realign_the_class_and_no_sample_is_requested_twice() -> None:
    oracle = Oracle()
    mine = before_drift(labels=oracle)
    seen = unlabelled(mine, alarms=3)
    assert any(each.adapted for each in seen)
    for request in oracle.requests:
        assert np.array_equal(request.images, CHANGING.images[request.ids])
        assert (request.predicted == request.label).all()
    ids = np.concatenate([request.ids for request in oracle.requests])
    assert len(set(ids.tolist())) == len(ids) > 0
    assert f"driftwise_labels_asked_total {len(ids)}\n" in mine.counters
    assert f"driftwise_labels_given_total {len(ids)}\n" in mine.counters


def test_recent_labelled_samples_come_first_and_cost_nothing() -> None:
    stream = digits(2, classes=4, turn=360)
    oracle = Oracle(stream)
    seen = feed(live_learner(labels=oracle), stream)
    assert any(each.adapted for each in seen)
    assert oracle.requests == []


@pytest.mark.parametrize("budget", [0, 7, 30])
def test_requests_keep_within_the_budget_and_classes_beyond_it_wait(budget: int) -> None:
    oracle = Oracle()
    mine = before_drift(labels=oracle, label_budget=budget)
    seen = unlabelled(mine, alarms=3)
    assert engine_of(mine).ledger.labels["adaptation"] <= budget
    assert 0 <= sum(map(len, oracle.requests)) <= budget
    assert bool(oracle.requests) == (budget > 0)
    if budget < MIN_FRESH:
        assert not any(each.adapted for each in seen)
        assert set(mine.waiting) == {label for each in seen for label in each.drifted} != set()


def test_labels_that_may_still_come_are_kept_within_the_budget() -> None:
    requests: list[Request] = []
    mine = before_drift(labels=requests.append, label_budget=12)
    unlabelled(mine, alarms=4)
    assert 0 < sum(map(len, requests)) <= 12, "an answer to each of them is still affordable"
    for request in requests:
        mine.answer(request.ids, CHANGING.labels[request.ids])
    mine.observe(NONE)
    assert engine_of(mine).ledger.labels["adaptation"] == sum(map(len, requests))


def fails(request: Request) -> Any:
    raise OSError("the labelling service is down\nand more")


FAILURES: list[tuple[Any, str, bool]] = [
    (fails, "failed: OSError: the labelling service is down", True),
    (lambda request: [0] * (len(request) - 1), "expected a label for each of", True),
    (lambda request: np.zeros((len(request), 2)), "expected a label for each of", True),
    (lambda request: ["cat"] * len(request), "labels are whole numbers", True),
    (lambda request: [-3] * len(request), "labels are 0 or more; got -3", True),
    (lambda request: {10**6: 1}, "sample 1000000 was not asked for", True),
    (lambda request: exec("raise SystemExit(3)"), "failed: SystemExit: 3", True),
    (lambda _: None, "may still come", False),
    (lambda request: [None] * len(request), "0 of", False),
]


@pytest.mark.parametrize(("callback", "text", "fails"), FAILURES, ids=[f[1] for f in FAILURES])
def test_a_callback_without_usable_labels_stops_nothing(
    callback: Any, text: str, fails: bool
) -> None:
    mine = before_drift(labels=callback)
    last = unlabelled(mine, alarms=1)[-1]
    assert any(text in note for note in last.notes), last.notes
    assert not any("\n" in note for note in last.notes)
    assert last.waiting
    assert not last.adapted
    assert ("label_failures_total 0\n" not in mine.counters) == fails
    mine.observe(CHANGING.images[:3])


def test_labels_left_out_of_a_mapping_may_come_later_and_unknown_ones_are_not_awaited() -> None:
    later: list[int] = []

    def some(request: Request) -> dict[int, int | None]:
        later.extend(request.ids[2::3].tolist())
        labels: list[int | None] = [int(CHANGING.labels[number]) for number in request.ids]
        labels[1::3] = [None] * len(labels[1::3])
        pairs = zip(request.ids.tolist(), labels, strict=True)
        return {number: label for number, label in pairs if number not in later}

    mine = before_drift(labels=some)
    last = unlabelled(mine, alarms=1)[-1]
    assert any("may still come" in note for note in last.notes)
    assert any("labels that were asked for came" in note for note in last.notes)
    given = engine_of(mine).ledger.labels["adaptation"]
    assert given > 0
    assert sorted(number for each in mine.open_requests for number in each.ids) == sorted(later)
    mine.answer(later, CHANGING.labels[later])
    observed = mine.observe(NONE)
    assert not any("no longer kept" in note for note in observed.notes)
    assert engine_of(mine).ledger.labels["adaptation"] == given + len(later)
    assert mine.open_requests == ()


@pytest.mark.parametrize("fails", [False, True])
def test_a_callback_that_blocks_is_left_behind_and_its_answer_or_failure_used_later(
    fails: bool,
) -> None:
    """After a failure somebody else may know the labels."""
    release, calls = threading.Event(), []

    def slow(request: Request) -> Any:
        calls.append(request)
        release.wait(60)
        if fails:
            raise OSError("the labelling service is down")
        return CHANGING.labels[request.ids]

    mine = before_drift(labels=slow, label_seconds=0.05)
    last = unlabelled(mine, alarms=1)[-1]
    assert any("may still come" in note for note in last.notes)
    assert last.waiting
    assert sum(map(len, mine.open_requests)) == len(calls[0])
    assert len(calls) == 1, "one request at a time"
    release.set()
    wait_for(lambda: mine._inbox.state_dict()["answers"])
    if fails:
        mine.answer(calls[0].ids, CHANGING.labels[calls[0].ids])
    after = mine.observe(NONE)
    assert any("the labelling service is down" in note for note in after.notes) == fails
    assert not any("no longer kept" in note for note in after.notes)
    assert f"labels_late_total {len(calls[0])}\n" in mine.counters
    right = int((CHANGING.labels[calls[0].ids] == calls[0].label).sum())
    assert (calls[0].label in after.adapted) == (right >= MIN_FRESH)
    assert after.loss is not None, "and the labels were learned from"


def test_a_callback_that_is_waited_for_can_only_predict(tmp_path: Path) -> None:
    messages: list[str] = []

    def ask(request: Request) -> Any:
        calls: list[Callable[[], object]] = [
            lambda: mine.open_requests,
            mine.save,
            mine.rehearse,
            mine.close,
            lambda: mine.observe(CHANGING.images[:1]),
        ]
        messages.extend(complaint(call) for call in calls)
        mine.predict(CHANGING.images[:1])
        return CHANGING.labels[request.ids]

    began = time.monotonic()
    with before_drift(labels=ask, folder=tmp_path / "kept") as mine:
        unlabelled(mine, alarms=1)
    assert time.monotonic() - began < 30, "the time limit"
    assert len(messages) >= 5
    assert all("return the labels first" in each for each in messages)


def test_labels_that_come_after_the_end_are_warned_of() -> None:
    release, inbox = threading.Event(), Inbox()

    def slow(request: Request) -> np.ndarray:
        assert release.wait(30)
        return np.zeros(len(request), dtype=np.int64)

    before = set(threading.enumerate())
    requester = LabelRequester(slow, inbox, seconds=0.01, max_label=lambda: 9)
    assert requester.ask(Request.of(samples([-1] * 3), 0)) is None
    assert "still at work" in complaint(lambda: requester.ask(Request.of(samples([-1]), 0)))
    (at_work,) = set(threading.enumerate()) - before
    with inbox.closing():
        pass

    def end() -> None:
        release.set()
        at_work.join(30)

    with pytest.warns(UserWarning, match="3 labels came too late: the live learner has been clo"):
        end()
    assert inbox.empty() == ([], [])


# Late labels


def test_late_labels_realign_a_class_that_waited() -> None:
    mine = before_drift()
    unlabelled(mine, alarms=1)
    since = mine.num_samples
    ids = mine.observe(CHANGING.images[since : since + 150]).ids
    waiting = mine.waiting
    mine.answer(ids, CHANGING.labels[ids])
    assert mine.waiting == waiting != (), "answers are used by the next batch"
    after = mine.observe(NONE)
    # The answers may show that others have drifted, too.
    assert set(after.adapted) == set(waiting) | set(after.drifted)
    assert mine.waiting == ()
    buffer = engine_of(mine).learner.buffer
    for label in waiting:
        assert int(buffer.samples_of(label).ids.min()) >= since


def test_a_class_that_waits_is_realigned_by_few_labels_at_a_time() -> None:
    """Checks go on meanwhile: samples that came since it has drifted stay fresh."""
    mine = before_drift()
    unlabelled(mine, alarms=1)
    waited = set(mine.waiting)
    draw = np.random.default_rng(3)
    alarms, adapted = 0, set[int]()
    for start, images, labels in (*CHANGING.batches(), *CHANGING.batches()):
        if start > CHANGING.turn and not waited <= adapted:
            given = [int(label) if draw.random() < 0.08 else None for label in labels]
            seen = mine.observe(images, given)
            alarms += bool(waited & set(seen.drifted))
            adapted |= set(seen.adapted)
    assert alarms > 3
    assert waited <= adapted


def test_answers_are_used_in_their_order_the_first_one_counts_and_gone_samples_are_noted() -> None:
    mine = live_learner(recent_rows=60)
    feed(mine, STABLE, samples=100)
    ids = mine.observe(STABLE.images[100:160]).ids
    for number in ids[::-1]:
        mine.answer([number], [STABLE.labels[number]])
    mine.answer(ids[:10], STABLE.labels[:10])
    seen = mine.observe(STABLE.images[:0])
    assert "10 labels came for samples that are no longer kept" in seen.notes
    learned = engine_of(mine).window.learned.samples().ids.tolist()
    late = [number for number in learned if number >= 100]
    assert late == sorted(set(late), reverse=True)
    assert len(late) >= 15


def test_reference_samples_are_not_trained_on_when_their_labels_come() -> None:
    mine = live_learner(reference_size=10)
    feed(mine, STABLE, samples=100)
    ids = mine.observe(STABLE.images[100:200]).ids
    window = engine_of(mine).window
    is_reference = window.predicted.is_reference(torch.from_numpy(ids)).numpy()
    assert is_reference.any()
    mine.answer(torch.from_numpy(ids), torch.from_numpy(STABLE.labels[ids]))
    mine.answer([], [])
    mine.observe(STABLE.images[200:201])
    learned = set(window.learned.samples().ids.tolist())
    assert learned.isdisjoint(ids[is_reference].tolist())
    assert not learned.isdisjoint(ids[~is_reference].tolist())


def test_samples_that_were_rehearsed_by_a_predicted_label_are_not_monitored() -> None:
    stream = digits(0, classes=5, turn=None)
    mine = live_learner(reference_size=30)
    feed(mine, stream, samples=150)
    mine.observe(stream.images[150:200])
    engine = engine_of(mine)
    monitored, outcome = engine.window.predicted, BatchOutcome(next_id=150)
    labels = engine._label_source(outcome, (0,), engine.window.labelled)
    without = labels.unlabelled()
    assert without.ids.tolist() == list(range(150, 200))
    assert torch.isin(monitored.state_dict()["collected"]["ids"], without.ids).any()
    batch = replace(without[:20], labels=torch.from_numpy(stream.labels[150:170]))
    task = engine._task((0,), engine.window.labelled)
    engine._context(engine.handlers[0], task, labels, outcome).rehearse(batch)
    for queue in ("collected", "current"):
        assert not torch.isin(monitored.state_dict()[queue]["ids"], batch.ids).any()
    assert labels.unlabelled().ids.tolist() == list(range(170, 200))


# The label source of an adaptation


class Labeller:
    """Every sample is predicted as its true class, and the callback knows it."""

    def __init__(
        self,
        truth: list[int],
        *,
        budget: int | None = None,
        current_from: int = 0,
        recent_rows: int = 2000,
        answers: bool = True,
        begins_with: int | None = None,
    ) -> None:
        self.truth = np.array(truth)
        self.answers = answers
        self.window = Window(NOTHING, LiveSettings(recent_rows=recent_rows), trust_predictions=True)
        self.window.unlabelled.add(samples([-1] * (begins_with or len(truth))))
        self.requests: list[Request] = []
        self.labels = LiveLabels(
            self.window,
            Ledger(label_budget=budget),
            requester=LabelRequester(self._answer, Inbox(), seconds=30, max_label=lambda: 9),
            predict=lambda images: torch.from_numpy(self.truth)[images[:, 0].long()],
            emit=lambda kind, **details: None,
            current_from=current_from,
        )

    def _answer(self, request: Request) -> np.ndarray | None:
        self.requests.append(request)
        return self.truth[request.ids] if self.answers else None


@pytest.mark.parametrize("budget", [0, 3, 4])
def test_a_class_that_gets_too_little_of_a_budget_gets_nothing(budget: int) -> None:
    mine = Labeller([0] * 40 + [1] * 40, budget=budget)
    shares = mine.labels.spread({0: 30, 1: 30})
    assert sum(count or 0 for count in shares.values()) == budget
    for label, count in shares.items():
        assert len(mine.labels.ask(label, count)) == 0
    assert mine.labels.unmet == {0, 1}
    assert sum(map(len, mine.labels.unused())) == budget, "paid labels are learned from"


def test_a_budget_goes_to_classes_that_have_samples_and_few_are_enough_where_few_are_wanted() -> (
    None
):
    few = Labeller([0] * 40, budget=3)
    assert len(few.labels.ask(0, few.labels.spread({0: 3})[0])) == 3
    assert few.labels.unmet == set()
    mine = Labeller([0] * 2 + [1] * 40, budget=20)
    assert len(mine.labels.ask(1, mine.labels.spread({0: 18, 1: 18})[1])) == 18


def test_of_equally_good_samples_the_newest_are_requested_and_none_twice() -> None:
    mine = Labeller([0] * 40)

    def anything(images: Tensor, count: int) -> Tensor:
        return torch.arange(count)

    assert mine.labels.ask(0, MIN_FRESH, choose=anything).ids.tolist() == list(range(30, 40))
    mine.window.learned.add(samples([1] * 40, first=100))
    assert mine.labels.ask(1, MIN_FRESH, choose=anything).ids.tolist() == [*range(130, 140)]
    assert mine.labels.ask(1, MIN_FRESH).ids.tolist() == [*range(120, 130)]


def test_unlabelled_samples_from_before_the_current_concepts_are_left_out() -> None:
    mine = Labeller([0] * 40, current_from=25)
    assert mine.labels.unlabelled().ids.tolist() == list(range(25, 40))


def test_a_budget_also_holds_for_requests_that_are_no_longer_awaited() -> None:
    mine = Labeller([0] * 200, budget=50, recent_rows=20, answers=False, begins_with=20)
    for first in range(20, 200, 20):
        mine.labels.ask(0, 20)
        mine.window.unlabelled.add(samples([-1] * 20, first))
    assert sum(map(len, mine.requests)) == 50


def test_labels_on_their_way_are_not_asked_for_again_until_their_samples_are_old() -> None:
    mine = Labeller([0] * 140, recent_rows=60, answers=False, begins_with=40)
    for count in (15, 15, 25):
        mine.labels.spread({0: count})
        assert len(mine.labels.ask(0, count)) == 0
    assert [len(request) for request in mine.requests] == [15, 10], "only what is missing"
    mine.window.unlabelled.add(samples([-1] * 30, 40))
    mine.labels.ask(0, 25)
    assert len(mine.requests) == 2
    mine.window.unlabelled.add(samples([-1] * 70, 70))
    mine.labels.ask(0, 25)
    assert [len(request) for request in mine.requests] == [15, 10, 25], "nobody has answered"
