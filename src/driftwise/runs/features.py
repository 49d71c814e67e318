"""What the network makes of the first task's images, kept after each task for a map of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from driftwise.learner import Learner
from driftwise.metrics import Ledger
from driftwise.runs.listeners import Silent
from driftwise.runs.store import RunFolder
from driftwise.streams import Stream
from driftwise.types import TaskRecord

MAX_ROWS = 500
"""images, the same ones after each task"""


class FeatureKeeper(Silent):
    """After each task, the features of the first task's test images as they look by then.

    They are kept in the run's folder, whole after each task, so that a run that goes on from its
    checkpoint goes on with them.
    """

    def __init__(
        self,
        folder: RunFolder,
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
        step = max(1, -(-len(samples) // MAX_ROWS))  # spread evenly over the classes
        samples = samples[torch.arange(0, len(samples), step)]
        with self._ledger.phase("evaluate"):
            features = self._learner.encode(samples.images).features
        self._kept[f"features-{record.task}"] = features
        self._kept[f"labels-{record.task}"] = samples.labels
        self._folder.save_arrays("features", self._kept)
