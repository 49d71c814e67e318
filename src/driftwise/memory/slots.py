"""Which slots of a buffer are occupied, and by which class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from driftwise.memory.draws import Ints


class Slots:
    """The occupied and free slots of a buffer, and the class in each occupied one.

    All slots stand in one array, the occupied ones first, so that drawing among the occupied and
    finding a free one take the same time at any capacity.
    """

    labels: Ints
    """(capacity,): the class in each slot; meaningless where a slot is free"""
    order: Ints
    """(capacity,): every slot once, the occupied ones first"""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.labels = np.zeros(capacity, dtype=np.int64)
        self.order = np.arange(capacity)
        self._position = np.arange(capacity)  # of each slot in `order`
        self._held = 0
        self._members: defaultdict[int, list[int]] | None = None

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
    def members(self) -> Mapping[int, list[int]]:
        """The occupied slots of each class; kept up to date from the first access on."""
        if self._members is None:
            self._members = self._by_class(np.sort(self.occupied))
        return self._members

    def of_class(self, label: int) -> Ints:
        """The slots of one class, ascending."""
        return np.flatnonzero((self.labels == label) & (self._position < self._held))

    def counts(self) -> dict[int, int]:
        """Samples per class, in ascending order, only classes with samples."""
        labels, counts = np.unique(self.labels[self.occupied], return_counts=True)
        return dict(zip(labels.tolist(), counts.tolist(), strict=True))

    def write(self, slots: Ints, labels: Ints) -> None:
        """Put `labels` (samples,) into `slots` (samples,), free or occupied.

        Of several samples for one slot the last one stays.
        """
        if self._members is not None:
            for slot, label in dict(zip(slots.tolist(), labels.tolist(), strict=True)).items():
                if self._position[slot] < self._held:
                    self._leave(slot)
                self._members[label].append(slot)
        if self._held < self.capacity:
            self._occupy(slots[self._position[slots] >= self._held])
        self.labels[slots] = labels

    def replace(self, slot: int, label: int) -> None:
        """Give one occupied slot to a sample of `label`, while `members` are kept."""
        assert self._members is not None, "only while `members` are kept"
        self._leave(slot)
        self._members[label].append(slot)
        self.labels[slot] = label

    def release(self, slots: Ints) -> None:
        """Free distinct occupied slots."""
        leaves = np.isin(self.occupied, slots)
        self.order[: self._held] = np.concatenate([self.occupied[~leaves], self.occupied[leaves]])
        self._position[self.order] = np.arange(self.capacity)
        self._held -= len(slots)
        if not self._held:
            self._members = None  # empty lists are not saved: a loaded buffer would start new ones
        elif self._members is not None:
            for slot in slots.tolist():
                self._leave(slot)

    def state_dict(self) -> dict[str, Tensor]:
        """The order of all slots, the classes of the occupied, and the members if they are kept."""
        members: Mapping[int, list[int]] = self._members or {}
        lists = [slot for label in sorted(members) for slot in members[label]]
        return {
            "order": torch.from_numpy(self.order.copy()),
            "labels": torch.from_numpy(self.labels[self.occupied]),
            "lists": torch.tensor(lists, dtype=torch.int64),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from the slots that `state` was taken from."""
        order, labels, lists = (state[name].numpy() for name in ("order", "labels", "lists"))
        if not np.array_equal(np.sort(order), np.arange(self.capacity)):
            raise ValueError(f"expected each of the {self.capacity} slots once in a buffer's state")
        if len(lists) and not np.array_equal(np.sort(lists), np.sort(order[: len(labels)])):
            raise ValueError("expected each occupied slot once in the lists of a buffer's state")
        self.order[:] = order
        self._position[order] = np.arange(self.capacity)
        self._held = len(labels)
        self.labels[self.occupied] = labels
        self._members = self._by_class(lists) if len(lists) else None

    def _by_class(self, slots: Ints) -> defaultdict[int, list[int]]:
        members: defaultdict[int, list[int]] = defaultdict(list)
        for slot, label in zip(slots.tolist(), self.labels[slots].tolist(), strict=True):
            members[label].append(slot)
        return members

    def _leave(self, slot: int) -> None:
        """Remove a slot from the members of its class; the last member takes its place."""
        assert self._members is not None, "only while `members` are kept"
        members = self._members[int(self.labels[slot])]
        last = members.pop()
        if last != slot:
            members[members.index(slot)] = last

    def _occupy(self, slots: Ints) -> None:
        """Move free slots to the end of the occupied ones, in their order, each of them once."""
        slots = np.fromiter(dict.fromkeys(slots.tolist()), dtype=np.int64)
        start, end = self._held, self._held + len(slots)
        before, came_from = self.order[start:end].copy(), self._position[slots]
        self.order[start:end] = slots
        self._position[slots] = np.arange(start, end)
        # Other slots that stood in this stretch take the places that were left.
        displaced = before[self.order[self._position[before]] != before]
        vacated = came_from[came_from >= end]
        self.order[vacated] = displaced
        self._position[displaced] = vacated
        self._held = end
