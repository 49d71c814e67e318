"""Experience replay: stream and buffer samples in one forward, one mean cross-entropy."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from driftwise.methods.base import Draw, Inputs, Method, Outcome


class ER(Method):
    """Replays plainly, from the very first step on.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    """

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """Cross-entropy over the stream batch and one draw, every sample weighing the same."""
        replay = draw()
        if replay is None:
            logits = network(stream.x)
            return Outcome(loss=cross_entropy(logits, stream.y), logits=logits)
        logits = network(Inputs.together(stream, replay))
        loss = cross_entropy(logits, torch.cat([stream.y, replay.y]))
        return Outcome(loss=loss, logits=logits.detach()[: len(stream.y)])
