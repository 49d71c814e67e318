"""The lower and the upper bound of every method: no replay, and all classes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.nn.functional import cross_entropy

from driftwise.methods.base import Draw, Inputs, Method, Outcome


class Finetune(Method):
    """Trains on what comes, without replay: the lower bound.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.Finetune(), buffer=dw.ReplayBuffer(100), lr=0.1)
    """

    rehearses = False

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """Cross-entropy on the stream batch."""
        del draw
        logits = network(stream.x)
        return Outcome(loss=cross_entropy(logits, stream.y), logits=logits)

    def samples_per_draw(self, *, minibatch_size: int, batch_size: int) -> int:
        """None."""
        del minibatch_size, batch_size
        return 0


@dataclass(kw_only=True, eq=False)
class Joint(Finetune):
    """Trains at every task on the current concept of all classes seen so far: the upper bound.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> method = dw.methods.Joint(from_scratch=False)
    >>> learner = dw.Learner(network, method, buffer=dw.ReplayBuffer(100), lr=0.1)
    """

    cumulative: ClassVar[bool] = True
    from_scratch: bool = True
    """whether every task begins with fresh weights, or goes on from the last"""

    def __post_init__(self) -> None:
        self.starts_afresh = self.from_scratch
