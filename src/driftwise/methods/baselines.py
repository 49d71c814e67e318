"""The two ends between which every method is expected: no memory at all, and everything at once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from torch.nn.functional import cross_entropy

from driftwise.methods.base import Draw, Inputs, Objective, Outcome


class Finetune(Objective):
    """Learns what comes and rehearses nothing: the lower end."""

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


@dataclass(frozen=True, kw_only=True)
class JointOptions:
    """What can be chosen about joint training."""

    from_scratch: bool = True
    """whether every task begins with fresh weights, or goes on from the last"""


class Joint(Finetune):
    """Trains at every task on all classes seen so far as they look now: the upper end."""

    cumulative = True

    def __init__(self, options: JointOptions) -> None:
        self.starts_afresh = options.from_scratch
