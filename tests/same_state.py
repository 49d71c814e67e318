"""Equality of nested states, to the last bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def same(first: Any, second: Any) -> bool:
    """Whether two trees of dict, list, tuple, Tensor and plain values are equal, bit for bit."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and type(first) is type(second):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and bool(first == second)
