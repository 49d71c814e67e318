"""ER-ACE: the loss of stream samples covers their own classes only, that of replay all classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from driftwise.devices import to_device
from driftwise.methods.base import Draw, Inputs, Method, Outcome, forward_each


class ERACE(Method):
    """Asymmetric cross-entropy: new classes do not push down the logits of old ones.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ERACE(), buffer=dw.ReplayBuffer(100), lr=0.1)
    """

    def __init__(self) -> None:
        self._tasks = 0
        self._arrived: list[int] = []
        self._newest = -1
        self._place: Tensor | None = None
        self._place_here: Tensor | None = None
        """the same where the network computes"""

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """Masked cross-entropy on the stream plus a full one on a draw, as two sets of samples."""
        replay = draw() if self._tasks >= 2 else None
        logits, *replayed = forward_each(
            network, *([stream] if replay is None else [stream, replay])
        )
        place = self._places(logits)
        if self._newest < len(self._arrived) - 1 or not self._arrived:  # one is still to be seen
            seen = int(place[stream.step_labels.cpu()].max())  # no device is asked, and waited for
            self._newest = max(self._newest, seen)
        if self._tasks < 2:
            return Outcome(loss=cross_entropy(logits, stream.y), logits=logits)
        absent = self._absent(to_device(stream.step_labels, logits.device))
        competing = logits.masked_fill(absent, float("-inf"))
        loss = cross_entropy(competing, stream.y)
        if replay is not None:
            loss = loss + cross_entropy(replayed[0], replay.y)
        return Outcome(loss=loss, logits=logits)

    def _places(self, logits: Tensor) -> Tensor:
        """(classes,): the place of each class in the order of arrival; unknown ones come last."""
        num_classes = logits.shape[1]
        if self._place is None or len(self._place) != num_classes:  # the same until classes arrive
            self._place = torch.full((num_classes,), num_classes)
            self._place[self._arrived] = torch.arange(len(self._arrived))
            self._place_here = self._place.to(logits.device)
        return self._place

    def _absent(self, y: Tensor) -> Tensor:
        """(classes,): true where a class is neither in the batch nor still to come.

        Still to come are, as the published rule has it, the newest class seen and all after it;
        once the last of all has been seen, none. (Published streams bring classes in the order of
        their labels: there the newest is the highest label.)
        """
        place = self._place_here
        assert place is not None
        last = len(place) - 1
        absent = place < (self._newest if self._newest < last else len(place))
        return absent.index_fill_(0, y, False)

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        """Masking and replay start with the second task; the first is one that brings classes."""
        del network
        self._arrived += [label for label in classes if label not in self._arrived]
        self._place = None
        if self._arrived:
            self._tasks += 1

    def state_dict(self) -> dict[str, Any]:
        """How far the stream has come."""
        return {"tasks": self._tasks, "arrived": list(self._arrived), "newest": self._newest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._tasks, self._newest = state["tasks"], state["newest"]
        self._arrived = list(state["arrived"])
        self._place = None
