"""Random numbers for the buffer: uniform integers, and choices without replacement."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints: TypeAlias = npt.NDArray[np.int64]

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
                group: Ints = self.take(count) % out_of
                if len(set(group.tolist())) == count:
                    return group
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
