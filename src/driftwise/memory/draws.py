"""Random numbers for the buffer: uniform integers, and choices without replacement."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Ints: TypeAlias = npt.NDArray[np.int64]

RANGE = 2**62
"""Reduced modulo n, a number from this range misses uniform by less than n / 2**62."""


def draw(generator: torch.Generator, count: int) -> Ints:
    """The generator's next numbers below `RANGE`, (count,).

    Two draws in a row give the same numbers as one draw of both.
    """
    # torch.randint gives the same numbers and takes twice as long for a few of them.
    numbers = torch.empty(count, dtype=torch.int64).random_(RANGE, generator=generator)
    return numbers.numpy()


def choose(generator: torch.Generator, count: int, out_of: int) -> Ints:
    """`count` distinct numbers below `out_of`, (count,); every ordered choice is equally likely."""
    if 2 * count > out_of:  # the first of a shuffle
        return draw(generator, out_of).argsort()[:count]
    if 0 < count * count <= 4 * out_of:  # at least one group in eight has no repeats
        numbers = torch.empty(count, dtype=torch.int64)
        while True:
            group: Ints = numbers.random_(RANGE, generator=generator).numpy() % out_of
            if len(set(group.tolist())) == count:
                return group
    picked: dict[int, None] = {}
    while (missing := count - len(picked)) > 0:
        picked.update(dict.fromkeys((draw(generator, 2 * missing) % out_of).tolist()))
    return np.fromiter(picked, dtype=np.int64, count=count)
