"""A-GEM as a custom method (Chaudhry et al., Efficient Lifelong Learning with A-GEM, 2019).

A method that shapes gradients acts between backward and the optimiser's step. In this folder:

    driftwise run --method agem:AGEM --method.samples 64 --epochs 2
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from driftwise.methods import Draw, Inputs, Method, Outcome


class AGEM(Method):
    """Learns the stream; from the second task on, no step raises the loss on memory."""

    def __init__(self, *, samples: int = 64) -> None:
        """`samples` are drawn from memory at each step for the reference gradient."""
        self._samples = samples
        self._tasks = 0
        self._memory_loss: Tensor | None = None

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        """Memory holds earlier tasks from the second one on."""
        del network, classes
        self._tasks += 1

    def samples_per_draw(self, *, minibatch_size: int, batch_size: int) -> int:
        """As many as the option says."""
        del minibatch_size, batch_size
        return self._samples

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """Cross-entropy on the stream; that on memory is kept for its gradient."""
        logits = network(stream.x)
        replay = draw(self._samples) if self._tasks > 1 else None
        if replay is not None:
            self._memory_loss = cross_entropy(network(replay.x), replay.y)
        return Outcome(loss=cross_entropy(logits, stream.y), logits=logits)

    def after_backward(self, network: nn.Module) -> None:
        """Take out what would raise the loss on memory."""
        if self._memory_loss is None:
            return
        weights = [weight for weight in network.parameters() if weight.grad is not None]
        reference = torch.autograd.grad(self._memory_loss, weights)
        self._memory_loss = None
        project([weight.grad for weight in weights if weight.grad is not None], reference)


@torch.no_grad()
def project(gradient: Sequence[Tensor], reference: Sequence[Tensor]) -> None:
    """Leave a gradient g as it is if g . r >= 0; else make it g - (g . r) / (r . r) r, in place."""
    product = torch.stack([(g * r).sum() for g, r in zip(gradient, reference, strict=True)]).sum()
    if product >= 0:
        return
    square = torch.stack([r.square().sum() for r in reference]).sum()
    for g, r in zip(gradient, reference, strict=True):
        g.sub_(r * (product / square))
