"""SER: logits stay near stored ones on replayed samples, near the last task's on stream samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from driftwise.errors import UserError
from driftwise.methods.base import Draw, Inputs, Method, Outcome, SampleKeys, forward_each
from driftwise.models.layers import evaluates_samples_independently
from driftwise.types import Extras


class LogitCache:
    """Logits by sample and concept. It grows with the samples of a task: clear it after the task.

    >>> cache, keys = LogitCache(), SampleKeys(torch.tensor([7, 2]), torch.tensor([0, 0]))
    >>> cache.lookup(keys, lambda: torch.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    >>> flipped = SampleKeys(keys.ids.flip(0), keys.concepts)
    >>> cache.lookup(flipped, lambda: torch.zeros(2, 1)).tolist()
    [[2.0], [1.0]]
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all cached logits."""
        self._places: dict[tuple[int, int], int] = {}  # by concept and id
        self._keys: list[tuple[int, int]] = []  # by place
        self._logits: Tensor | None = None  # by place; there is room for more

    @property
    def width(self) -> int | None:
        """Logits per sample; None: nothing is cached."""
        return None if self._logits is None else self._logits.shape[1]

    def lookup(self, keys: SampleKeys, compute: Callable[[], Tensor]) -> Tensor:
        """The logits of these samples, (samples, classes); `compute` gives them if one is missing."""
        pairs = list(zip(keys.concepts.tolist(), keys.ids.tolist(), strict=True))
        missing = [i for i, pair in enumerate(pairs) if pair not in self._places]
        if self._logits is not None and not missing:
            places = torch.tensor([self._places[pair] for pair in pairs])
            return self._logits[places.to(self._logits.device)]
        logits = compute()
        self._append(
            [pairs[i] for i in missing],
            logits[torch.tensor(missing, dtype=torch.int64).to(logits.device)],
        )
        return logits

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that is cached."""
        if self._logits is None:
            return {}
        return {
            "looks": torch.tensor(self._keys, dtype=torch.int64).T.contiguous(),
            "answers": self._logits[: len(self._keys)].clone(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue from `state_dict`, with logits on `device`."""
        self.clear()
        if state:
            concepts, ids = state["looks"].tolist()
            self._append(list(zip(concepts, ids, strict=True)), state["answers"].to(device))

    def _append(self, pairs: list[tuple[int, int]], logits: Tensor) -> None:
        """Cache logits, (samples, classes); of a sample that comes twice the last ones stay."""
        start, end = len(self._keys), len(self._keys) + len(pairs)
        if self._logits is None or end > len(self._logits):
            larger = logits.new_empty((max(end, 2 * start), logits.shape[1]))
            if self._logits is not None:
                larger[:start] = self._logits[:start]
            self._logits = larger
        self._logits[start:end] = logits
        self._keys += pairs
        self._places.update(zip(pairs, range(start, end), strict=True))


@dataclass(kw_only=True, eq=False)
class SER(Method):
    """Strong experience replay: consistency with the past, backwards and forwards.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.SER(alpha=0.2), buffer=dw.ReplayBuffer(100), lr=0.1)
    """

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
        """Cross-entropy on stream and buffer, distances to stored and to frozen logits."""
        replay = draw(len(stream.y)) if self._tasks >= 2 else None
        if replay is None:
            (logits,) = forward_each(network, stream)
            loss = cross_entropy(logits, stream.y)
        else:
            logits, replayed = forward_each(network, stream, replay)
            distance = mse_loss(replayed, replay.extras["logits"])
            loss = cross_entropy(logits, stream.y) + cross_entropy(replayed, replay.y)
            loss = loss + self.alpha * distance
        if self._tasks >= 2 and self._has_ended:
            loss = loss + self.beta * mse_loss(logits, self._frozen_logits(stream, logits.shape[1]))
        return Outcome(loss=loss, logits=logits)

    @torch.no_grad()
    def _frozen_logits(self, stream: Inputs, outputs: int) -> Tensor:
        """The frozen network's logits; in later epochs those of the first."""
        frozen = self._frozen
        assert frozen is not None, "the method has not been attached to a network"
        if stream.keys is None or not evaluates_samples_independently(frozen):
            logits: Tensor = frozen(stream.x)
            return logits
        if self._cache.width != outputs:  # empty, or the head has grown since
            self._cache.clear()
        return self._cache.lookup(stream.keys, lambda: frozen(stream.x))

    def samples_per_draw(self, *, minibatch_size: int, batch_size: int) -> int:
        """As many as the stream batch has."""
        del minibatch_size
        return batch_size

    def columns(self, logits: Tensor) -> Extras:
        """The logits."""
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
        """The frozen network, its logits in this task, and how far the stream has come."""
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
