"""What happens to a live learner, told to whoever wants to hear it, and kept line by line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from driftwise.config.own_network import first_line
from driftwise.errors import RunFailure, UserError, unknown_name
from driftwise.files import JSON
from driftwise.runs.store import RunFolder

EVENTS: Mapping[str, str] = {
    "observed": "samples came in: how many, how many were predicted right, the loss, all counters",
    "refused": "samples with values that are not finite, or too large, were left out",
    "quarantined": "samples far outside what has been seen were left alone",
    "restored": "the network had diverged and went back to its last good snapshot",
    "classes": "labels of classes came that had never been seen",
    "grown": "the network has taken on more outputs",
    "watched": "enough is known of classes to see them drift",
    "checked": "classes were checked for drift",
    "drifted": "classes were found drifted",
    "realigned": "drifted classes were met with fresh samples",
    "waiting": "drifted classes wait for labels to realign with",
    "asked": "labels were asked for",
    "pending": "labels that were asked for may still come",
    "answered": "labels came for samples that had none",
    "untestable": "what came cannot say whether classes have drifted",
    "trouble": "asking for labels failed",
    "saved": "everything was saved",
    "closed": "the end",
}
"""Every kind of event."""
EVERYTHING = "*"

_FOR_LISTENERS_ONLY = ("observed", "saved")
"""what comes with every batch would fill a disk; a save cannot be part of what it saves"""

LOG_BYTES = 8 * 2**20
"""of `events.jsonl`, from which on a new file is begun; the one before it is kept, and no other"""
MOST_ITEMS, MOST_LETTERS = 20, 500
"""of a list, or of a text, that a line has room for"""
MOST_WAITING = 1000
"""lines that wait for a disk that takes none"""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that has happened."""

    kind: str
    step: int
    """the number of the call of `observe` during which it happened, counted from 1"""
    details: Mapping[str, JSON]
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    """when it was reported: UTC, ISO 8601"""


Callback = Callable[[Event], object]


@dataclass(frozen=True, kw_only=True)
class Flushed:
    """What came of writing to the log."""

    failed: bool = False
    lost: int = 0
    """lines that were dropped, because too many wait"""
    news: str | None = None
    """why it failed, where that has not been reported yet"""


class Log:
    """Passes events on to callbacks and, in a folder, to `events.jsonl`."""

    def __init__(self, folder: RunFolder | None) -> None:
        self._folder = folder
        self._callbacks: list[tuple[str, Callback]] = []
        self._waiting: deque[Mapping[str, JSON]] = deque()
        self._reported: str | None = None
        """why lines wait, once that has been reported"""

    def on(self, kind: str, callback: Callback) -> None:
        """Have a callback called with every event of a kind; `*`: with all of them."""
        if kind not in (*EVENTS, EVERYTHING):
            raise unknown_name("event", kind, [*EVENTS, EVERYTHING])
        if not callable(callback):
            raise UserError(f"expected a function to call; got {type(callback).__name__}")
        self._callbacks.append((kind, callback))

    def write(self, event: Event) -> None:
        """Have an event written to `events.jsonl`, now or when the disk takes it again."""
        assert event.kind in EVENTS, event.kind
        if self._folder is not None and event.kind not in _FOR_LISTENERS_ONLY:
            line = {
                "event": event.kind,
                "step": event.step,
                "time": event.time,
                **event.details,
            }
            self._waiting.append(_bounded(line))

    def flush(self) -> Flushed:
        """Write the lines that wait. The log is for people: where it fails, all else goes on."""
        try:
            while self._waiting:
                assert self._folder is not None, "nothing waits without a folder"
                self._folder.append_event(self._waiting[0], most=LOG_BYTES)
                self._waiting.popleft()
        except (RunFailure, UserError) as error:
            lost = max(0, len(self._waiting) - MOST_WAITING)
            for _ in range(lost):
                self._waiting.popleft()
            news = None if str(error) == self._reported else f"{error}; events wait to be logged"
            self._reported = str(error)
            return Flushed(failed=True, lost=lost, news=news)
        self._reported = None
        return Flushed()

    def call(self, event: Event) -> list[str]:
        """Pass an event on; what callbacks failed with, one line each: they stop nothing."""
        failures = []
        for kind, callback in list(self._callbacks):
            if kind in (event.kind, EVERYTHING):
                try:
                    callback(event)
                except Exception as error:  # anybody's code runs here, and may raise anything
                    failures.append(f"a callback on {event.kind} failed: {first_line(error)}")
        return failures


def _bounded(value: Any) -> Any:
    """A line of bounded length: long lists say how many items they have had."""
    if isinstance(value, Mapping):
        line: dict[str, Any] = {}
        for name, item in value.items():
            line[name] = _bounded(item)
            if isinstance(item, list | tuple) and len(item) > MOST_ITEMS:
                line[f"num_{name}"] = len(item)
        return line
    if isinstance(value, list | tuple):
        return [_bounded(item) for item in value[:MOST_ITEMS]]
    if isinstance(value, str) and len(value) > MOST_LETTERS:
        return value[: MOST_LETTERS - 3] + "..."
    return value
