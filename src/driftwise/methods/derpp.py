"""DER++: replayed samples are matched to their labels and to their stored logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from driftwise.errors import UserError
from driftwise.methods.base import Draw, Inputs, Method, Outcome, forward_each
from driftwise.types import Extras


@dataclass(kw_only=True, eq=False)
class DERpp(Method):
    """Dark experience replay with labels.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> method = dw.methods.DERpp(alpha=0.1, beta=0.5)
    >>> learner = dw.Learner(network, method, buffer=dw.ReplayBuffer(100), lr=0.1)
    """

    alpha: float = 0.2
    """weight of the squared distance to the stored logits of replayed samples"""
    beta: float = 0.5
    """weight of the cross-entropy on replayed samples"""
    one_forward: bool = False
    """one draw for both terms, in one forward with the stream, instead of two draws and three
    forwards as published: two thirds of the work; batch norm sees all samples at once"""

    def __post_init__(self) -> None:
        if self.alpha < 0 or self.beta < 0:
            raise UserError(f"alpha and beta must be at least 0; got {self.alpha}, {self.beta}")

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """Three terms over the stream and two draws, which are independent of each other."""
        if self.one_forward:
            return self._at_once(network, stream, draw())
        recalled, labelled = draw(), draw()
        if recalled is None or labelled is None:
            (logits,) = forward_each(network, stream)
            return Outcome(loss=cross_entropy(logits, stream.y), logits=logits)
        logits, again, replayed = forward_each(network, stream, recalled, labelled)
        loss = cross_entropy(logits, stream.y)
        loss = loss + self.alpha * mse_loss(again, recalled.extras["logits"])
        loss = loss + self.beta * cross_entropy(replayed, labelled.y)
        return Outcome(loss=loss, logits=logits)

    def _at_once(self, network: nn.Module, stream: Inputs, replay: Inputs | None) -> Outcome:
        if replay is None:
            logits = network(stream.x)
            return Outcome(loss=cross_entropy(logits, stream.y), logits=logits)
        both = network(Inputs.together(stream, replay))
        logits, again = torch.split(both, [len(stream.y), len(replay.y)])
        loss = cross_entropy(logits, stream.y)
        loss = loss + self.alpha * mse_loss(again, replay.extras["logits"])
        loss = loss + self.beta * cross_entropy(again, replay.y)
        return Outcome(loss=loss, logits=logits)

    def columns(self, logits: Tensor) -> Extras:
        """The logits."""
        return {"logits": logits}
