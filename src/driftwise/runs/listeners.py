"""Listeners that draw nothing: the event log, several at once, none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driftwise.loop import Silent
from driftwise.protocols import Listener, Task
from driftwise.runs.result import spoken
from driftwise.runs.store import RunFolder
from driftwise.types import AdaptationResult, StepReport, TaskRecord, TaskState, Verdict

__all__ = ["EventLog", "Silent", "Together"]


class Together:
    """Passes everything on to several listeners, in their order."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)

    def task_begins(self, task: Task) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.task_begins(task)

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.checked(task, verdicts, result, samples)

    def resumed(self, task: Task, task_state: TaskState, samples: int) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.resumed(task, task_state, samples)

    def stepped(self, epoch: int, report: StepReport) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.stepped(epoch, report)

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """Pass it on."""
        for listener in self._listeners:
            listener.task_ends(record)


class EventLog(Silent):
    """Writes what happens to `events.jsonl`, a line each."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def task_begins(self, task: Task) -> None:
        """Which classes arrive."""
        self._folder.append_event(
            {"event": "task", "task": task.number, "new_classes": list(task.new_classes)}
        )

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """The verdicts, and what was done about them."""
        for verdict in verdicts:
            self._folder.append_event({"event": "verdict", **spoken(verdict)})
        self._folder.append_event(
            {
                "event": "repair",
                "task": task.number,
                "renewed": list(result.renewed),
                "from_scratch": result.from_scratch,
                "notes": list(result.notes),
                "training_rows": samples,
            }
        )

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """The accuracy on every task so far."""
        accuracy = list(record.scores.accuracy)
        self._folder.append_event({"event": "scores", "task": record.task, "accuracy": accuracy})
