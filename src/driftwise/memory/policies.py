"""Which offered samples a buffer keeps, and in which slots."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeAlias

import numpy as np

from driftwise.memory.draws import Draws, Ints
from driftwise.memory.slots import Slots

Placement: TypeAlias = tuple[Ints, Ints]
"""positions (kept,) of samples in the offer, ascending, and their slots (kept,)"""


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
        sent = _vitter_slots(draws.take(len(labels)), seen, slots.capacity)
        kept = np.flatnonzero(sent < slots.capacity)
        if len(kept):  # late in a stream, most batches end here
            sent = sent[kept]
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
        accepted = np.flatnonzero(_vitter_slots(accepting, seen, slots.capacity) < slots.capacity)
        free = slots.free[: len(accepted)].copy()  # writing changes what the view shows
        filling, replacing = accepted[: len(free)], accepted[len(free) :]
        slots.write(free, labels[filling])
        replaced = []
        for i in replacing.tolist():
            members = slots.members
            largest = max(map(len, members.values()))
            tied = sorted(label for label, own in members.items() if len(own) == largest)
            victims = members[tied[class_draws[i] % len(tied)]]
            replaced.append(victims[sample_draws[i] % largest])
            slots.replace(replaced[-1], int(labels[i]))
        return accepted, np.concatenate([free, np.array(replaced, dtype=np.int64)])


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Reservoir, Balanced)}
"""Every policy by its name."""


def _vitter_slots(numbers: Ints, seen: int, capacity: int) -> Ints:
    """Where algorithm R sends the samples after `seen` others, (samples,)."""
    n = np.arange(seen, seen + len(numbers))
    sent: Ints = numbers % (n + 1)
    filling = max(0, capacity - seen)
    sent[:filling] = n[:filling]
    return sent
