"""Detectors that look at no picture: perfect and useless detection, to compare with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from recollect.detect.detector import Reference, Setting
from recollect.types import Rows, Verdict


class FixedDetector(ABC):
    """Knows beforehand which classes it will flag."""

    watches = False

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    @abstractmethod
    def flagged(self, task: int, classes: Sequence[int]) -> Collection[int]:
        """The classes to be flagged at a task."""

    def check(
        self, task: int, classes: Sequence[int], monitored: Rows, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class, without a look at the rows."""
        del monitored, reference
        flagged = self.flagged(task, classes)
        return [Verdict(task=task, label=label, drifted=label in flagged) for label in classes]


class OracleDetector(FixedDetector):
    """Knows the schedule: flags a class exactly when it drifts."""

    def flagged(self, task: int, classes: Sequence[int]) -> Collection[int]:
        """The classes that drift at the task."""
        del classes
        return self._setting.drifting(task)


class AlwaysDetector(FixedDetector):
    """Flags every class at every task."""

    def flagged(self, task: int, classes: Sequence[int]) -> Collection[int]:
        """All of them."""
        del task
        return classes


class NeverDetector(FixedDetector):
    """Flags nothing."""

    def flagged(self, task: int, classes: Sequence[int]) -> Collection[int]:
        """None of them."""
        del task, classes
        return ()
