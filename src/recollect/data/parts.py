"""Cuts a data set's rows into disjoint parts, each class in the same proportions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch


def cut(
    labels: np.ndarray, fractions: Sequence[float], generator: torch.Generator
) -> tuple[np.ndarray, ...]:
    """Row numbers of one disjoint, stratified part per fraction, ascending; every row is in one.

    Parts are cut class by class at the rounded cumulative fractions, so that no part of a class is
    off by more than one row. Fractions must add up to one.

    >>> labels = np.array([0] * 10 + [1] * 10)
    >>> [len(part) for part in cut(labels, (0.6, 0.2, 0.2), torch.Generator().manual_seed(0))]
    [12, 4, 4]
    """
    if abs(sum(fractions) - 1) > 1e-9 or min(fractions) < 0:
        raise ValueError(f"fractions must be positive and add up to 1; got {tuple(fractions)}")
    pieces: list[list[np.ndarray]] = [[] for _ in fractions]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rows = rows[torch.randperm(len(rows), generator=generator).numpy()]
        edges = np.rint(np.cumsum(fractions)[:-1] * len(rows)).astype(int)
        for piece, part in zip(pieces, np.split(rows, edges), strict=True):
            piece.append(part)
    empty = np.empty(0, dtype=np.int64)
    return tuple(np.sort(np.concatenate([empty, *piece])) for piece in pieces)
