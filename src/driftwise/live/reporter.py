"""The report of a batch, events and Prometheus counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from driftwise.live.engine import BatchOutcome, LiveEngine
from driftwise.live.events import Event, EventLog
from driftwise.live.input_reader import UNKNOWN, InputBatch
from driftwise.runs.store import RunFolder
from driftwise.types import Verdict

PREFIX = "driftwise_"

COUNTERS: Mapping[str, str] = {
    "samples_total": "samples that came in",
    "samples_refused_total": "samples with values that are not finite, or too large",
    "samples_quarantined_total": "outliers, neither learned nor monitored",
    "samples_labelled_total": "samples that came with a label",
    "correct_total": "labelled samples predicted correctly before they were learned",
    "steps_total": "gradient steps",
    "restored_total": "times that the network went back to its last good snapshot",
    "checks_total": "checks for drift",
    "drifts_total": "classes found drifted",
    "adaptations_total": "classes realigned",
    "labels_asked_total": "labels requested",
    "labels_given_total": "requested labels that came",
    "labels_late_total": "labels that came later than their samples",
    "label_failures_total": "label requests that failed",
    "callback_failures_total": "event callbacks that failed",
    "log_failures_total": "times that events could not be written to the log",
    "log_lines_lost_total": "events missing from the log for good",
    "save_failures_total": "times that the state could not be saved",
}
GAUGES: Mapping[str, str] = {
    "classes": "classes seen so far",
    "buffer_samples": "samples in the replay buffer",
    "classes_waiting": "drifted classes that wait for labels",
    "classes_held": "drifted classes whose adaptation waits for approval",
    "classes_untestable": "classes that the last check could not test",
    "accuracy_recent": "fraction of correct predictions among the last labelled samples",
}
"""A gauge is left out until its value is known."""

_EARLIER_NAMES = {
    "rows_total": "samples_total",
    "rows_refused_total": "samples_refused_total",
    "rows_quarantined_total": "samples_quarantined_total",
    "rows_labelled_total": "samples_labelled_total",
    "repairs_total": "adaptations_total",
    "memory_rows": "buffer_samples",
}
"""counters of folders that were saved under other names"""

RECENT = 1000
"""labelled samples of the recent accuracy"""


def prometheus_text(values: Mapping[str, float]) -> str:
    """Counters and gauges by name in the text format of Prometheus."""
    lines = []
    for kind, names in (("counter", COUNTERS), ("gauge", GAUGES)):
        for name, meaning in names.items():
            if (value := values.get(name)) is not None:
                # All digits of a count: Prometheus' own short form rounds at a million.
                number = str(int(value)) if value == int(value) else repr(float(value))
                lines += [
                    f"# HELP {PREFIX}{name} {meaning}",
                    f"# TYPE {PREFIX}{name} {kind}",
                    f"{PREFIX}{name} {number}",
                ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """The report of one call of `observe`."""

    step: int
    """the number of the call, counted from 1"""
    ids: np.ndarray
    """int64 (samples,): identify samples whose labels come later, see `LiveLearner.answer`"""
    predicted: np.ndarray
    """int64 (samples,): predicted classes, before anything was learned from the batch; -1: the
    sample was refused, or there was no class to predict yet"""
    confidence: np.ndarray
    """float32 (samples,): the probability of the predicted class; 0 where there is none"""
    labelled: int
    """samples that came with a label"""
    correct: int
    """labelled samples that were predicted correctly"""
    loss: float | None
    """mean over the gradient steps; None: there was none"""
    refused: tuple[int, ...]
    """positions of samples with values that are not finite, or too large: they were left out"""
    quarantined: tuple[int, ...]
    """positions of outliers: they were predicted, and neither learned nor monitored"""
    new_classes: tuple[int, ...]
    """classes seen for the first time"""
    verdicts: tuple[Verdict, ...]
    """of the checks that were due"""
    adapted: tuple[int, ...]
    """classes that were realigned with fresh samples"""
    waiting: tuple[int, ...]
    """drifted classes that wait for labels to realign with"""
    held: tuple[int, ...]
    """drifted classes whose adaptation waits for approval, see `LiveLearner.mode`"""
    examples: Mapping[int, tuple[np.ndarray, np.ndarray]]
    """of each drifted class, up to 8 samples from before and after"""
    example_ids: Mapping[int, tuple[np.ndarray, np.ndarray]]
    """their ids"""
    notes: tuple[str, ...]
    """messages for a person"""

    @property
    def drifted(self) -> tuple[int, ...]:
        """Classes found drifted in this batch."""
        return tuple(sorted({verdict.label for verdict in self.verdicts if verdict.drifted}))

    @property
    def accuracy(self) -> float | None:
        """Fraction of correct predictions among the labelled samples; None: there were none."""
        return self.correct / self.labelled if self.labelled else None


class Reporter:
    """Counts what happens, emits events and writes the report of each batch."""

    def __init__(self, folder: RunFolder | None) -> None:
        self.counters: dict[str, float] = dict.fromkeys(COUNTERS, 0)
        """counters, and gauges whose values are known"""
        self.log = EventLog(folder, self.counters)
        self.steps = 0
        """calls of `observe` so far"""
        self._correct: deque[bool] = deque(maxlen=RECENT)

    @property
    def accuracy(self) -> float | None:
        """Fraction of correct predictions among the last labelled samples; None: no samples."""
        return sum(self._correct) / len(self._correct) if self._correct else None

    def emit(self, kind: str, **details: Any) -> list[str]:
        """Emit an event; one line per callback or log that failed."""
        return self.log.emit(Event(kind=kind, step=self.steps, details=details))

    def report(
        self, batch: InputBatch, outcome: BatchOutcome, engine: LiveEngine | None
    ) -> Observation:
        """Count a batch, emit its events, and summarise it."""
        labels = batch.samples.labels
        correct = (outcome.predicted == labels)[labels != UNKNOWN].tolist()
        predicted = torch.full((len(batch.usable),), UNKNOWN)
        predicted[batch.usable] = outcome.predicted
        confidence = torch.zeros(len(batch.usable))
        confidence[batch.usable] = outcome.confidence
        refused = (~batch.usable).nonzero().squeeze(1).tolist()
        quarantined = batch.usable.nonzero().squeeze(1)[outcome.quarantined].tolist()
        self._correct.extend(correct)
        self._count(outcome)
        for name, count in {
            "samples_total": len(predicted),
            "samples_refused_total": len(refused),
            "samples_quarantined_total": len(quarantined),
            "samples_labelled_total": len(correct),
            "correct_total": sum(correct),
        }.items():
            self.counters[name] += count
        self.update_gauges(engine)
        if refused:
            outcome.notes.append(f"{len(refused)} samples were refused: not finite, or too large")
            outcome.events.insert(0, ("refused", {"rows": refused}))
        if quarantined:
            text = f"samples quarantined, far outside what has been seen: {len(quarantined)}"
            outcome.notes.append(text)
            outcome.events.insert(0, ("quarantined", {"rows": quarantined, "text": text}))
        summary = {
            "rows": len(predicted),
            "labelled": len(correct),
            "correct": sum(correct),
            "loss": outcome.loss,
            "accuracy": self.accuracy,
            "counters": dict(self.counters),
        }
        for kind, details in (*outcome.events, ("observed", summary)):
            outcome.notes += self.emit(kind, **details)
        return Observation(
            step=self.steps,
            ids=batch.ids.numpy(),
            predicted=predicted.numpy(),
            confidence=confidence.numpy(),
            labelled=len(correct),
            correct=sum(correct),
            loss=outcome.loss,
            refused=tuple(refused),
            quarantined=tuple(quarantined),
            new_classes=outcome.new_classes,
            verdicts=tuple(outcome.verdicts),
            adapted=tuple(outcome.adapted),
            waiting=() if engine is None else tuple(sorted(engine.waiting)),
            held=() if engine is None else tuple(sorted(engine.held)),
            examples={
                label: (before.images.numpy(), after.images.numpy())
                for label, (before, after) in outcome.examples.items()
            },
            example_ids={
                label: (before.ids.numpy(), after.ids.numpy())
                for label, (before, after) in outcome.examples.items()
            },
            notes=tuple(outcome.notes),
        )

    def _count(self, outcome: BatchOutcome) -> None:
        counters = self.counters
        counters["drifts_total"] += sum(bool(verdict.drifted) for verdict in outcome.verdicts)
        counters["adaptations_total"] += len(outcome.adapted)
        for kind, details in outcome.events:
            match kind:
                case "checked":
                    counters["checks_total"] += 1
                case "restored":
                    counters["restored_total"] += 1
                case "trouble":
                    counters["label_failures_total"] += 1
                case "asked":
                    counters["labels_asked_total"] += details["rows"]
                case "answered":
                    counters["labels_given_total"] += details["given"]
                    counters["labels_late_total"] += details["late"]

    def update_gauges(self, engine: LiveEngine | None) -> None:
        """Set all gauges whose values are known."""
        if (accuracy := self.accuracy) is not None:
            self.counters["accuracy_recent"] = accuracy
        if engine is not None:
            self.counters |= {
                "steps_total": engine.ledger.steps,
                "classes": len(engine.classes),
                "buffer_samples": len(engine.learner.buffer),
                "classes_waiting": len(engine.waiting),
                "classes_held": len(engine.held),
                "classes_untestable": len(engine.untestable),
            }

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "counters": dict(self.counters),
            "steps": self.steps,
            "hits": list(self._correct),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        counters, steps, hits = state["counters"], state["steps"], state["hits"]
        if (
            not {type(value) for value in counters.values()} <= {int, float}
            or type(steps) is not int
            or not {type(hit) for hit in hits} <= {bool}
        ):
            raise ValueError("expected counters, steps, and which predictions were correct")
        # In place: the log counts its failures here, too.
        self.counters.update({_EARLIER_NAMES.get(name, name): n for name, n in counters.items()})
        self.steps = steps
        self._correct = deque(hits, maxlen=RECENT)
