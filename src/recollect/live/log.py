"""What happens to a live learner, told to whoever wants to hear it, and kept line by line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from recollect.errors import UserError, unknown_name
from recollect.experiment.own_network import first_line
from recollect.experiment.store import RunFolder
from recollect.files import JSON

EVENTS: Mapping[str, str] = {
    "observed": "rows came in: how many, how many were predicted right, the loss, all counters",
    "refused": "rows with values that are not finite, or too large, were left out",
    "quarantined": "samples far outside what has been seen were left alone",
    "restored": "the network had diverged and went back to its last good snapshot",
    "classes": "labels of classes came that had never been seen",
    "grown": "the network has taken on more outputs",
    "watched": "enough is known of classes to see them drift",
    "checked": "classes were checked for drift",
    "drifted": "classes were found drifted",
    "realigned": "drifted classes were met with fresh rows",
    "waiting": "drifted classes wait for labels to realign with",
    "asked": "labels were asked for",
    "pending": "labels that were asked for may still come",
    "answered": "labels came for rows that had none",
    "untestable": "what came cannot say whether classes have drifted",
    "trouble": "asking for labels failed",
    "saved": "everything was saved",
    "closed": "the end",
}
"""Every kind of event."""
EVERYTHING = "*"

_FOR_LISTENERS_ONLY = ("observed", "saved")
"""what comes with every batch would fill a disk; a save cannot be part of what it saves"""


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


class Log:
    """Tells events to callbacks and, in a folder, to `events.jsonl`."""

    def __init__(self, folder: RunFolder | None) -> None:
        self._folder = folder
        self._callbacks: list[tuple[str, Callback]] = []

    def on(self, kind: str, callback: Callback) -> None:
        """Have a callback called with every event of a kind; `*`: with all of them."""
        if kind not in (*EVENTS, EVERYTHING):
            raise unknown_name("event", kind, [*EVENTS, EVERYTHING])
        if not callable(callback):
            raise UserError(f"expected a function to call; got {type(callback).__name__}")
        self._callbacks.append((kind, callback))

    def tell(self, event: Event) -> list[str]:
        """Pass an event on; what callbacks failed with, one line each: they stop nothing."""
        assert event.kind in EVENTS, event.kind
        if self._folder is not None and event.kind not in _FOR_LISTENERS_ONLY:
            line = {
                "event": event.kind,
                "step": event.step,
                "time": event.time,
                **event.details,
            }
            self._folder.append_event(line)
        failures = []
        for kind, callback in list(self._callbacks):
            if kind in (event.kind, EVERYTHING):
                try:
                    callback(event)
                except Exception as error:  # anybody's code runs here, and may raise anything
                    failures.append(f"a callback on {event.kind} failed: {first_line(error)}")
        return failures
