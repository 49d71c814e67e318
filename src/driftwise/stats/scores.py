"""One number per sample, from a classifier's logits, in double precision.

An untrained network gives nearly uniform predictions, whose scores differ only in late digits:
single precision would tie them.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Score = Callable[[Tensor], Tensor]
"""logits (samples, classes) -> (samples,)"""


def entropy(logits: Tensor) -> Tensor:
    """Predictive entropy in nats, (samples, classes) -> (samples,)."""
    log_p = logits.double().log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def max_probability(logits: Tensor) -> Tensor:
    """Probability of the predicted class, (samples, classes) -> (samples,)."""
    return logits.double().softmax(dim=1).amax(dim=1)


def margin(logits: Tensor) -> Tensor:
    """Largest minus second-largest probability, (samples, classes) -> (samples,)."""
    first, second = logits.double().softmax(dim=1).topk(2, dim=1).values.unbind(dim=1)
    return first - second


def energy(logits: Tensor) -> Tensor:
    """Energy, -log sum exp(logits), (samples, classes) -> (samples,).

    The only score here that depends on the scale of the logits, which softmax removes.

    Reference:
        W. Liu, X. Wang, J. Owens, Y. Li. Energy-based out-of-distribution detection. NeurIPS, 2020.
    """
    return -logits.double().logsumexp(dim=1)


SCORES: dict[str, Score] = {
    "entropy": entropy,
    "margin": margin,
    "energy": energy,
    "max-probability": max_probability,
}
