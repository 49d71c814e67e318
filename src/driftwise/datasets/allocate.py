"""Where a reader puts pixels: plain memory, or a file that is mapped into it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Allocate = Callable[[tuple[int, ...]], np.ndarray]
"""Gives a uint8 array of that shape to be filled."""


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """A uint8 array in plain memory, not yet filled."""
    return np.empty(shape, dtype=np.uint8)


def discard(shape: tuple[int, ...]) -> np.ndarray:
    """An array for pixels that nobody wants: all of its samples are the same piece of memory."""
    sample = np.empty(shape[1:], dtype=np.uint8)
    return np.lib.stride_tricks.as_strided(sample, shape=shape, strides=(0, *sample.strides))
