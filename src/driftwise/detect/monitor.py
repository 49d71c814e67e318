"""Monitors the known classes of a stream: a detector, its reference, and the labels they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise.detect.base import Accumulates, Detector, KnownLabels, reads_monitored
from driftwise.detect.reference import FingerprintReference, HeldOutReference
from driftwise.errors import UserError
from driftwise.part_state import PartState
from driftwise.protocols import HasSamples, MonitoredTask
from driftwise.types import Samples, Verdict


def _valid(answer: object, task: int, classes: Sequence[int], detector: Detector) -> list[Verdict]:
    """A verdict on every class that was asked about, in plain numbers; UserError otherwise.

    A class without a verdict would pass for one that has not drifted.
    """
    name = f"{type(detector).__name__}.check"
    if not isinstance(answer, list | tuple) or not all(isinstance(v, Verdict) for v in answer):
        raise UserError(
            f"{name} must return a list of Verdict, one for each class; got {answer!r:.200}"
        )
    verdicts = [_plain(verdict, name) for verdict in answer]
    for verdict in verdicts:
        if not isinstance(verdict.drifted, bool | None):
            raise UserError(
                f"{name}: drifted must be True, False, or None where it is not testable; got "
                f"{verdict.drifted!r} for class {verdict.label}"
            )
        if verdict.task != task:
            raise UserError(f"{name} was asked at task {task}; its verdict is of {verdict.task}")
    labels = [verdict.label for verdict in verdicts]
    if sorted(labels) != sorted(classes):
        raise UserError(
            f"{name} must return one verdict for each class it is asked about, {list(classes)}; "
            f"it gave verdicts for {labels} (a class that cannot be tested takes drifted=None and "
            "a reason)"
        )
    return verdicts


def _plain(verdict: Verdict, name: str) -> Verdict:
    """The verdict with numbers of Python's own, which can be written down."""
    changed: dict[str, Any] = {}
    for field in fields(verdict):
        value = getattr(verdict, field.name)
        if isinstance(value, np.generic | Tensor) and value.ndim == 0:
            value = changed[field.name] = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(
                f"{name}: {field.name} of class {verdict.label} is {value}; a verdict holds finite "
                "numbers, or None where there is none"
            )
    return replace(verdict, **changed)


class Monitor:
    """Checks every class seen so far, and keeps its reference up to date.

    Labels that group monitored samples by class are labels too: each use is recorded.

    >>> import driftwise as dw
    >>> from driftwise.detect import AlwaysDetector
    >>> from driftwise.streams import Task
    >>> stream = dw.streams.class_incremental(dw.datasets.load("digits"), num_tasks=5, num_drifts=1)
    >>> monitor = Monitor(AlwaysDetector(context=None), dw.ReplayBuffer(100), book=lambda n: None)
    >>> [(verdict.label, verdict.drifted) for verdict in monitor.check(Task(stream, 2))]
    [(0, True), (1, True)]
    """

    def __init__(
        self,
        detector: Detector,
        reference: HasSamples | HeldOutReference | FingerprintReference,
        *,
        book: Callable[[int], None],
        labels: KnownLabels = "given",
        min_harm: float | None = None,
        just_drifted: Callable[[int], Sequence[int]] | None = None,
    ) -> None:
        """What is monitored, and when a drifted class is spared.

        Args:
            detector: gives the verdicts.
            reference: what current samples are compared with.
            book: records the number of labels used.
            labels: what is known of monitored samples; the detector sees labels if they are given.
            min_harm: drift known to cost the learner fewer points on the class is spared.
            just_drifted: task -> the only classes to check, as in the published experiments: an
                oracle that leaves false alarms of other classes unknown. None: all.
        """
        self._detector = detector
        self._detector_state = PartState(detector, "detector")
        self._reads_monitored = reads_monitored(detector)
        self._reference = reference
        self._book = book
        self._labels = labels
        self._min_harm = min_harm
        self._just_drifted = just_drifted

    def check(self, task: MonitoredTask) -> list[Verdict]:
        """A verdict on every class that arrived before the task."""
        classes = self._checked(task)
        if not classes:
            return []
        monitored = self.as_seen(task)
        if self._labels == "given" and self._reads_monitored:
            self._book(len(monitored))
        answer = self._detector.check(task.number, classes, monitored, self._reference)
        verdicts = _valid(answer, task.number, classes, self._detector)
        return [self._spared(verdict) for verdict in verdicts]

    def as_seen(self, task: MonitoredTask) -> Samples:
        """The samples that are checked; labels that were not paid for are -1."""
        monitored = task.monitored()
        if self._just_drifted is not None:
            monitored = monitored[
                torch.isin(monitored.labels, torch.tensor(self._checked(task), dtype=torch.int64))
            ]
        if self._labels != "given" or not self._reads_monitored:
            monitored = replace(monitored, labels=torch.full_like(monitored.labels, -1))
        return monitored

    def _checked(self, task: MonitoredTask) -> tuple[int, ...]:
        if self._just_drifted is None:
            return task.known_classes
        return tuple(self._just_drifted(task.number))

    def _spared(self, verdict: Verdict) -> Verdict:
        """The verdict, and whether the class is spared."""
        if not self._is_harmless(verdict):
            return replace(verdict, spared=False)
        return replace(verdict, spared=True, kind=verdict.kind and "harmless")

    def _is_harmless(self, verdict: Verdict) -> bool:
        """Whether the harm of a drifted class is known to be small; labels count before confidence."""
        known = verdict.harm if verdict.harm is not None else verdict.harm_unlabelled
        if self._min_harm is None or known is None or not verdict.drifted:
            return False
        return known < self._min_harm

    def renew(self, task: MonitoredTask, labels: Sequence[int], learned: Samples) -> None:
        """These classes have just been learned, or learned anew, in their concept of the task.

        Held-out samples take labels of their own; a fingerprint is taken of the `learned` samples, whose
        labels are paid for.
        """
        if not self._reads_monitored:
            return
        if isinstance(self._detector, Accumulates):
            self._detector.renew(labels, learned)
        for label in labels:
            if isinstance(self._reference, HeldOutReference):
                samples = task.reference(label)
                self._book(len(samples))
                self._reference.renew(label, samples)
            elif isinstance(self._reference, FingerprintReference):
                self._reference.renew(label, learned.of_class(label).distinct())

    def reference_samples(self, label: int) -> Samples | None:
        """The samples that a class is compared with; None: encodings alone are kept."""
        if isinstance(self._reference, FingerprintReference):
            return None
        return self._reference.samples_of(label)

    def onset(self, label: int) -> int | None:
        """The id of the sample with which a drifted class began to drift; None: unknown."""
        return self._detector.onset(label) if isinstance(self._detector, Accumulates) else None

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes (a memory that serves as reference saves itself)."""
        kept: dict[str, Any] = {}
        if isinstance(self._reference, HeldOutReference | FingerprintReference):
            kept = self._reference.state_dict()
        if self._detector_state.is_there:
            return {"reference": kept, "detector": self._detector_state.state_dict()}
        return kept

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        kept = state
        if self._detector_state.is_there:
            kept = state["reference"]
            self._detector_state.load_state_dict(state["detector"])
        if isinstance(self._reference, HeldOutReference | FingerprintReference):
            self._reference.load_state_dict(kept)
