"""Events of a live learner: what can happen, who is called, and the log `events.jsonl`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from driftwise.config.learners import first_line
from driftwise.errors import RunFailure, UserError, unknown_name
from driftwise.files import JSON
from driftwise.runs.store import RunFolder

EVENTS: Mapping[str, str] = {
    "observed": "a batch came in: its size, correct predictions, the loss, all counters",
    "refused": "samples with values that are not finite, or too large, were left out",
    "quarantined": "outliers were predicted, and neither learned nor monitored",
    "restored": "the network had diverged and went back to its last good snapshot",
    "classes": "labels of new classes came",
    "grown": "the network got more outputs",
    "watched": "the reference samples of classes are complete: they are monitored from now on",
    "checked": "classes were checked for drift",
    "drifted": "classes were found drifted",
    "realigned": "drifted classes were realigned with fresh samples",
    "held": "drifted classes wait for a person to approve their adaptation",
    "waiting": "drifted classes wait for labels to realign with",
    "asked": "labels were requested",
    "pending": "requested labels may still come",
    "answered": "labels came for unlabelled samples",
    "corrected": "wrong labels were replaced: their samples are learned anew",
    "rolled_back": "an earlier state was restored",
    "untestable": "the samples that came do not suffice to test classes for drift",
    "trouble": "a label request failed",
    "saved": "the state was saved",
    "closed": "the live learner was closed",
}
"""Every kind of event."""
EVERYTHING = "*"

_NOT_LOGGED = ("observed", "saved")
"""an event per batch would fill a disk; a save cannot be part of what it saves"""

LOG_BYTES = 8 * 2**20
"""size of `events.jsonl` at which a new file begins; one older file is kept"""
MOST_ITEMS, MOST_LETTERS = 20, 500
"""longest list and text in a line"""
MOST_WAITING = 1000
"""lines kept while the disk refuses them"""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened."""

    kind: str
    step: int
    """the number of the call of `observe` during which it happened, counted from 1"""
    details: Mapping[str, JSON]
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    """when it was reported: UTC, ISO 8601"""


EventCallback = Callable[[Event], object]


class EventLog:
    """Calls callbacks and, in a folder, appends to `events.jsonl`. A failure stops nothing."""

    def __init__(self, folder: RunFolder | None, counters: dict[str, float]) -> None:
        """Failures are counted in `counters`."""
        self._folder = folder
        self._counters = counters
        self._callbacks: list[tuple[str, EventCallback]] = []
        self._waiting: deque[Mapping[str, JSON]] = deque()
        self._last_error: str | None = None
        """why lines wait, once that has been reported"""

    def on(self, kind: str, callback: EventCallback) -> None:
        """Call a callback with every event of a kind; `*`: with all of them."""
        if kind not in (*EVENTS, EVERYTHING):
            raise unknown_name("event", kind, [*EVENTS, EVERYTHING])
        if not callable(callback):
            raise UserError(f"expected a function to call; got {type(callback).__name__}")
        self._callbacks.append((kind, callback))

    def emit(self, event: Event) -> list[str]:
        """Log an event and call its callbacks; one line per failure that was not reported yet."""
        assert event.kind in EVENTS, event.kind
        if self._folder is not None and event.kind not in _NOT_LOGGED:
            head = {"event": event.kind, "step": event.step, "time": event.time}
            self._waiting.append(_shortened({**head, **event.details}))
        log_failures = self._write()
        failures = []
        for kind, callback in list(self._callbacks):
            if kind in (event.kind, EVERYTHING):
                try:
                    callback(event)
                except Exception as error:  # a user's code may raise anything
                    failures.append(f"a callback on {event.kind} failed: {first_line(error)}")
        self._counters["callback_failures_total"] += len(failures)
        return failures + log_failures

    def _write(self) -> list[str]:
        """Write the lines that wait; why that failed, if that is new."""
        try:
            while self._waiting:
                assert self._folder is not None, "nothing waits without a folder"
                self._folder.append_event(self._waiting[0], most=LOG_BYTES)
                self._waiting.popleft()
        except (RunFailure, UserError) as error:
            lost = max(0, len(self._waiting) - MOST_WAITING)
            for _ in range(lost):
                self._waiting.popleft()
            self._counters["log_failures_total"] += 1
            self._counters["log_lines_lost_total"] += lost
            is_new, self._last_error = str(error) != self._last_error, str(error)
            return [f"{error}; events wait to be logged"] if is_new else []
        self._last_error = None
        return []


def _shortened(value: Any) -> Any:
    """A line of bounded length: beside a list that was cut stands how many items it had."""
    if isinstance(value, Mapping):
        line: dict[str, Any] = {}
        for name, item in value.items():
            line[name] = _shortened(item)
            if isinstance(item, list | tuple) and len(item) > MOST_ITEMS:
                line[f"num_{name}"] = len(item)
        return line
    if isinstance(value, list | tuple):
        return [_shortened(item) for item in value[:MOST_ITEMS]]
    if isinstance(value, str) and len(value) > MOST_LETTERS:
        return value[: MOST_LETTERS - 3] + "..."
    return value
