"""Room for pixels that are computed and kept: plain memory, or a file where there are many."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from recollect.files import writing

MOST_IN_MEMORY = 64 * 2**20
"""Bytes; more than that goes into a file, whose pages the system can take back at any time."""


def room_for(shape: tuple[int, ...]) -> Tensor:
    """A uint8 tensor to be filled; the file behind a large one goes when the tensor does."""
    size = math.prod(shape)
    if size <= MOST_IN_MEMORY:
        return torch.empty(shape, dtype=torch.uint8)
    with tempfile.NamedTemporaryFile(prefix="recollect-") as file:
        with writing(Path(file.name), "free some space or let TMPDIR name another folder"):
            # All of it now: a mapped write without space behind it would end the process.
            os.posix_fallocate(file.fileno(), 0, size)
        flat = torch.from_file(file.name, shared=True, size=size, dtype=torch.uint8)
    return flat.view(shape)
