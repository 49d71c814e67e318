"""The benchmark's label source: gives what is asked for, as far as there is any, and books it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from recollect import rng
from recollect.streams.stream import Task
from recollect.types import Rows


class TaskLabels:
    """Answers from the incoming rows of one task, each row at most once.

    Every task brings a fresh draw: in a stream the samples of a class keep coming. The labels of
    classes that come back in the task's own training data are known already and cost nothing.
    """

    def __init__(
        self,
        task: Task,
        *,
        allowance: Callable[[int], int],
        book: Callable[[int], None],
        seed: int,
    ) -> None:
        """`allowance(n)` says how many of n labels the budget still has; `book(n)` spends them."""
        self._task = task
        self._allowance = allowance
        self._book = book
        self._seed = seed
        self._given: dict[int, int] = {}

    def ask(self, label: int, count: int | None) -> Rows:
        """Up to `count` rows of a class as it looks now (None: all); fewer when there are fewer."""
        pool = self._task.incoming(label)
        draw = rng.fork(self._seed, "labels", self._task.number, label)
        given = self._given.get(label, 0)
        left = torch.randperm(len(pool), generator=draw)[given:]
        granted = len(left) if count is None else min(count, len(left))
        if label not in self._task.returning_classes:
            granted = self._allowance(granted)
            self._book(granted)
        self._given[label] = given + granted
        return pool[left[:granted]]
