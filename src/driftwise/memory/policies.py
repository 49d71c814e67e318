"""Which offered samples a buffer keeps and in which slots, and the random numbers that decide it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints: TypeAlias = npt.NDArray[np.int64]
Placement: TypeAlias = tuple[Ints, Ints]
"""positions (kept,) of samples in the offer, ascending, and their slots (kept,)"""

RANGE = 2**62
"""Reduced modulo n, a number from this range misses uniform by less than n / 2**62."""
BLOCK = 1024
"""numbers drawn at once: calls of torch for a few numbers each show in an MLP's step"""


class Draws:
    """A generator's numbers below `RANGE`, drawn in blocks.

    Blocks do not show: a state is that of a generator which drew only what was taken.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator  # stands at the beginning of the block
        self._block: Ints = np.empty(0, dtype=np.int64)
        self._taken = 0

    def take(self, count: int) -> Ints:
        """The next numbers, (count,); not to be changed."""
        if self._taken + count > len(self._block):
            ahead = torch.Generator()
            ahead.set_state(self.get_state())
            self._block = torch.randint(RANGE, (max(count, BLOCK),), generator=ahead).numpy()
        self._taken += count
        return self._block[self._taken - count : self._taken]

    def choose(self, count: int, out_of: int) -> Ints:
        """`count` distinct numbers below `out_of`, (count,), every ordered choice equally likely."""
        if 2 * count > out_of:  # the first of a shuffle
            return self.take(out_of).argsort()[:count]
        if 0 < count * count <= 4 * out_of:  # at least one group in eight has no repeats
            while True:
                groups = self.take(4 * count) % out_of
                numbers = groups.tolist()
                for end in range(count, len(numbers) + 1, count):
                    if len(set(numbers[end - count : end])) == count:
                        self._taken += end - len(numbers)  # the others are for the next choice
                        return groups[end - count : end]
        picked: dict[int, None] = {}
        while (missing := count - len(picked)) > 0:
            picked.update(dict.fromkeys((self.take(2 * missing) % out_of).tolist()))
        return np.fromiter(picked, dtype=np.int64, count=count)

    def get_state(self) -> Tensor:
        """The state of the generator after the numbers that were taken."""
        torch.randint(RANGE, (self._taken,), generator=self._generator)
        self._block, self._taken = self._block[self._taken :], 0
        return self._generator.get_state()

    def set_state(self, state: Tensor) -> None:
        """Continue from a state."""
        self._generator.set_state(state)
        self._block, self._taken = self._block[:0], 0


class Slots:
    """The occupied and free slots of a buffer, and the class in each occupied one.

    All slots stand in one array, the occupied ones first, so that drawing among the occupied and
    finding a free one take the same time at any capacity.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.labels = np.zeros(capacity, dtype=np.int64)
        """(capacity,): the class in each slot; meaningless where a slot is free"""
        self.order = np.arange(capacity)
        """(capacity,): every slot once, the occupied ones first"""
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

    def write(self, slots: Ints, labels: Ints) -> None:
        """Put `labels` (samples,) into `slots` (samples,), free or occupied.

        Of several samples for one slot the last one stays.
        """
        if self._members is not None:
            for slot, label in dict(zip(slots.tolist(), labels.tolist(), strict=True)).items():
                if self._position[slot] < self._held:
                    self._leave(slot, self._members)
                self._members[label].append(slot)
        if self._held < self.capacity:
            self._occupy(slots[self._position[slots] >= self._held])
        self.labels[slots] = labels

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
                self._leave(slot, self._members)

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

    def _leave(self, slot: int, members: Mapping[int, list[int]]) -> None:
        """Remove a slot from the members of its class; the last member takes its place."""
        own = members[int(self.labels[slot])]
        last = own.pop()
        if last != slot:
            own[own.index(slot)] = last

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


class Policy(Protocol):
    """Decides where offered samples go. It holds no state: all it needs is passed."""

    name: ClassVar[str]

    def place(self, slots: Slots, labels: Ints, *, seen: int, draws: Draws) -> Placement:
        """Write the samples to keep into `slots`; which they are, and where.

        labels (samples,) are the classes of the samples offered after `seen` others. Of several
        samples for one slot the last one stays. The same stream in other batches must end in the
        same slots: every sample takes the same number of draws, used or not.
        """
        ...


class Reservoir:
    """Algorithm R: every sample of the stream is kept with probability capacity / seen.

    Sample n of the stream, counted from 0, goes to slot n while n < capacity, and then to slot j
    drawn uniformly from 0 ... n, if j < capacity. A slot that was freed waits for the draw that hits
    it: filling it at once would favour the samples that come just after a class was dropped.

    Reference:
        J. S. Vitter. Random sampling with a reservoir. ACM Transactions on Mathematical Software,
        11(1), 1985.
    """

    name: ClassVar[str] = "reservoir"

    def place(self, slots: Slots, labels: Ints, *, seen: int, draws: Draws) -> Placement:
        """Each sample goes where algorithm R sends it."""
        kept, sent = _vitter(draws.take(len(labels)), seen, slots.capacity)
        if len(kept):  # late in a stream, most batches end here
            slots.write(sent, labels[kept])
        return kept, sent


class Balanced:
    """A class-balanced reservoir: algorithm R accepts a sample, the largest class makes room for it.

    An accepted sample goes into a free slot if there is one. Else it replaces a uniformly random
    sample of the currently largest class, or of one of them at random.

    Reference:
        After A. Chrysakis, M.-F. Moens. Online continual learning from imbalanced data. ICML, 2020,
        which accepts by class what algorithm R accepts here from the whole stream.
    """

    name: ClassVar[str] = "balanced"

    def place(self, slots: Slots, labels: Ints, *, seen: int, draws: Draws) -> Placement:
        """Each sample that algorithm R accepts, free slots first."""
        accepting, class_draws, sample_draws = draws.take(3 * len(labels)).reshape(-1, 3).T
        accepted, _ = _vitter(accepting, seen, slots.capacity)
        free = slots.free[: len(accepted)].copy()  # writing changes what the view shows
        slots.write(free, labels[accepted[: len(free)]])
        sent = free.tolist()
        for i in accepted[len(free) :].tolist():
            members = slots.members
            largest = max(map(len, members.values()))
            tied = sorted(label for label, own in members.items() if len(own) == largest)
            victims = members[tied[class_draws[i] % len(tied)]]
            sent.append(victims[sample_draws[i] % largest])
            slots.write(np.array(sent[-1:]), labels[i : i + 1])
        return accepted, np.array(sent, dtype=np.int64)


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Reservoir, Balanced)}
"""Every policy by its name."""


def _vitter(numbers: Ints, seen: int, capacity: int) -> Placement:
    """Which of the samples after `seen` others algorithm R keeps, and where it sends them."""
    sent = numbers % np.arange(seen + 1, seen + 1 + len(numbers))
    if seen < capacity:
        filling = min(capacity - seen, len(numbers))
        sent[:filling] = np.arange(seen, seen + filling)
    kept = (sent < capacity).nonzero()[0]
    return kept, sent.take(kept)
