"""DER++: memory rows keep the logits that the network once gave them, and their labels."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from recollect.errors import UserError
from recollect.learn.objective import Draw, Inputs, Objective, Outcome
from recollect.types import Extras


@dataclass(frozen=True, kw_only=True)
class DERppOptions:
    """The weights of the terms beside the stream's own."""

    alpha: float = 0.2
    """weight of the squared distance to the logits kept with memory rows"""
    beta: float = 0.5
    """weight of the cross-entropy on memory rows"""

    def __post_init__(self) -> None:
        if self.alpha < 0 or self.beta < 0:
            raise UserError(f"alpha and beta must be at least 0; got {self.alpha}, {self.beta}")


class DERpp(Objective):
    """Dark experience replay with labels."""

    def __init__(self, options: DERppOptions) -> None:
        self._options = options

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """Three terms in three forwards: the two draws are independent of each other."""
        logits = network(stream.x)
        loss = cross_entropy(logits, stream.y)
        if (recalled := draw()) is not None:
            distance = mse_loss(network(recalled.x), recalled.extras["logits"])
            loss = loss + self._options.alpha * distance
        if (labelled := draw()) is not None:
            loss = loss + self._options.beta * cross_entropy(network(labelled.x), labelled.y)
        return Outcome(loss=loss, logits=logits)

    def columns(self, logits: Tensor) -> Extras:
        """The logits, as they were said."""
        return {"logits": logits}
