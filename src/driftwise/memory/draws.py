"""Random numbers made ahead: asking torch for a few at a time costs more than the numbers do.

What is made ahead is never part of a state. A generator is saved as if every number had been drawn
when it was asked for, so neither blocks nor savings shift what comes next.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from driftwise.memory.slots import Ints

RANGE = 2**62
"""Reduced modulo n, a number from this range misses uniform by less than n / 2**62."""
BLOCK = 4096
"""numbers made at a time: 25 us for all of them, where 32 by themselves take 4 to 15"""
FEW_GROUPS = 8
"""that are looked at when a new kind of choice is asked for, which may never come again"""


class Draws:
    """A generator's numbers below `RANGE`, one after the other."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator  # stands where the block begins
        self._block: Ints = np.empty(0, dtype=np.int64)
        self._taken = 0
        self._reduced = self._block
        self._lead: int | None = None  # of a modulus in `_reduced` over the number's place

    def take(self, count: int) -> Ints:
        """The next numbers, (count,); not to be changed."""
        drawn = self.ahead(count)
        self._taken += count
        return drawn

    def take_below(self, first: int, count: int) -> Ints:
        """The next numbers modulo `first`, `first + 1` and so on, (count,); not to be changed.

        Who goes on where it left off finds them reduced already: 3 us less for 32 of them.
        """
        self.ahead(count)
        start = self._taken
        if self._lead != first - start:
            self._lead = first - start
            self._reduced = np.empty_like(self._block)
            self._reduced[start:] = self._block[start:] % np.arange(
                first, first + len(self._block) - start
            )
        self._taken += count
        return self._reduced[start : start + count]

    def ahead(self, count: int) -> Ints:
        """The next numbers, (count,), which are still to come; not to be changed."""
        if self._taken + count > len(self._block):
            self._make(max(count, BLOCK))
        return self._block[self._taken : self._taken + count]

    def skip(self, count: int) -> None:
        """Pass over the next numbers."""
        self._taken += count

    def get_state(self) -> Tensor:
        """The generator's, had it made what was taken and nothing else."""
        self._settle()
        return self._generator.get_state()

    def set_state(self, state: Tensor) -> None:
        """Go on from there."""
        self._generator.set_state(state)
        self._begin_at(len(self._block))

    def _make(self, count: int) -> None:
        self._settle()
        ahead = torch.Generator()
        ahead.set_state(self._generator.get_state())
        self._block = torch.randint(RANGE, (count,), generator=ahead).numpy()

    def _settle(self) -> None:
        """Let the generator make again what was taken, and the block begin behind it."""
        torch.randint(RANGE, (self._taken,), generator=self._generator)
        self._begin_at(self._taken)

    def _begin_at(self, place: int) -> None:
        self._block = self._block[place:]
        self._taken = 0
        self._lead = None


class Picks:
    """Distinct numbers, every ordered choice equally likely and independent of the others."""

    def __init__(self, generator: torch.Generator) -> None:
        self._draws = Draws(generator)
        self._asked = (0, 0)
        self._ready: list[tuple[Ints, int]] = []

    def take(self, count: int, out_of: int) -> Ints:
        """`count` of the numbers below `out_of`, (count,)."""
        if not 0 < count * count <= 4 * out_of or 2 * count > out_of:
            self._ready = []  # its numbers are used up here
            return self._one_by_one(count, out_of)
        # A group of numbers is such a choice if it has no repeats. At least one in eight has none,
        # and looking at many at once takes 1 to 4 us for each of them, instead of 12.
        if not self._ready or self._asked != (count, out_of):
            self._look_ahead(count, out_of)
        picks, numbers = self._ready.pop()
        self._draws.skip(numbers)
        return picks

    def get_state(self) -> Tensor:
        """The generator's, had it made what was needed so far and nothing else."""
        return self._draws.get_state()

    def set_state(self, state: Tensor) -> None:
        """Go on from there."""
        self._draws.set_state(state)
        self._ready = []

    def _one_by_one(self, count: int, out_of: int) -> Ints:
        """Each of them is uniform over those that had not come."""
        if 2 * count > out_of:  # the beginning of a shuffle
            return self._draws.take(out_of).argsort()[:count]
        picked: dict[int, None] = {}
        while (missing := count - len(picked)) > 0:
            # Twice as many as are missing: a second turn would cost more than what is left over.
            picked.update(dict.fromkeys((self._draws.take(2 * missing) % out_of).tolist()))
        return np.fromiter(picked, dtype=np.int64, count=count)

    def _look_ahead(self, count: int, out_of: int) -> None:
        """Find groups without repeats, each with the numbers up to its end since the one before."""
        again = self._asked == (count, out_of)
        num_groups = max(FEW_GROUPS, BLOCK // count if again else 0)
        self._asked = (count, out_of)
        while True:
            groups = (self._draws.ahead(num_groups * count) % out_of).reshape(num_groups, count)
            ascending = np.sort(groups, axis=1)
            (good,) = (ascending[:, 1:] != ascending[:, :-1]).all(axis=1).nonzero()
            if len(good):
                break
            self._draws.skip(num_groups * count)
        numbers = np.diff(good, prepend=-1) * count
        self._ready = list(zip(groups[good], numbers.tolist(), strict=True))[::-1]
