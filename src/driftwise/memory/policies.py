"""Which slot an offered row goes to: the policies, and the draws they decide by."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeAlias

import numpy as np

from driftwise.memory.draws import Draws
from driftwise.memory.slots import Ints, Slots

Landing: TypeAlias = tuple[Ints | slice, Ints | None]
"""slots (kept,), and positions (kept,) in the offer; None: a slot for every row, in its order.

The slot `capacity` is nobody's."""


class Policy(Protocol):
    """Says where offered rows go; holds no state, all it needs is passed."""

    name: ClassVar[str]

    def place(self, slots: Slots, labels: Ints, *, seen: int, draws: Draws) -> Landing:
        """Write the rows to keep into the book; their slots, and their positions in the offer.

        labels (rows,) are the classes offered after `seen` rows. Of several rows for one slot the
        last one stands. The same stream in other batches ends in the same slots: every row takes as
        many draws, used or not.
        """
        ...


class Reservoir:
    """Vitter's algorithm R: every row of the stream is kept with probability capacity / seen.

    A free slot waits for the draw that hits it. Filling it at once would favour the rows that come
    just after a class was dropped.
    """

    name: ClassVar[str] = "reservoir"

    def place(self, slots: Slots, labels: Ints, *, seen: int, draws: Draws) -> Landing:
        """Each row goes where algorithm R sends it."""
        rows, capacity = len(labels), slots.capacity
        if seen + rows <= capacity:
            draws.skip(rows)
            filled = slice(seen, seen + rows)
            slots.write(filled, labels)
            return filled, None
        sent = _vitter_slots(draws.take_below(seen + 1, rows), seen, capacity)
        if seen < 2 * capacity:
            # Most rows stay: writing the others, too, where nobody looks, takes a third less time
            # than sorting them out, which copies the pictures once more.
            sent = np.minimum(sent, capacity)
            slots.write(sent, labels)
            return sent, None
        (accepted,) = (sent < capacity).nonzero()
        if len(accepted):  # late in a stream most offers end here
            sent = sent[accepted]
            slots.write(sent, labels[accepted])
            return sent, accepted
        return accepted, accepted


class Balanced:
    """A class-balanced reservoir: algorithm R accepts a row, the largest class makes room for it.

    An accepted row goes into a free slot if there is one, else it replaces a uniformly random row
    of the currently largest class, or of one of them at random.
    """

    name: ClassVar[str] = "balanced"

    def place(self, slots: Slots, labels: Ints, *, seen: int, draws: Draws) -> Landing:
        """Each row that algorithm R accepts, free slots first."""
        numbers, class_draws, row_draws = draws.take(3 * len(labels)).reshape(-1, 3).T
        drawn = numbers % np.arange(seen + 1, seen + len(labels) + 1)
        (accepted,) = (_vitter_slots(drawn, seen, slots.capacity) < slots.capacity).nonzero()
        free = slots.free[: len(accepted)].copy()  # writing moves what the view shows
        filling, replacing = accepted[: len(free)], accepted[len(free) :]
        slots.write(free, labels[filling])
        if not len(replacing):
            return free, None if len(accepted) == len(labels) else accepted
        replaced = _replace_in_largest(
            slots, labels[replacing], class_draws[replacing], row_draws[replacing]
        )
        return np.concatenate([free, replaced]), accepted


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Reservoir, Balanced)}
"""Every policy by its name."""


def _vitter_slots(drawn: Ints, seen: int, capacity: int) -> Ints:
    """Where algorithm R sends the next rows, (rows,); beyond the capacity means turned away.

    drawn (rows,) are uniform up to the number of each row, counted from 0 over the stream.
    """
    if seen >= capacity:
        return drawn
    end = min(seen + len(drawn), capacity)
    return np.concatenate([np.arange(seen, end), drawn[end - seen :]])


def _replace_in_largest(
    slots: Slots, labels: Ints, class_draws: Ints, row_draws: Ints
) -> list[int]:
    """Write each row of `labels` over one of a largest class in a full book; the slots, in turn."""
    held = slots.lists.sizes()
    classes = sorted(held.keys() | set(labels.tolist()))
    column = {label: i for i, label in enumerate(classes)}
    sizes = np.array([held.get(label, 0) for label in classes])
    replaced = []
    for label, class_draw, row_draw in zip(
        labels.tolist(), class_draws.tolist(), row_draws.tolist(), strict=True
    ):
        (largest,) = (sizes == sizes.max()).nonzero()
        victim = largest[class_draw % len(largest)]
        members = slots.lists.of(classes[victim])
        slot = members[row_draw % len(members)]
        slots.replace(slot, label)
        sizes[victim] -= 1
        sizes[column[label]] += 1
        replaced.append(slot)
    return replaced
