"""Named random generators: the only maker of randomness.

Every consumer forks a generator of its own by name, so adding a consumer never shifts the draws of
another. The global state of torch and numpy is never seeded; where a library can only draw from the
global state (initialising a layer), `as_global` lends it a generator and puts everything back.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import numpy as np
import torch


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed for the consumer named by `path`; the same on every machine.

    >>> derive(0, "memory") == derive(0, "memory"), derive(0, "memory") == derive(0, "shuffle")
    (True, False)
    """
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def fork(seed: int, *path: str | int) -> torch.Generator:
    """A fresh generator for the consumer named by `path`."""
    return torch.Generator().manual_seed(derive(seed, *path))


def legacy(seed: int) -> np.random.RandomState:
    """Numpy's frozen legacy generator, whose draws are promised never to change.

    The published pixel permutations were drawn from it, so it is what reproduces them.
    """
    return np.random.RandomState(seed % 2**32)


@contextlib.contextmanager
def as_global(generator: torch.Generator) -> Iterator[None]:
    """Let code that draws from torch's global CPU state draw from `generator` instead."""
    before = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(torch.get_rng_state())
        torch.set_rng_state(before)


def global_state() -> tuple[bytes, bytes, int]:
    """The global states of torch (CPU) and numpy, to see whether something drew from them."""
    _, key, position, *_ = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().numpy().tobytes(), np.asarray(key).tobytes(), int(position)
