"""Cuts a data set's rows into disjoint parts, each class (and domain) in the same proportions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from recollect import rng
from recollect.types import Dataset, Parts

TRAIN, MONITORED, TEST = 0.6, 0.2, 0.2
"""How a data set without a test part of its own is cut."""

HELD_OUT = 1 / 6
"""The share of the training rows that is held out to be watched, where a test part is given."""


def cut(
    strata: np.ndarray, fractions: Sequence[float], generator: torch.Generator
) -> tuple[np.ndarray, ...]:
    """Row numbers of one disjoint, stratified part per fraction, ascending; every row is in one.

    Parts are cut stratum by stratum at the rounded cumulative fractions, so that no part of one is
    off by more than one row. Fractions must add up to one.

    >>> labels = np.array([0] * 10 + [1] * 10)
    >>> [len(part) for part in cut(labels, (0.6, 0.2, 0.2), torch.Generator().manual_seed(0))]
    [12, 4, 4]
    """
    if abs(sum(fractions) - 1) > 1e-9 or min(fractions) < 0:
        raise ValueError(f"fractions must be positive and add up to 1; got {tuple(fractions)}")
    pieces: list[list[np.ndarray]] = [[] for _ in fractions]
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        rows = rows[torch.randperm(len(rows), generator=generator).numpy()]
        edges = np.rint(np.cumsum(fractions)[:-1] * len(rows)).astype(int)
        for piece, part in zip(pieces, np.split(rows, edges), strict=True):
            piece.append(part)
    empty = np.empty(0, dtype=np.int64)
    return tuple(np.sort(np.concatenate([empty, *piece])) for piece in pieces)


def make_parts(dataset: Dataset, *, watch_test: bool, keep_reference: bool, seed: int) -> Parts:
    """The parts of a run.

    A test part that came with the data is kept; a share of the other rows is held out to be
    watched, and of these, with `keep_reference`, every other row says how a class looked.
    `watch_test` watches the scoring test instead, as the published experiments did, and holds
    nothing out.
    """
    strata = dataset.labels
    if dataset.domains is not None:
        strata = strata * len(dataset.domain_names) + dataset.domains
    draw = rng.fork(seed, "parts")
    if dataset.is_test is None:
        train, monitored, test = cut(strata, (TRAIN, MONITORED, TEST), draw)
    else:
        test, others = np.flatnonzero(dataset.is_test), np.flatnonzero(~dataset.is_test)
        train, monitored = (
            others[part] for part in cut(strata[others], (1 - HELD_OUT, HELD_OUT), draw)
        )
    if watch_test:
        train, monitored = np.sort(np.concatenate([train, monitored])), test
    reference = np.empty(0, dtype=np.int64)
    if keep_reference:
        halves = cut(strata[monitored], (0.5, 0.5), rng.fork(seed, "reference"))
        reference, monitored = (monitored[half] for half in halves)
    return Parts(train=train, monitored=monitored, reference=reference, test=test)
