"""Listeners of a run: the event log, features over time, several at once, none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from driftwise.learner import Learner
from driftwise.loop import Silent
from driftwise.metrics import Ledger
from driftwise.protocols import Listener, Task
from driftwise.runs.follow import FollowedFolder
from driftwise.runs.result import noted
from driftwise.runs.store import RunFolder
from driftwise.streams import Stream
from driftwise.types import AdaptationResult, StepReport, TaskRecord, TaskState, Verdict

__all__ = ["EventLog", "FeatureLog", "Listeners", "Silent"]

MAX_FEATURES = 500
"""Samples whose features are kept, the same ones after each task."""


class Listeners:
    """Notifies several listeners, in their order."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)

    def task_begins(self, task: Task) -> None:
        """Notify all."""
        for listener in self._listeners:
            listener.task_begins(task)

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """Notify all."""
        for listener in self._listeners:
            listener.checked(task, verdicts, result, samples)

    def resumed(self, task: Task, task_state: TaskState, samples: int) -> None:
        """Notify all."""
        for listener in self._listeners:
            listener.resumed(task, task_state, samples)

    def stepped(self, epoch: int, report: StepReport) -> None:
        """Notify all."""
        for listener in self._listeners:
            listener.stepped(epoch, report)

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """Notify all."""
        for listener in self._listeners:
            listener.task_ends(record)


class EventLog(Silent):
    """Writes what happens to `events.jsonl`, a line each."""

    def __init__(self, folder: RunFolder | FollowedFolder) -> None:
        self._append = folder.append_event

    def task_begins(self, task: Task) -> None:
        """Which classes arrive."""
        self._append({"event": "task", "task": task.number, "new_classes": list(task.new_classes)})

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """The verdicts, and the adaptation."""
        for verdict in verdicts:
            self._append({"event": "verdict", **noted(verdict)})
        self._append(
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
        self._append({"event": "scores", "task": record.task, "accuracy": accuracy})


class FeatureLog(Silent):
    """After each task, keeps the features of the first task's test images in the run's folder.

    All tasks' so far are written each time, so that a resumed run continues with them.
    """

    def __init__(
        self,
        folder: RunFolder | FollowedFolder,
        stream: Stream,
        learner: Learner,
        ledger: Ledger,
        warn: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._stream = stream
        self._learner = learner
        self._ledger = ledger
        self._classes = next(task.new_classes for task in stream.tasks() if task.new_classes)
        self._kept = folder.load_arrays("features", warn)

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """Keep one more task's."""
        samples = self._stream.samples("test", list(self._classes), record.task)
        step = max(1, -(-len(samples) // MAX_FEATURES))  # spread evenly over the classes
        samples = samples[torch.arange(0, len(samples), step)]
        with self._ledger.phase("evaluate"):
            features = self._learner.encode(samples.images).features
        self._kept[f"features-{record.task}"] = features
        self._kept[f"labels-{record.task}"] = samples.labels
        self._folder.save_arrays("features", self._kept)
