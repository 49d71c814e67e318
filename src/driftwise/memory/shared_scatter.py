"""A sum of outer products that takes single vectors as quickly as batches."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = 32
"""vectors that are summed together: to sum one alone costs about as much"""


class SharedScatter:
    """The sum of the outer products of vectors, (d, d); up to 32 of them wait to be summed."""

    def __init__(self, total: Tensor, rows: Tensor | None = None) -> None:
        self._total = total
        self._rows = [] if rows is None else [rows]

    @staticmethod
    def of_dimension(dimension: int) -> SharedScatter:
        """The sum of none."""
        return SharedScatter(torch.zeros(dimension, dimension, dtype=torch.float64))

    def add(self, vectors: Tensor) -> None:
        """Count vectors, float64 (samples, d)."""
        self._rows.append(vectors)
        if sum(map(len, self._rows)) >= ROWS:
            rows, self._rows = torch.cat(self._rows), []
            self._total.addmm_(rows.T, rows)

    def total(self) -> Tensor:
        """The sum by now, (d, d), a tensor of its own. Nothing changes: reading has no effect on rounding."""
        if not self._rows:
            return self._total.clone()
        rows = torch.cat(self._rows)
        return torch.addmm(self._total, rows.T, rows)

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers kept."""
        return sum(each.nbytes for each in (self._total, *self._rows))

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that changes."""
        state = {"shared": self._total}
        return state | ({"shared_rows": torch.cat(self._rows)} if self._rows else {})

    @staticmethod
    def of_state(state: dict[str, Tensor]) -> SharedScatter | None:
        """From `state_dict`; None: the state has none."""
        if "shared" not in state:
            return None
        return SharedScatter(state["shared"].clone(), state.get("shared_rows"))
