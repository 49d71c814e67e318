"""Which slot an offered sample goes to: the policies, and the draws they decide by."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeAlias

import numpy as np

from driftwise.memory.draws import Draws
from driftwise.memory.slots import Ints, Slots

Landing: TypeAlias = tuple[Ints | slice, Ints | None]
"""slots (kept,), and positions (kept,) in the offer; None: a slot for every sample, in its order.

The slot `capacity` is nobody's."""


class Policy(Protocol):
    """Says where offered samples go; holds no state, all it needs is passed."""

    name: ClassVar[str]

    def place(self, slots: Slots, labels: Ints, *, seen: int, draws: Draws) -> Landing:
        """Write the samples to keep into the book; their slots, and their positions in the offer.

        labels (samples,) are the classes offered after `seen` samples. Of several samples for one slot the
        last one stands. The same stream in other batches ends in the same slots: every sample takes as
        many draws, used or not.
        """
        ...


class Reservoir:
    """Vitter's algorithm R: every sample of the stream is kept with probability capacity / seen.

    A free slot waits for the draw that hits it. Filling it at once would favour the samples that come
    just after a class was dropped.
    """

    name: ClassVar[str] = "reservoir"

    def place(self, slots: Slots, labels: Ints, *, seen: int, draws: Draws) -> Landing:
        """Each sample goes where algorithm R sends it."""
        samples, capacity = len(labels), slots.capacity
        if seen + samples <= capacity:
            draws.skip(samples)
            filled = slice(seen, seen + samples)
            slots.write(filled, labels)
            return filled, None
        sent = _vitter_slots(draws.take_below(seen + 1, samples), seen, capacity)
        if seen < 2 * capacity:
            # Most samples stay: writing the others, too, where nobody looks, takes a third less time
            # than sorting them out, which copies the images once more.
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
    """A class-balanced reservoir: algorithm R accepts a sample, the largest class makes room for it.

    An accepted sample goes into a free slot if there is one, else it replaces a uniformly random sample
    of the currently largest class, or of one of them at random.
    """

    name: ClassVar[str] = "balanced"

    def place(self, slots: Slots, labels: Ints, *, seen: int, draws: Draws) -> Landing:
        """Each sample that algorithm R accepts, free slots first."""
        numbers, class_draws, sample_draws = draws.take(3 * len(labels)).reshape(-1, 3).T
        drawn = numbers % np.arange(seen + 1, seen + len(labels) + 1)
        (accepted,) = (_vitter_slots(drawn, seen, slots.capacity) < slots.capacity).nonzero()
        free = slots.free[: len(accepted)].copy()  # writing moves what the view shows
        filling, replacing = accepted[: len(free)], accepted[len(free) :]
        slots.write(free, labels[filling])
        if not len(replacing):
            return free, None if len(accepted) == len(labels) else accepted
        replaced = _replace_in_largest(
            slots, labels[replacing], class_draws[replacing], sample_draws[replacing]
        )
        return np.concatenate([free, replaced]), accepted


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Reservoir, Balanced)}
"""Every policy by its name."""


def _vitter_slots(drawn: Ints, seen: int, capacity: int) -> Ints:
    """Where algorithm R sends the next samples, (samples,); beyond the capacity means turned away.

    drawn (samples,) are uniform up to the number of each sample, counted from 0 over the stream.
    """
    if seen >= capacity:
        return drawn
    end = min(seen + len(drawn), capacity)
    return np.concatenate([np.arange(seen, end), drawn[end - seen :]])


def _replace_in_largest(
    slots: Slots, labels: Ints, class_draws: Ints, sample_draws: Ints
) -> list[int]:
    """Write each sample of `labels` over one of a largest class in a full book; the slots, in turn."""
    held = slots.lists.sizes()
    classes = sorted(held.keys() | set(labels.tolist()))
    column = {label: i for i, label in enumerate(classes)}
    sizes = np.array([held.get(label, 0) for label in classes])
    replaced = []
    for label, class_draw, sample_draw in zip(
        labels.tolist(), class_draws.tolist(), sample_draws.tolist(), strict=True
    ):
        (largest,) = (sizes == sizes.max()).nonzero()
        victim = largest[class_draw % len(largest)]
        members = slots.lists.of(classes[victim])
        slot = members[sample_draw % len(members)]
        slots.replace(slot, label)
        sizes[victim] -= 1
        sizes[column[label]] += 1
        replaced.append(slot)
    return replaced
