"""The folder of a run as the other processes of a group have it: they read, and process 0 writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from driftwise.runs.store import is_finished, read_checkpoint, read_result


class FollowedFolder:
    """A run folder that another process holds. What is written here goes nowhere."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.finished = is_finished(path)
        """whether the run was finished when the processes began"""
        self._tasks_done = 0

    def __enter__(self) -> FollowedFolder:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    @property
    def num_records(self) -> int:
        """Tasks that were complete when the processes began."""
        return self._tasks_done

    def load_checkpoint(self, warn: object = None) -> Any:
        """What process 0 has loaded."""
        del warn
        state = read_checkpoint(self.path)
        self._tasks_done = 0 if state is None else state["tasks_done"]
        return state

    def result(self) -> dict[str, Any]:
        """The result that process 0 has written."""
        return read_result(self.path)

    def records(self) -> list[dict[str, Any]]:
        """None: process 0 has them."""
        return []

    def append_record(self, record: Mapping[str, Any]) -> None:
        """Nothing."""

    def append_event(self, event: Mapping[str, Any], *, most: int | None = None) -> None:
        """Nothing."""

    def save_checkpoint(self, state: object) -> None:
        """Nothing."""

    def save_arrays(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def load_arrays(self, name: str, warn: object = None) -> dict[str, Tensor]:
        """Nothing is kept here."""
        del name, warn
        return {}

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Nothing."""
