"""Logits that a frozen network gave to each sample, so that later epochs do not compute them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class SampleKeys(NamedTuple):
    """What identifies samples: their ids and the concepts they show, int64 (samples,) on the CPU."""

    ids: Tensor
    concepts: Tensor


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
