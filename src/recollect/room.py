"""Room for what is computed and kept: plain memory, or a file where there is much of it."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recollect.files import writing

MOST_IN_MEMORY = 64 * 2**20
"""Bytes; more than that goes into a file, whose pages the system can take back at any time."""


def room_for(shape: tuple[int, ...], dtype: torch.dtype = torch.uint8) -> Tensor:
    """A tensor to be filled; the file behind a large one goes when the tensor does."""
    count = math.prod(shape)
    size = count * dtype.itemsize
    # Where space cannot be reserved, plain memory is the lesser evil.
    if size <= MOST_IN_MEMORY or not hasattr(os, "posix_fallocate"):
        # numpy asks for large pages where torch does not: rows far apart are read 1.3x as fast.
        width = f"i{dtype.itemsize}" if dtype.itemsize <= 8 else f"c{dtype.itemsize}"
        return torch.from_numpy(np.empty(shape, dtype=width)).view(dtype)
    with tempfile.NamedTemporaryFile(prefix="recollect-") as file:
        with writing(Path(file.name), "free some space or let TMPDIR name another folder"):
            # All of it now: a mapped write without space behind it would end the process.
            os.posix_fallocate(file.fileno(), 0, size)
        flat = torch.from_file(file.name, shared=True, size=count, dtype=dtype)
    return flat.view(shape)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that there is no room left."""
    # On the CPU, torch has no type of its own for it.
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "can't allocate memory" in str(error)


def copy_of(tensor: Tensor) -> Tensor:
    """A dense copy on the CPU, in a file where it is large."""
    return room_for(tuple(tensor.shape), tensor.dtype).copy_(tensor.detach())
