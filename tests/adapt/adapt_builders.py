"""A small memory, and a shop of fresh samples that remembers what was asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from driftwise.adapt import Adaptation
from driftwise.config.registry import CATALOGUE
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.protocols import Choose, split_budget
from driftwise.types import Extras, Samples

HELD = {0: 4, 1: 3, 2: 5}
"""samples per class in a fresh memory"""
OLD, NOW = 0, 1
"""the concept of the samples in a fresh memory, and of fresh samples"""


def adaptation_named(name: str) -> Adaptation:
    """The catalogue's adaptation of that name."""
    entry = CATALOGUE["adaptation"][name]
    options = entry.options_type()
    made: Adaptation = entry.factory()(*([options()] if options else []), **entry.fixed)
    return made


def samples(label: int, count: int, concept: int) -> Samples:
    """Samples of a class; old and fresh ones share no id and no pixel."""
    ids = 100 * label + 50 * concept + torch.arange(count)
    return Samples(
        images=(ids % 256).to(torch.uint8).view(-1, 1, 1, 1).repeat(1, 2, 2, 1),
        labels=torch.full((count,), label),
        ids=ids,
        concepts=torch.full((count,), concept),
    )


def annotate(some: Samples) -> Extras:
    """The columns of a method that keeps logits."""
    return {"logits": torch.stack([some.ids, -some.ids], dim=1).float()}


def stale(some: Samples) -> Extras:
    """What the method kept when the samples came, long ago."""
    return {"logits": torch.full((len(some), 2), 0.5)}


def memory_with(held: dict[int, int] | None = None) -> ReplayBuffer:
    """A full memory of old samples, the classes one after the other."""
    counts = HELD if held is None else held
    memory = ReplayBuffer(sum(counts.values()), policy=POLICIES["reservoir"](), seed=0)
    for label, count in counts.items():
        old = samples(label, count, OLD)
        memory.offer(old, stale(old))
    return memory


def contents(memory: ReplayBuffer, label: int) -> dict[str, Tensor]:
    """All that the memory gives back of a class, ordered by id."""
    stored = memory.sample(len(memory))
    order = stored.samples.ids.argsort()
    order = order[stored.samples.labels[order] == label]
    columns = {**vars(stored.samples), **stored.extras}
    return {name: column[order] for name, column in columns.items()}


def assert_same(one: Any, other: Any) -> None:
    """Equal trees, tensors bit for bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


class Shop:
    """Gives fresh samples while stock and budget last."""

    def __init__(self, stock: int = 20, *, budget: int | None = None) -> None:
        self.stock = stock
        self.budget = budget
        self.asked: list[tuple[int, int | None]] = []
        self.given: list[Samples] = []

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        """Up to `count` samples of the class as it looks now."""
        self.asked.append((label, count))
        granted = self.stock if count is None else min(count, self.stock)
        if self.budget is not None:
            granted = min(granted, self.budget)
            self.budget -= granted
        stock = samples(label, self.stock, NOW)
        picks = torch.arange(granted) if choose is None else choose(stock.images, granted)
        self.given.append(stock[picks])
        return self.given[-1]

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """Every class gets its share of a budget."""
        counts = {c: self.stock if n is None else min(n, self.stock) for c, n in wanted.items()}
        if self.budget is None or self.budget >= sum(counts.values()):
            return dict(wanted)
        return {**split_budget(counts, self.budget)}

    def unlabelled(self) -> Samples:
        """Nothing comes in that nobody asked for."""
        return samples(0, 0, NOW)

    def ids(self) -> list[int]:
        """The samples that were given, by id."""
        return sorted(sample for answer in self.given for sample in answer.ids.tolist())
