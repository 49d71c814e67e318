"""A source of labels in a live stream: which samples it gives, and when it gives none."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from test_window import NOTHING, samples
from torch import Tensor

from driftwise.live.labels import MIN_FRESH, Inbox, LabelRequester, LiveLabels, Request
from driftwise.live.settings import LiveSettings
from driftwise.live.window import Window
from driftwise.metrics import Ledger


class Labeller:
    """Everything looks like its true class, and the callback knows it."""

    def __init__(
        self,
        truth: list[int],
        *,
        budget: int | None = None,
        now: int = 0,
        keeps: int = 2000,
        answers: bool = True,
    ) -> None:
        self.truth = np.array(truth)
        self.predictable = answers
        self.window = Window(NOTHING, LiveSettings(recent_rows=keeps), trust_predictions=True)
        self.window.unlabelled.add(samples([-1] * len(truth)))
        self.asked: list[Request] = []
        requester = LabelRequester(self._answer, Inbox(), seconds=30, max_label=lambda: 9)
        self.labels = LiveLabels(
            self.window,
            Ledger(label_budget=budget),
            requester=requester,
            predict=lambda images: torch.from_numpy(self.truth)[images[:, 0].long()],
            emit=lambda kind, **details: None,
            current_from=now,
        )

    def come(self, count: int, first: int) -> None:
        """More samples of class 0."""
        self.truth = np.concatenate([self.truth, np.zeros(count, dtype=np.int64)])
        self.window.unlabelled.add(samples([-1] * count, first))

    def _answer(self, request: Request) -> np.ndarray | None:
        self.asked.append(request)
        return self.truth[request.ids] if self.predictable else None


@pytest.mark.parametrize("budget", [0, 3, 4])
def test_a_class_that_gets_too_little_of_a_budget_is_left_without(budget: int) -> None:
    mine = Labeller([0] * 40 + [1] * 40, budget=budget)
    shares = mine.labels.spread({0: 30, 1: 30})
    assert sum(count or 0 for count in shares.values()) == budget
    for label, count in shares.items():
        assert len(mine.labels.ask(label, count)) == 0
    assert mine.labels.unmet == {0, 1}
    learned = mine.labels.unused()
    assert sum(map(len, learned)) == budget, "what was paid for is learned from all the same"


def test_a_few_samples_are_enough_where_no_more_are_wanted() -> None:
    mine = Labeller([0] * 40, budget=3)
    shares = mine.labels.spread({0: 3})
    assert len(mine.labels.ask(0, shares[0])) == 3
    assert mine.labels.unmet == set()


def test_a_short_budget_goes_to_the_classes_that_have_samples_to_ask_for() -> None:
    mine = Labeller([0] * 2 + [1] * 40, budget=20)
    shares = mine.labels.spread({0: 18, 1: 18})
    assert len(mine.labels.ask(1, shares[1])) == 18


def test_of_samples_that_are_as_good_as_any_the_newest_are_asked_for() -> None:
    mine = Labeller([0] * 40)

    def anything(images: Tensor, count: int) -> Tensor:
        return torch.arange(count)

    assert mine.labels.ask(0, MIN_FRESH, choose=anything).ids.tolist() == list(range(30, 40))
    mine.window.learned.add(samples([1] * 40, first=100))
    assert mine.labels.ask(1, MIN_FRESH, choose=anything).ids.tolist() == [*range(130, 140)]
    assert mine.labels.ask(1, MIN_FRESH).ids.tolist() == [*range(120, 130)], "none twice"


def test_what_came_before_the_samples_that_are_checked_is_guessed_at_by_nobody() -> None:
    mine = Labeller([0] * 40, now=25)
    assert mine.labels.unlabelled().ids.tolist() == list(range(25, 40))


def test_a_budget_also_holds_for_requests_that_are_no_longer_waited_for() -> None:
    mine = Labeller([0] * 20, budget=50, keeps=20, answers=False)
    for first in range(20, 200, 20):
        mine.labels.ask(0, 20)
        mine.come(20, first)
    assert sum(map(len, mine.asked)) == 50


def test_labels_that_come_after_the_end_are_told_of() -> None:
    release, inbox = threading.Event(), Inbox()

    def slow(request: Request) -> np.ndarray:
        assert release.wait(30)
        return np.zeros(len(request), dtype=np.int64)

    before = set(threading.enumerate())
    requester = LabelRequester(slow, inbox, seconds=0.01, max_label=lambda: 9)
    assert requester.ask(Request.of(samples([-1] * 3), 0)) is None
    (at_work,) = set(threading.enumerate()) - before
    with inbox.closing():
        pass

    def end() -> None:
        release.set()
        at_work.join(30)

    with pytest.warns(
        UserWarning, match="3 labels came too late: the live learner has been closed"
    ):
        end()
    assert inbox.empty() == ([], [])
