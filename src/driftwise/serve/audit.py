"""The audit log: who did what, when and why. It only grows."""

from __future__ import annotations

import contextlib
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftwise.errors import RunFailure
from driftwise.files import open_regular, size
from driftwise.runs.append_log import Journal

MAX_ITEMS = 50
"""of a list in a line"""
MAX_TAIL = 2**20
"""bytes that are read to show the last lines, however long the log is"""


class AuditLog:
    """Lines of JSON in `audit.jsonl`. What could not be written is counted."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._lock = threading.Lock()
        self.failures = 0

    def append(self, by: str, action: str, reason: str | None = None, **details: Any) -> None:
        """Add a line."""
        short = {
            name: value[:MAX_ITEMS] if isinstance(value, list) else value
            for name, value in details.items()
        }
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "by": by, "action": action, "reason": reason, **short}
        with self._lock:
            try:
                self._journal.append(line)
            except RunFailure:
                self.failures += 1

    def tail(self, count: int) -> list[dict[str, Any]]:
        """The last lines, as far as they stand in the last `MAX_TAIL` bytes."""
        path = self._journal.path
        try:
            with self._lock, open_regular(path) as file:
                file.seek(max(0, size(path) - MAX_TAIL))
                content = file.read(MAX_TAIL)
        except FileNotFoundError:
            return []
        found = []
        for line in content.splitlines()[-count:]:
            with contextlib.suppress(ValueError):  # a crash may have cut one off
                if line.startswith(b'{"time"'):  # or the first one begins before these bytes
                    found.append(json.loads(line))
        return found
