"""The label source of a benchmark: returns the requested labels, as far as there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError
from driftwise.protocols import Choose, split_budget
from driftwise.streams.stream import Task
from driftwise.types import Samples


@dataclass(frozen=True, kw_only=True)
class WrongAnswers:
    """Some answers are wrong: a sample of another known class comes under the requested label.

    >>> WrongAnswers(share=0.2).share
    0.2
    """

    share: float = 0.0
    """the probability that an answer is wrong"""
    hostile: bool = False
    """False: careless, any other class, and a second answer errs independently of the first. True:
    hostile, always the same other class, and a second answer repeats the first"""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise UserError(f"the share of wrong answers must lie from 0 to 1; got {self.share}")


RIGHT = WrongAnswers()


class TaskLabels:
    """Answers from the incoming samples of one task, each sample at most once.

    Every task draws again: in a stream the samples of a class keep coming. The labels of classes
    that return in the task's own training data are known already, cost nothing and are right.

    >>> import driftwise as dw
    >>> from driftwise.streams import Task
    >>> stream = dw.streams.class_incremental(dw.datasets.load("digits"), num_tasks=5, num_drifts=1)
    >>> spent = []
    >>> source = TaskLabels(Task(stream, 3), allowance=lambda n: n, book=spent.append, seed=0)
    >>> len(source.ask(0, 20)), spent
    (20, [20])
    """

    def __init__(
        self,
        task: Task,
        *,
        allowance: Callable[[int], int],
        book: Callable[[int], None],
        seed: int,
        wrong: WrongAnswers = RIGHT,
    ) -> None:
        """`allowance(n)` is how many of n labels the budget still has; `book(n)` spends them."""
        self._task = task
        self._allowance = allowance
        self._book = book
        self._seed = seed
        self._wrong = wrong
        self._asked: dict[int, Tensor] = {}
        """positions in the pool of each class, in the order in which they were returned"""

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        """Up to `count` samples of a class as it is now (None: all); fewer when there are fewer.

        Any of them, unless `choose` picks them.
        """
        pool = self._answers(label)[0]
        left = self._positions_left(label, len(pool))
        granted = len(left) if count is None else min(count, len(left))
        if label not in self._task.returning_classes:
            granted = self._allowance(granted)
            self._book(granted)
        given = left[:granted] if choose is None else left[choose(pool[left].images, granted)]
        if not len(set(given.tolist())) == len(given) == granted:
            raise ValueError(
                f"`choose` must return {granted} different positions; got {len(given)}, "
                f"{len(set(given.tolist()))} of them different"
            )
        self._asked[label] = torch.cat([self._asked.get(label, given[:0]), given])
        return pool[given]

    def ask_again(self, label: int, samples: Samples) -> Tensor:
        """Whether a second answer says the same of samples that came as this class, bool (samples,).

        As many labels are booked; what the budget does not allow is not confirmed.
        """
        pool, is_wrong = self._answers(label)
        granted = self._allowance(len(samples))
        self._book(granted)
        draw = rng.fork(self._seed, "second answers", self._task.number, label)
        chance = torch.rand(len(pool), generator=draw)
        others = max(1, len(self._others(label)))
        says_so = torch.where(
            is_wrong, chance < self._wrong.share / others, chance >= self._wrong.share
        )
        if self._wrong.hostile:
            says_so = torch.ones_like(is_wrong)
        place = {sample: position for position, sample in enumerate(pool.ids.tolist())}
        confirmed = says_so[torch.tensor([place[each] for each in samples.ids.tolist()]).long()]
        return confirmed & (torch.arange(len(samples)) < granted)

    def _others(self, label: int) -> list[int]:
        return [each for each in self._task.known_classes if each != label]

    def _answers(self, label: int) -> tuple[Samples, Tensor]:
        """What comes as a class, and which of it is wrong, bool (samples,): the same at every call."""
        pool = self._task.incoming(label)
        is_wrong = torch.zeros(len(pool), dtype=torch.bool)
        others = self._others(label)
        if not self._wrong.share or not others or label in self._task.returning_classes:
            return pool, is_wrong
        draw = rng.fork(self._seed, "wrong answers", self._task.number, label)
        is_wrong = torch.rand(len(pool), generator=draw) < self._wrong.share
        if self._wrong.hostile:
            others = [others[int(torch.randint(len(others), (1,), generator=draw))]]
        strangers = Samples.concat([self._task.incoming(each) for each in others])
        order = torch.randperm(len(strangers), generator=draw)[: int(is_wrong.sum())]
        is_wrong &= is_wrong.cumsum(0) <= len(order)  # there may be fewer strangers
        mixed = Samples.concat(
            [pool, replace(strangers[order], labels=torch.full_like(order, label))]
        )
        places = torch.arange(len(pool))
        places[is_wrong] = len(pool) + torch.arange(len(order))
        return mixed[places], is_wrong

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """As many as are wanted, or as the budget allows with a fair share for every class.

        Labels that it does not allow are booked as refused.
        """
        paid = {}
        for label, count in wanted.items():
            if label not in self._task.returning_classes:
                there = len(self._positions_left(label, len(self._task.incoming(label))))
                paid[label] = there if count is None else min(count, there)
        total = sum(paid.values())
        granted = self._allowance(total)
        return {**wanted, **(split_budget(paid, granted) if granted < total else {})}

    def unlabelled(self) -> Samples:
        """Incoming samples of all known classes whose labels were not requested; labels are -1."""
        parts = []
        for label in self._task.known_classes:
            pool = self._task.incoming(label)
            parts.append(pool[self._positions_left(label, len(pool)).sort().values])
        samples = Samples.concat(parts)
        return replace(samples, labels=torch.full_like(samples.labels, -1))

    def _positions_left(self, label: int, samples: int) -> Tensor:
        """Positions in the pool, in the order in which they are returned."""
        draw = rng.fork(self._seed, "labels", self._task.number, label)
        order = torch.randperm(samples, generator=draw)
        return order[~torch.isin(order, self._asked[label])] if label in self._asked else order

    def state_dict(self) -> dict[str, Any]:
        """The requests so far."""
        return {"asked": {str(label): given for label, given in self._asked.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` left off."""
        self._asked = {int(label): given for label, given in state["asked"].items()}


class StreamLabels:
    """The label sources of a stream: one for each task.

    >>> import driftwise as dw
    >>> from driftwise.streams import Task
    >>> stream = dw.streams.class_incremental(dw.datasets.load("digits"), num_tasks=5, num_drifts=1)
    >>> sources = StreamLabels(allowance=lambda n: min(n, 5), book=lambda n: None, seed=0)
    >>> len(sources.of(Task(stream, 3)).ask(0, 20))  # the budget has five left
    5
    """

    def __init__(
        self,
        *,
        allowance: Callable[[int], int],
        book: Callable[[int], None],
        seed: int,
        wrong: WrongAnswers = RIGHT,
    ) -> None:
        """As for each task's source."""
        self._make = partial(TaskLabels, allowance=allowance, book=book, seed=seed, wrong=wrong)
        self._number = 0
        self._labels: TaskLabels | None = None
        self._saved: dict[str, Any] | None = None

    def of(self, task: Task) -> TaskLabels:
        """The source of a task; that of the task before is forgotten."""
        if self._labels is None or task.number != self._number:
            self._labels = self._make(task)
            if self._saved is not None and task.number == self._number:
                self._labels.load_state_dict(self._saved)
            self._number, self._saved = task.number, None
        return self._labels

    def state_dict(self) -> dict[str, Any]:
        """The requests during the current task."""
        kept = self._saved if self._labels is None else self._labels.state_dict()
        return {"task": self._number, "labels": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` left off."""
        self._number, self._saved, self._labels = state["task"], state["labels"], None
