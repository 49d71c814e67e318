"""SER: logits stay near stored ones on replayed samples, near the last task's on stream samples."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from driftwise.errors import UserError
from driftwise.methods.base import Draw, Inputs, Method, Outcome, forward_each
from driftwise.methods.logit_cache import LogitCache
from driftwise.models.plain import asks_samples_apart
from driftwise.types import Extras


@dataclass(kw_only=True, eq=False)
class SER(Method):
    """Strong experience replay: consistency with the past, backwards and forwards."""

    alpha: float = 0.2
    """weight of the squared distance to the stored logits of replayed samples"""
    beta: float = 0.2
    """weight of the squared distance to the logits of the network frozen after the last task"""

    def __post_init__(self) -> None:
        if self.alpha < 0 or self.beta < 0:
            raise UserError(f"alpha and beta must be at least 0; got {self.alpha}, {self.beta}")
        self._tasks = 0
        self._frozen: nn.Module | None = None
        self._has_ended = False
        self._cache = LogitCache()

    def attach(self, network: nn.Module, seed: int) -> None:
        """Room for the frozen network; nothing has been frozen yet."""
        del seed
        self._frozen = copy.deepcopy(network).requires_grad_(False).eval()
        self._has_ended = False
        self._cache.clear()

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """Cross-entropy on stream and memory, distances to stored and to frozen logits."""
        replay = draw(len(stream.y)) if self._tasks >= 2 else None
        if replay is None:
            (logits,) = forward_each(network, stream)
            loss = cross_entropy(logits, stream.y)
        else:
            logits, said = forward_each(network, stream, replay)
            distance = mse_loss(said, replay.extras["logits"])
            loss = cross_entropy(logits, stream.y) + cross_entropy(said, replay.y)
            loss = loss + self.alpha * distance
        if self._tasks >= 2 and self._has_ended:
            loss = loss + self.beta * mse_loss(logits, self._said_before(stream, logits.shape[1]))
        return Outcome(loss=loss, logits=logits)

    @torch.no_grad()
    def _said_before(self, stream: Inputs, outputs: int) -> Tensor:
        """The frozen network's logits; in later epochs those of the first."""
        frozen = self._frozen
        assert frozen is not None, "the method has not been attached to a network"
        if stream.keys is None or not asks_samples_apart(frozen):
            return _said_by(frozen, stream)
        if self._cache.width != outputs:  # empty, or the head has grown since
            self._cache.clear()
        return self._cache.lookup(stream.keys, lambda: _said_by(frozen, stream))

    def samples_per_draw(self, *, minibatch_size: int, batch_size: int) -> int:
        """As many as the stream batch has."""
        del minibatch_size
        return batch_size

    def columns(self, logits: Tensor) -> Extras:
        """The logits, as they were said."""
        return {"logits": logits}

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        """All but the stream's own term start with the second task; the first brings classes."""
        del network
        if classes or self._tasks:
            self._tasks += 1

    def end_task(self, network: nn.Module) -> None:
        """Freeze the network as it is now."""
        assert self._frozen is not None, "the method has not been attached to a network"
        self._frozen.load_state_dict(network.state_dict())
        self._has_ended = True
        self._cache.clear()

    def copies(self) -> tuple[nn.Module, ...]:
        """The frozen network."""
        return () if self._frozen is None else (self._frozen,)

    def state_dict(self) -> dict[str, Any]:
        """The frozen network, what it said in this task, and how far the stream has come."""
        assert self._frozen is not None, "the method has not been attached to a network"
        return {
            "tasks": self._tasks,
            "has_ended": self._has_ended,
            "frozen": self._frozen.state_dict(),
            "kept": self._cache.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        assert self._frozen is not None, "the method has not been attached to a network"
        self._tasks, self._has_ended = state["tasks"], state["has_ended"]
        self._frozen.load_state_dict(state["frozen"])
        device = next(self._frozen.parameters()).device
        self._cache.load_state_dict(state.get("kept", {}), device)


def _said_by(network: nn.Module, samples: Inputs) -> Tensor:
    said: Tensor = network(samples.x)
    return said
