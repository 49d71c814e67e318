"""Gradient alignment of a drifted class (Theorems 1, 3 and 4).

`old` and `new` are the gradients of the mean loss on rows of one class, in its old and in its new
look. A memory in which a share a of the class's rows has been rewritten pulls along
(1 - a) old + a new; the paper adds one more `new`, from a stream that brings the new look labelled.
Efficiency is the cosine between that pull and `new`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from driftwise import rng


def mean_gradient(network: nn.Module, x: Tensor, y: Tensor, *, batch_rows: int = 512) -> Tensor:
    """Gradient of the mean cross-entropy on rows (at least one), all parameters in one float64
    (parameters,), on the CPU.

    The network is asked in evaluation mode and nothing changes by it: weights, `.grad`,
    statistics, modes and the global random state stay as they are.
    """
    if not len(y):
        raise ValueError("a mean gradient needs at least one row; got none")
    parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
    total = torch.zeros(sum(p.numel() for p in parameters.values()), dtype=torch.float64)
    # A network that draws random numbers even now draws the same ones for every set of rows.
    with _evaluating(network), torch.enable_grad(), rng.as_global(rng.fork(0, "theory")):
        for some_x, some_y in zip(
            torch.split(x, batch_rows), torch.split(y, batch_rows), strict=True
        ):
            buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
            logits = functional_call(network, {**parameters, **buffers}, (some_x,))
            loss = cross_entropy(logits.float(), some_y, reduction="sum")
            parts = torch.autograd.grad(
                loss, list(parameters.values()), allow_unused=True, materialize_grads=True
            )
            total += torch.cat([part.flatten() for part in parts]).double().cpu()
    return total / len(y)


def cosine(first: Tensor, second: Tensor) -> float | None:
    """Cosine of the angle between two gradients; None where one of them is zero."""
    return Pair.of(first, second).cosine


@dataclass(frozen=True, kw_only=True)
class Pair:
    """All that the formulas need to know of an old and a new gradient: their inner products."""

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


def efficiency(pair: Pair, shares: Tensor) -> Tensor:
    """The paper's alignment efficiency, (shares,): new + (1 - a) old + a new against new.

    NaN where the pull vanishes.

    >>> orthogonal = Pair(old_old=1.0, new_new=1.0, old_new=0.0)
    >>> [round(value, 3) for value in efficiency(orthogonal, torch.tensor([0.0, 1.0])).tolist()]
    [0.707, 1.0]
    """
    return _toward_new(pair, of_old=1 - shares.double(), of_new=1 + shares.double())


def mixture_efficiency(pair: Pair, shares: Tensor) -> Tensor:
    """The same for what realignment trains on, (shares,): (1 - a) old + a new against new.

    >>> orthogonal = Pair(old_old=1.0, new_new=1.0, old_new=0.0)
    >>> mixture_efficiency(orthogonal, torch.tensor([0.0, 1.0])).tolist()
    [0.0, 1.0]
    """
    return _toward_new(pair, of_old=1 - shares.double(), of_new=shares.double())


def efficiency_slope(pair: Pair, shares: Tensor) -> Tensor:
    """Derivative of `efficiency` by the share, (shares,).

    2 (1 - a) area^2 / (|new| |pull|^3): no factor can be negative, which proves Theorem 4 for all
    gradients that do not lie on one line.
    """
    rest, length = 1 - shares.double(), _length(pair, 1 - shares.double(), 1 + shares.double())
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


@contextlib.contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode for the moment, every module back in its own mode afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
