"""The book of slots: which are occupied, and by which class.

It is kept in numpy: it is touched a few entries at a time, where numpy's calls are cheaper than
torch's.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints: TypeAlias = npt.NDArray[np.int64]


class ClassLists:
    """The slots of each class, each class in a list that gives up any of its slots at once."""

    def __init__(self, capacity: int, slots: Ints, labels: Ints) -> None:
        self._lists: dict[int, array[int]] = defaultdict(lambda: array("q"))
        self._rank = array("q", bytes(8 * capacity))  # of each slot in its list
        for slot, label in zip(slots.tolist(), labels.tolist(), strict=True):
            self.add(slot, label)

    def of(self, label: int) -> array[int]:
        """The slots of one class; not to be changed."""
        return self._lists[label]

    def sizes(self) -> dict[int, int]:
        """How many slots each class has."""
        return {label: len(slots) for label, slots in self._lists.items()}

    def add(self, slot: int, label: int) -> None:
        """Append a slot to the list of its class."""
        self._rank[slot] = len(self._lists[label])
        self._lists[label].append(slot)

    def remove(self, slot: int, label: int) -> None:
        """Take a slot out of the list of its class; the last one moves into its place."""
        last = self._lists[label].pop()
        if last != slot:
            self._lists[label][self._rank[slot]] = last
            self._rank[last] = self._rank[slot]

    def flat(self) -> Ints:
        """All slots, list by list; starting over from them gives the same lists."""
        parts = [np.array(self._lists[label], dtype=np.int64) for label in sorted(self._lists)]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])


class Slots:
    """The book of slots: which are occupied, and by which class.

    Slots stand in one list, the occupied ones first, so drawing among the occupied, finding a free
    one and occupying it cost the same at any capacity. Only what concerns whole classes walks over
    all slots. One slot more, of the number `capacity`, is nobody's: what is written there is gone.
    """

    labels: Ints
    """(capacity + 1,): the class in each slot; without meaning where a slot is free"""
    order: Ints
    """(capacity,): every slot once, the occupied ones first"""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.labels = np.zeros(capacity + 1, dtype=np.int64)
        self.order = np.arange(capacity)
        self._position = np.arange(capacity + 1)
        self._in_order = True  # every slot stands where its number says
        self._held = 0
        self._lists: ClassLists | None = None

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

    @property
    def lists(self) -> ClassLists:
        """The occupied slots class by class; kept up from the first time somebody asks."""
        if self._lists is None:
            ascending = np.sort(self.occupied)
            self._lists = ClassLists(self.capacity, ascending, self.labels[ascending])
        return self._lists

    def of_class(self, label: int) -> Ints:
        """The slots of one class, ascending."""
        return np.flatnonzero((self.labels == label) & (self._position < self._held))

    def counts(self) -> dict[int, int]:
        """Samples per class, in ascending order, only classes with samples."""
        labels, counts = np.unique(self.labels[self.occupied], return_counts=True)
        return dict(zip(labels.tolist(), counts.tolist(), strict=True))

    def write(self, slots: Ints | slice, labels: Ints) -> None:
        """Put `labels` (samples,) into `slots` (samples,), free or occupied or nobody's.

        Of several samples for one slot the last one stands, as numpy assigns them.
        """
        if isinstance(slots, slice):
            if self._in_order and slots.start == self._held and self._lists is None:
                self._held = slots.stop  # a memory that fills up: 1 us, not 12
                self.labels[slots] = labels
                return
            slots = np.arange(slots.start, slots.stop)
        entering = slots[:0]
        if self._held < self.capacity:
            is_free = (self._position[slots] >= self._held) & (slots < self.capacity)
            entering = self._occupy(slots[is_free])
        if self._lists is not None:
            latest = dict(zip(slots.tolist(), labels.tolist(), strict=True))
            latest.pop(self.capacity, None)
            new = set(entering.tolist())
            for slot in latest:
                if slot not in new:
                    self._lists.remove(slot, int(self.labels[slot]))
            for slot, label in latest.items():
                self._lists.add(slot, label)
        self.labels[slots] = labels

    def replace(self, slot: int, label: int) -> None:
        """Give one occupied slot to `label`; the quick way for a single one."""
        self.lists.remove(slot, int(self.labels[slot]))
        self.lists.add(slot, label)
        self.labels[slot] = label

    def release(self, slots: Ints) -> None:
        """Free distinct occupied slots."""
        self._in_order = False
        goes = np.zeros(self.capacity, dtype=bool)
        goes[slots] = True
        leaves = goes[self.occupied]
        self.order[: self._held] = np.concatenate([self.occupied[~leaves], self.occupied[leaves]])
        self._position[self.order] = np.arange(self.capacity)
        self._held -= len(slots)
        if not self._held:
            self._lists = None  # empty ones are not saved: whoever loads would fill others
        if self._lists is not None:
            for slot, label in zip(slots.tolist(), self.labels[slots].tolist(), strict=True):
                self._lists.remove(slot, label)

    def state_dict(self) -> dict[str, Tensor]:
        """The order of all slots, the classes of the occupied, and the lists if they are kept."""
        lists = np.empty(0, dtype=np.int64) if self._lists is None else self._lists.flat()
        state = {"order": self.order.copy(), "labels": self.labels[self.occupied], "lists": lists}
        return {name: torch.from_numpy(values) for name, values in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Become the book that `state` was taken from."""
        order, labels, lists = (state[name].numpy() for name in ("order", "labels", "lists"))
        if not np.array_equal(np.sort(order), np.arange(self.capacity)):
            raise ValueError(f"expected each of the {self.capacity} slots once in a memory's state")
        if len(lists) and not np.array_equal(np.sort(lists), np.sort(order[: len(labels)])):
            raise ValueError("expected each occupied slot once in the lists of a memory's state")
        self.order[:] = order
        self._in_order = np.array_equal(order, np.arange(self.capacity))
        self._position[order] = np.arange(self.capacity)
        self._held = len(labels)
        self.labels[self.occupied] = labels
        self._lists = None
        if len(lists):
            self._lists = ClassLists(self.capacity, lists, self.labels[lists])

    def _occupy(self, slots: Ints) -> Ints:
        """Move free slots to the occupied part of the list, in their order; each of them once."""
        start, end = self._held, self._held + len(slots)
        if np.array_equal(self.order[start:end], slots):
            self._held = end
            return slots  # they stand there already, as in a memory that fills up
        self._in_order = False
        slots = np.array(list(dict.fromkeys(slots.tolist())), dtype=np.int64)
        self._held = end = start + len(slots)
        before = self.order[start:end].copy()
        came_from = self._position[slots]
        self.order[start:end] = slots
        self._position[slots] = np.arange(start, end)
        # Slots that stood in the stretch and are not asked for take the places that were left.
        ousted = before[self.order[self._position[before]] != before]
        vacated = came_from[came_from >= end]
        self.order[vacated] = ousted
        self._position[ousted] = vacated
        return slots
