"""What a rehearsal goes over: every class equally often."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from recollect import rng
from recollect.shapes import Replay
from recollect.types import Rows


def one_of_each(memory: Replay, *, beside: Rows | None = None, seed: int) -> Iterator[Rows]:
    """Batches without end, each with one row of every class in memory, any of them.

    Rows `beside` are taken for as many more of their classes.
    """
    pools = []
    for label in memory.counts():
        held = memory.rows_of(label)
        more = None if beside is None else beside.of_class(label)
        pools.append(held if more is None or not len(more) else Rows.concat([held, more]))
    rows = Rows.concat(pools)
    sizes = torch.tensor([len(pool) for pool in pools])
    starts = sizes.cumsum(0) - sizes
    draw = rng.fork(seed, "rehearsal")
    while True:
        yield rows[starts + (torch.rand(len(sizes), generator=draw) * sizes).long()]
