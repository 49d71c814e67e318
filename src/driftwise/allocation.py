"""Memory for what is computed and kept: plain memory, or a file where there is much of it."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from driftwise.errors import RunFailure
from driftwise.files import writing

MOST_IN_MEMORY = 64 * 2**20
"""Bytes; more than that goes into a file, whose pages the system can take back at any time."""


def allocate(shape: tuple[int, ...], dtype: torch.dtype = torch.uint8) -> Tensor:
    """A tensor to be filled; the file behind a large one goes when the tensor does."""
    count = math.prod(shape)
    size = count * dtype.itemsize
    # Where space cannot be reserved, plain memory is the lesser evil.
    if size <= MOST_IN_MEMORY or not hasattr(os, "posix_fallocate"):
        # numpy requests large pages and torch does not: samples far apart are read 1.3x as fast.
        width = f"i{dtype.itemsize}" if dtype.itemsize <= 8 else f"c{dtype.itemsize}"
        return torch.from_numpy(np.empty(shape, dtype=width)).view(dtype)
    with tempfile.NamedTemporaryFile(prefix="driftwise-") as file:
        with writing(Path(file.name), "free some space or let TMPDIR name another folder"):
            # All of it now: a mapped write without space behind it would end the process.
            os.posix_fallocate(file.fileno(), 0, size)
        flat = torch.from_file(file.name, shared=True, size=count, dtype=dtype)
    return flat.view(shape)


_NO_ROOM = (
    "can't allocate memory",
    "Storage size calculation overflowed",
    "Overflow when unpacking",
)
"""In the messages of torch on the CPU, which has no error type for a lack of memory."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error reports a lack of memory, or a size that no memory could hold."""
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or any(words in str(error) for words in _NO_ROOM)


@contextlib.contextmanager
def clear_out_of_memory(remedy: str) -> Iterator[None]:
    """RunFailure in one line where memory has run out, with what to do."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        if isinstance(error, RunFailure) or not is_out_of_memory(error):
            raise
        details = " ".join(str(error).split())[:300] or type(error).__name__
        raise RunFailure(f"out of memory ({details}); {remedy}") from error


def copy_of(tensor: Tensor) -> Tensor:
    """A dense copy on the CPU, in a file where it is large."""
    return allocate(tuple(tensor.shape), tensor.dtype).copy_(tensor.detach())
