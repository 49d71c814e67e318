"""One number per row, from a classifier's logits."""

from __future__ import annotations

from torch import Tensor


def entropy(logits: Tensor) -> Tensor:
    """Predictive entropy in nats, (rows, classes) -> (rows,), in double precision.

    A network that has not been trained gives nearly uniform predictions, whose entropies differ
    only in late digits: single precision would tie them.
    """
    log_p = logits.double().log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)
