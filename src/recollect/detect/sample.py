"""A uniform sample of a class's rows, of bounded size, whatever number goes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from recollect.types import Encoding


class Sample:
    """A uniform sample of the rows of one class: encodings and row numbers, never pictures."""

    def __init__(self) -> None:
        self.seen = 0
        self._keys = torch.empty(0, dtype=torch.float64)
        self._staying = torch.empty(0, dtype=torch.int64)
        self.rows = torch.empty(0, dtype=torch.int64)
        self.encoding = Encoding(logits=torch.empty(0, 1), features=torch.empty(0, 1))

    def offer(self, count: int, max_rows: int, draw: torch.Generator) -> Tensor:
        """Which of `count` further rows are to be `put`, and nothing but them."""
        keys = torch.cat([self._keys, torch.rand(count, dtype=torch.float64, generator=draw)])
        # The rows with the smallest of independent random keys are a uniform sample of all.
        chosen = keys.argsort(stable=True)[:max_rows].sort().values
        is_kept = chosen < len(self._keys)
        self._staying, coming = chosen[is_kept], chosen[~is_kept] - len(self._keys)
        self._keys = keys[chosen]
        self.seen += count
        return coming

    def put(self, encoding: Encoding, rows: Tensor) -> None:
        """The rows that `offer` asked for, whatever they have pushed out being forgotten."""
        if len(self.rows):
            encoding = Encoding.concat([self.encoding[self._staying], encoding])
            rows = torch.cat([self.rows[self._staying], rows])
        self.encoding, self.rows = encoding, rows

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "seen": self.seen,
            "keys": self._keys,
            "rows": self.rows,
            "logits": self.encoding.logits,
            "features": self.encoding.features,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Sample:
        """As `state_dict` left it."""
        sample = cls()
        sample.seen, sample.rows, sample._keys = state["seen"], state["rows"], state["keys"]
        sample.encoding = Encoding(logits=state["logits"], features=state["features"])
        return sample
