"""What is rehearsed beside the method's own draws from memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from driftwise import rng
from driftwise.types import Samples


def one_of_each(samples: Samples, *, seed: int) -> Iterator[Samples]:
    """Batches without end, each with one sample of every class among the samples, any of them."""
    pools = [samples.of_class(label) for label in sorted(set(samples.labels.tolist()))]
    samples = Samples.concat(pools)
    sizes = torch.tensor([len(pool) for pool in pools])
    starts = sizes.cumsum(0) - sizes
    draw = rng.fork(seed, "rehearsal")
    while True:
        yield samples[starts + (torch.rand(len(sizes), generator=draw) * sizes).long()]
