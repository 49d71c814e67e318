"""Rows that nobody trains on, kept to say what each class looked like when it was last learned."""

from __future__ import annotations

from typing import Any

import torch

from recollect.types import Rows


class HeldOutReference:
    """A valid reference for an encoder that learns: its rows are scored anew at every check."""

    def __init__(self) -> None:
        self._rows: dict[int, Rows] = {}

    def renew(self, label: int, rows: Rows) -> None:
        """From now on `rows` say what the class looks like."""
        self._rows[label] = rows

    def rows_of(self, label: int) -> Rows:
        """The rows kept for a class; none for one that has not been learned."""
        if label in self._rows:
            return self._rows[label]
        none = torch.empty(0, dtype=torch.int64)
        return Rows(images=none.to(torch.uint8), labels=none, ids=none, concepts=none)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {str(label): dict(vars(rows)) for label, rows in self._rows.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._rows = {int(label): Rows(**rows) for label, rows in state.items()}
