"""ER-ACE: stream rows compete only with their own kind, memory rows with every class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recollect.learn.objective import Draw, Inputs, Objective, Outcome


class ERACE(Objective):
    """Asymmetric cross-entropy: new classes do not push down the logits of old ones."""

    def __init__(self) -> None:
        self._tasks = 0
        self._highest = -1

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """Masked cross-entropy on the stream plus a full one on a draw, each in its own forward."""
        logits = network(stream.x)
        self._highest = max(self._highest, int(stream.y.max()))
        if self._tasks < 2:
            return Outcome(loss=cross_entropy(logits, stream.y), logits=logits)
        competing = logits.masked_fill(self._absent(stream.y, logits.shape[1]), float("-inf"))
        loss = cross_entropy(competing, stream.y)
        replay = draw()
        if replay is not None:
            loss = loss + cross_entropy(network(replay.x), replay.y)
        return Outcome(loss=loss, logits=logits)

    def _absent(self, y: Tensor, num_classes: int) -> Tensor:
        """(classes,): true where a class is neither in the batch nor still to come.

        Still to come are the labels from the highest seen on, as the published rule has it: it
        takes classes to arrive in the order of their labels.
        """
        absent = torch.ones(num_classes, dtype=torch.bool, device=y.device)
        absent[y] = False
        if self._highest < num_classes - 1:
            absent[self._highest :] = False
        return absent

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        """Masking and replay start with the second task."""
        del network, classes
        self._tasks += 1

    def state_dict(self) -> dict[str, Any]:
        """How far the stream has come."""
        return {"tasks": self._tasks, "highest": self._highest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._tasks, self._highest = state["tasks"], state["highest"]
