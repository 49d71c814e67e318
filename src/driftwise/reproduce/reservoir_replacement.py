"""How soon a reservoir by itself throws out the stale rows of a drifted class (Theorem 2).

`rows` counts the rows of any class offered since the drift, `seen` those offered before it, `stale`
the rows in question. All formulas take arrays of `rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln

from driftwise import rng
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.types import Samples

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def paper_chance_replaced(rows: npt.ArrayLike, *, capacity: int) -> Floats:
    """The paper's chance that one stale row is gone: every new row hits it with 1 / capacity.

    >>> paper_chance_replaced([0, 1, 2], capacity=2).tolist()
    [0.0, 0.5, 0.75]
    """
    return 1 - (1 - 1 / capacity) ** np.asarray(rows, dtype=np.float64)


def chance_replaced(rows: npt.ArrayLike, *, seen: int, capacity: int) -> Floats:
    """The exact one: the j-th row of the stream hits a given slot of a full memory with 1 / j.

    >>> chance_replaced([0, 1, 2], seen=2, capacity=2).tolist()
    [0.0, 0.3333333333333333, 0.5]
    """
    before, since = _since_full(rows, seen=seen, capacity=capacity)
    return since / (before + since)


def paper_chance_all_replaced(rows: npt.ArrayLike, *, stale: int, capacity: int) -> Floats:
    """The paper's chance that all stale rows are gone; NaN past `capacity` rows, where its
    binomials mean nothing."""
    since = np.asarray(rows, dtype=np.float64)
    chance = _ratio_of_choices(since, np.asarray(float(capacity)), stale)
    return np.where(since <= capacity, chance, np.nan)


def chance_all_replaced(rows: npt.ArrayLike, *, stale: int, seen: int, capacity: int) -> Floats:
    """The exact one: C(rows, stale) / C(seen + rows, stale).

    A given set of s slots is missed by all of the rows with chance C(seen, s) / C(seen + rows, s);
    inclusion and exclusion over the stale slots, by Vandermonde's identity, leaves this.

    >>> chance_all_replaced([1, 2], stale=2, seen=2, capacity=2).tolist()
    [0.0, 0.16666666666666669]
    """
    before, since = _since_full(rows, seen=seen, capacity=capacity)
    return _ratio_of_choices(since, before + since, stale)


def _since_full(rows: npt.ArrayLike, *, seen: int, capacity: int) -> tuple[Floats, Floats]:
    """Rows before and since the drift, as if it came when the memory was full: until then rows go
    to empty slots and replace nothing."""
    before = np.asarray(float(max(seen, capacity)))
    after = np.maximum(seen + np.asarray(rows, dtype=np.float64), before)
    return before, after - before


def _ratio_of_choices(few: Floats, many: Floats, choose: int) -> Floats:
    """C(few, choose) / C(many, choose), without the overflow of either."""
    enough = np.maximum(few, choose)
    logarithm = (
        gammaln(enough + 1)
        - gammaln(enough - choose + 1)
        - gammaln(np.maximum(many, choose) + 1)
        + gammaln(np.maximum(many, choose) - choose + 1)
    )
    ratio: Floats = np.where(few >= choose, np.exp(np.minimum(logarithm, 0.0)), 0.0)
    return ratio


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """What many simulated memories did with their stale rows, by rows offered since the drift."""

    rows: tuple[int, ...]
    gone: Floats
    """(repeats, rows): share of the stale rows that are no longer in memory"""
    stale: Ints
    """(repeats,): stale rows at the drift"""

    @property
    def replaced(self) -> Floats:
        """(rows,): how often a stale row was replaced."""
        return np.average(self.gone, axis=0, weights=self.stale)

    @property
    def replaced_error(self) -> Floats:
        """(rows,): standard error of that, over repeats."""
        spread: Floats = self.gone.std(axis=0, ddof=1) / np.sqrt(len(self.gone))
        return spread

    @property
    def all_replaced(self) -> Floats:
        """(rows,): how often all of them were."""
        share: Floats = (self.gone == 1).mean(axis=0)
        return share


def simulate(
    before: Ints,
    after: Ints,
    *,
    drifted: int,
    rows: Sequence[int],
    capacity: int,
    policy: str,
    repeats: int,
    seed: int,
) -> Replacement:
    """Offer a stream of labels to real memories: `before` the drift, then up to `rows` of `after`.

    Stale are the rows of the class `drifted` that a memory holds when the drift comes. Repeats in
    which it holds none are left out.
    """
    stream = _rows_of(np.concatenate([before, after]))
    stops = [len(before) + count for count in rows]
    gone, stale = [], []
    for repeat in range(repeats):
        memory = ReplayBuffer(
            capacity, policy=POLICIES[policy](), seed=rng.derive(seed, policy, repeat)
        )
        memory.offer(stream[: len(before)])
        held = len(memory.samples_of(drifted))
        if not held:
            continue
        left, at = [], len(before)
        for stop in stops:
            memory.offer(stream[at:stop])
            at = stop
            left.append(int((memory.samples_of(drifted).ids < len(before)).sum()))
        gone.append(1 - np.array(left) / held)
        stale.append(held)
    shares = np.array(gone, dtype=np.float64).reshape(len(gone), len(stops))
    return Replacement(rows=tuple(rows), gone=shares, stale=np.array(stale, dtype=np.int64))


def _rows_of(labels: Ints) -> Samples:
    """Rows that are nothing but a label and a number."""
    number = torch.arange(len(labels))
    return Samples(
        images=torch.zeros(len(labels), 1, dtype=torch.uint8),
        labels=torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64)),
        ids=number,
        concepts=torch.zeros_like(number),
    )
