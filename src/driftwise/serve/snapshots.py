"""Saved states that are kept for a while, to roll back to."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftwise.errors import UserError
from driftwise.files import quietly, read_object, write_json, writing
from driftwise.runs import checkpoint
from driftwise.runs.store import FORMAT, keep_as


class Snapshots:
    """Files named after the number of the last change in them; the newest ones are kept."""

    def __init__(self, folder: Path, *, most: int) -> None:
        self._folder = folder
        self._most = most
        self._kept_at = float("-inf")
        with writing(folder):
            folder.mkdir(exist_ok=True)

    def is_due(self, seconds: float) -> bool:
        """Whether the last one was kept so long ago."""
        return time.monotonic() - self._kept_at >= seconds

    def keep(self, file: Path, number: int, **facts: Any) -> None:
        """Keep a saved state under the number of its last change."""
        self._kept_at = time.monotonic()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with writing(self._folder):
            keep_as(file, self._file(number))
            write_json(self._facts(number), {"number": number, "time": now, **facts})
        for line in self.list()[: -self._most]:
            for old in (self._file(line["number"]), self._facts(line["number"])):
                quietly(old.unlink)

    def list(self) -> list[dict[str, Any]]:
        """Number, time, reason, samples and accuracy of each, oldest first."""
        found = []
        for file in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(UserError):
                if (facts := read_object(file)) is not None:
                    found.append(facts)
        return found

    def read(self, number: int) -> dict[str, Any]:
        """The live learner's state in a snapshot."""
        if not self._file(number).exists():
            known = ", ".join(str(each["number"]) for each in self.list()) or "none"
            raise UserError(f"there is no snapshot {number}; there are {known}")
        state: dict[str, Any] = checkpoint.read(self._file(number), format=FORMAT)["state"]
        return state

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:012d}.safetensors"

    def _facts(self, number: int) -> Path:
        return self._folder / f"{number:012d}.json"
