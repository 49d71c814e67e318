"""Which slot an offered row goes to: the book of slots, and the policies that read it.

The book is kept in numpy: it is touched a few entries at a time, where numpy's calls are cheaper
than torch's. Draws come from torch's generators all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Ints: TypeAlias = npt.NDArray[np.int64]

_DRAW_RANGE = 2**62
"""Reduced modulo n, a draw from this range misses uniform by less than n / 2**62."""

_DRAWS_AT_A_TIME = 64
"""Slots drawn in one go while looking for a row to replace."""


class Slots:
    """The book of slots: which are occupied, and by which class.

    Slots stand in one list, the occupied ones first, so drawing among the occupied, finding a free
    one and occupying it cost the same at any capacity. Only what concerns a whole class walks over
    all slots.
    """

    labels: Ints
    """(capacity,): the class in each slot; without meaning where a slot is free"""
    counts: Counter[int]
    """rows per class, only classes with rows"""
    order: Ints
    """(capacity,): every slot once, the occupied ones first"""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.labels = np.zeros(capacity, dtype=np.int64)
        self.counts = Counter()
        self.order = np.arange(capacity)
        self._position = np.arange(capacity)
        self._held = 0

    def __len__(self) -> int:
        return self._held

    @property
    def occupied(self) -> Ints:
        """The occupied slots, in no particular order; a view."""
        return self.order[: self._held]

    @property
    def free(self) -> Ints:
        """The free slots, in no particular order; a view."""
        return self.order[self._held :]

    def of_class(self, label: int) -> Ints:
        """The slots of one class, ascending."""
        return np.flatnonzero((self.labels == label) & (self._position < self._held))

    def write(self, slots: Ints, labels: Ints) -> None:
        """Put `labels` (rows,) into distinct `slots` (rows,), free or occupied."""
        replaced = slots
        if self._held < self.capacity:
            was_free = self._position[slots] >= self._held
            replaced = slots[~was_free]
            self._occupy(slots[was_free])
        for label in self.labels[replaced].tolist():
            self.counts[label] -= 1
            if self.counts[label] == 0:
                del self.counts[label]
        self.counts.update(labels.tolist())
        self.labels[slots] = labels

    def release(self, label: int) -> int:
        """Free the slots of one class; how many there were."""
        goes = self.labels[self.occupied] == label
        self.order[: self._held] = np.concatenate([self.occupied[~goes], self.occupied[goes]])
        self._position[self.order] = np.arange(self.capacity)
        freed = self.counts.pop(label, 0)
        self._held -= freed
        return freed

    def restore(self, order: Ints, labels: Ints) -> None:
        """Start over with the first len(labels) slots of `order` occupied, by these classes."""
        self.order[:] = order
        self._position[order] = np.arange(self.capacity)
        self._held = len(labels)
        self.labels[self.occupied] = labels
        self.counts = Counter(labels.tolist())

    def _occupy(self, slots: Ints) -> None:
        """Move distinct free slots to the occupied part of the list, in the order given."""
        start, end = self._held, self._held + len(slots)
        before = self.order[start:end].copy()
        came_from = self._position[slots]
        self.order[start:end] = slots
        self._position[slots] = np.arange(start, end)
        # Slots that stood in the stretch and are not asked for take the places that were left.
        ousted = before[self.order[self._position[before]] != before]
        vacated = came_from[came_from >= end]
        self.order[vacated] = ousted
        self._position[ousted] = vacated
        self._held = end


class Policy(Protocol):
    """Says where offered rows go; holds no state, all it needs is passed."""

    name: ClassVar[str]

    def choose(
        self, slots: Slots, labels: Ints, *, seen: int, generator: torch.Generator
    ) -> dict[int, int]:
        """The slot -> position in the offer of the rows that are kept, if `seen` rows came before.

        labels (rows,) are the classes offered. Of several rows for one slot the last one stands.
        """
        ...


class Reservoir:
    """Vitter's algorithm R: every row of the stream is kept with probability capacity / seen.

    A free slot waits for the draw that hits it. Filling it at once would favour the rows that come
    just after a class was dropped.
    """

    name: ClassVar[str] = "reservoir"

    def choose(
        self, slots: Slots, labels: Ints, *, seen: int, generator: torch.Generator
    ) -> dict[int, int]:
        """Each row goes where algorithm R sends it."""
        drawn = _vitter_slots(len(labels), seen, slots.capacity, generator)
        (accepted,) = (drawn < slots.capacity).nonzero()
        return dict(zip(drawn[accepted].tolist(), accepted.tolist(), strict=True))


class Balanced:
    """A class-balanced reservoir: algorithm R accepts a row, the largest class makes room for it.

    An accepted row goes into a free slot if there is one, else it replaces a uniformly random row
    of the currently largest class, or of one of them at random.
    """

    name: ClassVar[str] = "balanced"

    def choose(
        self, slots: Slots, labels: Ints, *, seen: int, generator: torch.Generator
    ) -> dict[int, int]:
        """Each row that algorithm R accepts, free slots first.

        Rows to replace are drawn among all rows until one is of a largest class. Equally large
        classes have equally many rows, so this is uniform over classes and over rows. The largest
        class holds at least an average class's share: the draws needed grow with the number of
        classes, not with the capacity.
        """
        drawn = _vitter_slots(len(labels), seen, slots.capacity, generator)
        accepted: list[int] = (drawn < slots.capacity).nonzero()[0].tolist()
        if not accepted:
            return {}
        incoming: list[int] = labels.tolist()
        landing = dict(zip(slots.free[: len(accepted)].tolist(), accepted, strict=False))
        counts = slots.counts + Counter(incoming[row] for row in landing.values())
        candidates = _random_slots(slots, generator)
        for row in accepted[len(landing) :]:
            largest = max(counts.values())
            for slot, label_before in candidates:
                # The book does not know yet what this offer has put into the slot.
                victim = incoming[landing[slot]] if slot in landing else label_before
                if counts[victim] == largest:
                    break
            counts[victim] -= 1
            counts[incoming[row]] += 1
            landing[slot] = row
        return landing


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Reservoir, Balanced)}
"""Every policy by its name."""


def _vitter_slots(rows: int, seen: int, capacity: int, generator: torch.Generator) -> Ints:
    """Where algorithm R sends the next rows, (rows,); beyond the capacity means turned away.

    One draw per row, used or not, so that the same stream in other batches gives the same slots.
    """
    drawn: Ints = torch.randint(_DRAW_RANGE, (rows,), generator=generator).numpy()
    drawn %= np.arange(seen + 1, seen + rows + 1)
    if seen < capacity:
        end = min(seen + rows, capacity)
        drawn[: end - seen] = np.arange(seen, end)
    return drawn


def _random_slots(slots: Slots, generator: torch.Generator) -> Iterator[tuple[int, int]]:
    """Uniform slots of a full book without end, each with the class the book has there."""
    while True:
        drawn = torch.randint(slots.capacity, (_DRAWS_AT_A_TIME,), generator=generator).numpy()
        yield from zip(drawn.tolist(), slots.labels[drawn].tolist(), strict=True)
