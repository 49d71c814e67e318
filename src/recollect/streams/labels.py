"""The benchmark's label source: gives what is asked for, as far as there is any, and books it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from recollect import rng
from recollect.shapes import Choose
from recollect.shares import share_out
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
        self._left: dict[int, Tensor] = {}

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Rows:
        """Up to `count` rows of a class as it looks now (None: all); fewer when there are fewer.

        Any of them, unless `choose` says which.
        """
        pool = self._task.incoming(label)
        left = self._positions_left(label, len(pool))
        granted = len(left) if count is None else min(count, len(left))
        if label not in self._task.returning_classes:
            granted = self._allowance(granted)
            self._book(granted)
        picked = torch.zeros(len(left), dtype=torch.bool)
        chosen = slice(granted) if choose is None else choose(pool[left].images, granted)
        picked[chosen] = True
        self._left[label] = left[~picked]
        return pool[left[chosen]]

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """As many as are wanted, or as the budget allows if every class gets its share.

        What it does not allow is booked as refused.
        """
        paid = {}
        for label, count in wanted.items():
            if label not in self._task.returning_classes:
                there = len(self._positions_left(label, len(self._task.incoming(label))))
                paid[label] = there if count is None else min(count, there)
        total = sum(paid.values())
        granted = self._allowance(total)
        return {**wanted, **(share_out(paid, granted) if granted < total else {})}

    def unlabelled(self) -> Rows:
        """What comes in of all known classes and nobody has asked the label of; labels are -1."""
        parts = []
        for label in self._task.known_classes:
            pool = self._task.incoming(label)
            parts.append(pool[self._positions_left(label, len(pool)).sort().values])
        rows = Rows.concat(parts)
        return replace(rows, labels=torch.full_like(rows.labels, -1))

    def _positions_left(self, label: int, rows: int) -> Tensor:
        """In the order in which they are given."""
        if label not in self._left:
            draw = rng.fork(self._seed, "labels", self._task.number, label)
            self._left[label] = torch.randperm(rows, generator=draw)
        return self._left[label]
