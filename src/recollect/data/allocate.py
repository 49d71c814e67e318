"""Where a reader puts pixels: plain memory, or a file that is mapped into it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Allocate = Callable[[tuple[int, ...]], np.ndarray]
"""Gives a uint8 array of that shape to be filled."""


def empty(shape: tuple[int, ...]) -> np.ndarray:
    """A uint8 array in plain memory, not yet filled."""
    return np.empty(shape, dtype=np.uint8)
