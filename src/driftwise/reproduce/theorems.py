"""The paper's theorems as formulas: gradient alignment (1, 3 and 4) and the reservoir (2).

Alignment: `old` and `new` are the gradients of the mean loss on samples of one class, in its old
and in its new concept. A buffer in which a fraction a of the class's samples has been realigned
trains along (1 - a) old + a new; the paper adds one more `new`, from a stream that brings the new
concept with labels. Efficiency is the cosine between that sum and `new`.

Reservoir: how soon it replaces the stale samples of a drifted class by itself. `offered` counts the
samples of any class since the drift, `seen` those before it, `stale` the samples in question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from driftwise import rng
from driftwise.learner import evaluating
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.types import Samples

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def mean_gradient(network: nn.Module, x: Tensor, y: Tensor, *, batch_size: int = 512) -> Tensor:
    """Gradient of the mean cross-entropy on samples (at least one), all parameters in one float64
    (parameters,), on the CPU.

    The network is evaluated in evaluation mode and nothing changes: weights, `.grad`, statistics,
    modes and the global random state stay as they are.
    """
    if not len(y):
        raise ValueError("a mean gradient needs at least one sample; got none")
    parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
    total = torch.zeros(sum(p.numel() for p in parameters.values()), dtype=torch.float64)
    # A network that draws random numbers even now draws the same ones for every set of samples.
    with evaluating(network), torch.enable_grad(), rng.as_global(rng.fork(0, "theory")):
        for some_x, some_y in zip(*(torch.split(each, batch_size) for each in (x, y)), strict=True):
            buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
            logits = functional_call(network, {**parameters, **buffers}, (some_x,))
            loss = cross_entropy(logits.float(), some_y, reduction="sum")
            parts = torch.autograd.grad(
                loss, list(parameters.values()), allow_unused=True, materialize_grads=True
            )
            total += torch.cat([part.flatten() for part in parts]).double().cpu()
    return total / len(y)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The inner products of an old and a new gradient: all that the formulas need."""

    old_old: float
    new_new: float
    old_new: float

    @staticmethod
    def of(old: Tensor, new: Tensor) -> Pair:
        """The inner products of two gradients, (parameters,) each."""
        old, new = old.double(), new.double()
        return Pair(old_old=float(old @ old), new_new=float(new @ new), old_new=float(old @ new))

    @property
    def cosine(self) -> float | None:
        """Theorem 1's measure of interference; None where a gradient is zero."""
        if not self.old_old or not self.new_new:
            return None
        return max(-1.0, min(1.0, self.old_new / math.sqrt(self.old_old * self.new_new)))

    @property
    def parallelogram(self) -> float:
        """Square of the area that the gradients span: 0 exactly where they lie on one line."""
        return max(0.0, self.old_old * self.new_new - self.old_new**2)


def cosine(first: Tensor, second: Tensor) -> float | None:
    """Cosine of the angle between two gradients; None where one of them is zero."""
    return Pair.of(first, second).cosine


def efficiency(pair: Pair, fractions: Tensor) -> Tensor:
    """The paper's alignment efficiency, (fractions,): new + (1 - a) old + a new against new.

    NaN where the sum vanishes.

    >>> orthogonal = Pair(old_old=1.0, new_new=1.0, old_new=0.0)
    >>> [round(value, 3) for value in efficiency(orthogonal, torch.tensor([0.0, 1.0])).tolist()]
    [0.707, 1.0]
    """
    return _toward_new(pair, of_old=1 - fractions.double(), of_new=1 + fractions.double())


def mixture_efficiency(pair: Pair, fractions: Tensor) -> Tensor:
    """The same for what realignment trains on, (fractions,): (1 - a) old + a new against new.

    >>> orthogonal = Pair(old_old=1.0, new_new=1.0, old_new=0.0)
    >>> mixture_efficiency(orthogonal, torch.tensor([0.0, 1.0])).tolist()
    [0.0, 1.0]
    """
    return _toward_new(pair, of_old=1 - fractions.double(), of_new=fractions.double())


def efficiency_slope(pair: Pair, fractions: Tensor) -> Tensor:
    """Derivative of `efficiency` by the fraction, (fractions,).

    2 (1 - a) area^2 / (|new| |sum|^3): no factor can be negative, which proves Theorem 4 for all
    gradients that do not lie on one line.
    """
    rest = 1 - fractions.double()
    length = _length(pair, rest, 1 + fractions.double())
    slope: Tensor = 2 * rest * pair.parallelogram / (math.sqrt(pair.new_new) * length**3)
    return slope


def _toward_new(pair: Pair, *, of_old: Tensor, of_new: Tensor) -> Tensor:
    along = of_new * pair.new_new + of_old * pair.old_new
    cosines = along / (_length(pair, of_old, of_new) * math.sqrt(pair.new_new))
    return cosines.clamp(-1.0, 1.0).where(cosines.isfinite(), torch.nan)


def _length(pair: Pair, of_old: Tensor, of_new: Tensor) -> Tensor:
    square = (
        of_old**2 * pair.old_old + 2 * of_old * of_new * pair.old_new + of_new**2 * pair.new_new
    )
    return square.clamp(min=0).sqrt()


def paper_chance_replaced(offered: npt.ArrayLike, *, capacity: int) -> Floats:
    """The paper's chance that one stale sample is gone: every new one replaces it with 1/capacity.

    >>> paper_chance_replaced([0, 1, 2], capacity=2).tolist()
    [0.0, 0.5, 0.75]
    """
    return 1 - (1 - 1 / capacity) ** np.asarray(offered, dtype=np.float64)


def chance_replaced(offered: npt.ArrayLike, *, seen: int, capacity: int) -> Floats:
    """The exact one: sample j of the stream replaces a given slot of a full buffer with 1/j.

    >>> chance_replaced([0, 1, 2], seen=2, capacity=2).tolist()
    [0.0, 0.3333333333333333, 0.5]
    """
    before, since = _since_full(offered, seen=seen, capacity=capacity)
    return since / (before + since)


def paper_chance_all_replaced(offered: npt.ArrayLike, *, stale: int, capacity: int) -> Floats:
    """The paper's chance that all stale samples are gone; NaN past `capacity` samples, where its
    binomials are undefined."""
    since = np.asarray(offered, dtype=np.float64)
    chance = _ratio_of_choices(since, np.asarray(float(capacity)), stale)
    return np.where(since <= capacity, chance, np.nan)


def chance_all_replaced(offered: npt.ArrayLike, *, stale: int, seen: int, capacity: int) -> Floats:
    """The exact one: C(offered, stale) / C(seen + offered, stale).

    None of the samples replaces a given set of s slots with chance C(seen, s) / C(seen + offered,
    s); inclusion and exclusion over the stale slots, by Vandermonde's identity, leaves this.

    >>> chance_all_replaced([1, 2], stale=2, seen=2, capacity=2).tolist()
    [0.0, 0.16666666666666669]
    """
    before, since = _since_full(offered, seen=seen, capacity=capacity)
    return _ratio_of_choices(since, before + since, stale)


def _since_full(offered: npt.ArrayLike, *, seen: int, capacity: int) -> tuple[Floats, Floats]:
    """Samples before and since the drift, as if it came when the buffer was full: until then
    samples go to empty slots and replace nothing."""
    before = np.asarray(float(max(seen, capacity)))
    after = np.maximum(seen + np.asarray(offered, dtype=np.float64), before)
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
    """The stale samples of many simulated buffers, by samples offered since the drift."""

    gone: Floats
    """(repeats, offered): fraction of the stale samples that are no longer in the buffer"""
    stale: Ints
    """(repeats,): stale samples at the drift"""

    @property
    def replaced(self) -> Floats:
        """(offered,): how often a stale sample was replaced."""
        return np.average(self.gone, axis=0, weights=self.stale)

    @property
    def replaced_error(self) -> Floats:
        """(offered,): standard error of that, over repeats."""
        spread: Floats = self.gone.std(axis=0, ddof=1) / np.sqrt(len(self.gone))
        return spread

    @property
    def all_replaced(self) -> Floats:
        """(offered,): how often all of them were."""
        fraction: Floats = (self.gone == 1).mean(axis=0)
        return fraction


def simulate(
    before: Ints,
    after: Ints,
    *,
    drifted: int,
    offered: Sequence[int],
    capacity: int,
    policy: str,
    repeats: int,
    seed: int,
) -> Replacement:
    """Offer a stream of labels to real buffers: `before` the drift, then up to `offered` of `after`.

    Stale are the samples of the class `drifted` that a buffer holds when the drift comes. Repeats
    in which it holds none are left out.
    """
    labels = torch.from_numpy(np.concatenate([before, after]).astype(np.int64))
    stream = Samples(
        images=torch.zeros(len(labels), 1, dtype=torch.uint8),
        labels=labels,
        ids=torch.arange(len(labels)),
        concepts=torch.zeros_like(labels),
    )
    gone, stale = [], []
    for repeat in range(repeats):
        generator = rng.derive(seed, policy, repeat)
        buffer = ReplayBuffer(capacity, policy=POLICIES[policy](), seed=generator)
        buffer.offer(stream[: len(before)])
        held = len(buffer.samples_of(drifted))
        if not held:
            continue
        left, at = [], len(before)
        for stop in (len(before) + count for count in offered):
            buffer.offer(stream[at:stop])
            at = stop
            left.append(int((buffer.samples_of(drifted).ids < len(before)).sum()))
        gone.append(1 - np.array(left) / held)
        stale.append(held)
    fractions = np.array(gone, dtype=np.float64).reshape(len(gone), len(offered))
    return Replacement(gone=fractions, stale=np.array(stale, dtype=np.int64))
