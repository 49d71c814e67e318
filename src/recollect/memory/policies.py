"""Which slot an offered row goes to: the policies, and the draws they decide by."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import torch

from recollect.memory.slots import Ints, Slots

_DRAW_RANGE = 2**62
"""Reduced modulo n, a draw from this range misses uniform by less than n / 2**62."""

Landing: TypeAlias = tuple[Ints, Ints]
"""slots (kept,) and positions (kept,)"""


class Policy(Protocol):
    """Says where offered rows go; holds no state, all it needs is passed."""

    name: ClassVar[str]

    def place(
        self, slots: Slots, labels: Ints, *, seen: int, generator: torch.Generator
    ) -> Landing:
        """Write the rows to keep into the book; their slots, and their positions in the offer.

        labels (rows,) are the classes offered after `seen` rows. Of several rows for one slot the
        last one stands. The same stream in other batches ends in the same slots.
        """
        ...


class Reservoir:
    """Vitter's algorithm R: every row of the stream is kept with probability capacity / seen.

    A free slot waits for the draw that hits it. Filling it at once would favour the rows that come
    just after a class was dropped.
    """

    name: ClassVar[str] = "reservoir"

    def place(
        self, slots: Slots, labels: Ints, *, seen: int, generator: torch.Generator
    ) -> Landing:
        """Each row goes where algorithm R sends it."""
        (draws,) = _draws(1, len(labels), generator)
        sent = _vitter_slots(draws, seen, slots.capacity)
        (accepted,) = (sent < slots.capacity).nonzero()
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

    def place(
        self, slots: Slots, labels: Ints, *, seen: int, generator: torch.Generator
    ) -> Landing:
        """Each row that algorithm R accepts, free slots first."""
        draws, class_draws, row_draws = _draws(3, len(labels), generator)
        (accepted,) = (_vitter_slots(draws, seen, slots.capacity) < slots.capacity).nonzero()
        free = slots.free[: len(accepted)].copy()  # writing moves what the view shows
        filling, replacing = accepted[: len(free)], accepted[len(free) :]
        slots.write(free, labels[filling])
        if not len(replacing):
            return free, accepted
        replaced = _replace_in_largest(
            slots, labels[replacing], class_draws[replacing], row_draws[replacing]
        )
        return np.concatenate([free, replaced]), accepted


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Reservoir, Balanced)}
"""Every policy by its name."""


def _draws(per_row: int, rows: int, generator: torch.Generator) -> Ints:
    """Large uniform numbers, (per_row, rows), to be reduced modulo what is asked for.

    Every row takes as many, used or not, so that batching never shifts what another row gets.
    """
    drawn: Ints = torch.randint(_DRAW_RANGE, (rows, per_row), generator=generator).numpy()
    return drawn.T


def _vitter_slots(draws: Ints, seen: int, capacity: int) -> Ints:
    """Where algorithm R sends the next rows, (rows,); beyond the capacity means turned away."""
    rows = len(draws)
    sent = draws % np.arange(seen + 1, seen + rows + 1)
    if seen < capacity:
        end = min(seen + rows, capacity)
        sent[: end - seen] = np.arange(seen, end)
    return sent


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
