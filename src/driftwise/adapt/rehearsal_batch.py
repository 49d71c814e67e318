"""What is rehearsed beside the method's own draws from memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from driftwise import rng
from driftwise.types import Rows


def one_of_each(rows: Rows, *, seed: int) -> Iterator[Rows]:
    """Batches without end, each with one row of every class among the rows, any of them."""
    pools = [rows.of_class(label) for label in sorted(set(rows.labels.tolist()))]
    rows = Rows.concat(pools)
    sizes = torch.tensor([len(pool) for pool in pools])
    starts = sizes.cumsum(0) - sizes
    draw = rng.fork(seed, "rehearsal")
    while True:
        yield rows[starts + (torch.rand(len(sizes), generator=draw) * sizes).long()]
