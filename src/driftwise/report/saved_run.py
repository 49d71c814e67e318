"""One finished run, as its `result.json` describes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftwise.adaptation_counts import Adapted, count_adapted

Floats = NDArray[np.float64]

COSTS = ("train", "detect", "adapt")
"""The phases that make up what a run costs; evaluation is no cost of a method."""


@dataclass(frozen=True, kw_only=True)
class DriftEvent:
    """The truth: these classes take on another concept when this task (counted from 1) begins."""

    task: int
    classes: tuple[int, ...]
    transform: str
    """a transform, several joined by "+", "natural", "original" or "identity" """
    severity: float | None
    kind: str = "sudden"
    """sudden, gradual or partial"""
    share: float = 1.0
    """fraction of each class that has drifted in the end"""
    over_tasks: int = 1
    """over how many tasks the fraction rises"""
    domains: tuple[str, ...] = ()
    """whose images follow; empty where domains play no part"""


class Verdict(NamedTuple):
    """The verdict of a detector on one class at one task."""

    task: int
    label: int
    drifted: bool | None
    """None: not testable"""
    score: float | None
    p_value: float | None
    threshold: float | None = None
    """of the p-value, or of the score where a gap was chosen by hand"""
    p_values: tuple[tuple[str, float], ...] = ()
    """by test, where several were merged"""
    reason: str = ""
    """why the class was not testable"""
    num_current: int = 0
    """samples that were compared with the reference"""
    harm: float | None = None
    """points of accuracy lost on the class, counted by labels"""
    harm_error: float | None = None
    harm_unlabelled: float | None = None
    """the same, estimated without labels"""
    share: float | None = None
    """fraction of the current samples that has drifted"""
    share_error: float | None = None
    moved: float | None = None
    """distance of the class's mean from the reference in feature space, in spreads"""
    moved_band: float | None = None
    spread: float | None = None
    """spread of the current samples, over that of the reference"""
    spread_band: float | None = None
    num_drifted: int = 0
    """current samples that more likely than not have drifted"""
    spared: bool = False
    """drifted, but too harmless to spend labels on"""
    kind: str = ""
    """what kind of change it is; empty: the detector names none"""

    @property
    def has_harm(self) -> bool:
        """Whether anything is known of what the drift costs."""
        return self.harm is not None or self.harm_unlabelled is not None

    @property
    def harm_words(self) -> str:
        """The counted harm with its standard error; empty: not known."""
        return _with_error(self.harm, self.harm_error, ".1f")

    @property
    def share_words(self) -> str:
        """The fraction that has drifted with its standard error; empty: not known."""
        return _with_error(self.share, self.share_error, ".0%")


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Confidence against accuracy, as shares between 0 and 1; empty bins are left out."""

    ece: float | None
    confidence: Floats
    accuracy: Floats
    count: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A run folder's result. Matrices hold NaN where the file holds null."""

    folder: Path
    benchmark: str
    method: str
    adaptation: str
    detector: str
    buffer_size: int | None
    num_drifts: int
    seed: int
    faa: float | None
    forgetting: float | None
    faa_drifted: float | None
    faa_stable: float | None
    forgetting_since_event: float | None
    backward_transfer: float | None
    macro_f1: float | None
    """after the last task"""
    gradient_steps: float | None
    accuracy: Floats
    """(tasks, tasks) percent: row = after this task, column = on that task"""
    accuracy_til: Floats | None
    per_class: tuple[Mapping[int, float], ...]
    """after each task, percent correct of every class seen so far"""
    confusion: Floats | None
    """(classes, classes) samples by true x predicted class, after the last task; classes that
    the network had no output for are left out at the end"""
    calibration: Calibration | None
    class_names: tuple[str, ...]
    events: tuple[DriftEvent, ...]
    verdicts: tuple[Verdict, ...]
    renewals: frozenset[tuple[int, int]]
    """(task, class): the class was adapted with fresh samples after that task's check"""
    labels: Mapping[str, float | None]
    seconds: Mapping[str, float | None]
    flops: Mapping[str, float | None]
    detection: Mapping[str, float | None]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    """what a person should know about this run"""
    versions: Mapping[str, Any]
    config: Mapping[str, Any]
    samples: Path | None
    """the file with example images, if the run left one"""

    @property
    def monitor_labels(self) -> str:
        """What was known of the monitored samples: their class, a prediction of it, nothing."""
        return clean(self.config.get("monitor_labels") or "given")

    @property
    def min_harm(self) -> float | None:
        """Points of accuracy below which drift was spared; None: no drift was."""
        least = self.config.get("min_harm")
        return float(least) if isinstance(least, int | float) else None

    @property
    def num_spared(self) -> int | None:
        """Verdicts whose drift was spared; None: harm was not considered."""
        return None if self.min_harm is None else sum(v.spared for v in self.verdicts)

    @cached_property
    def adapted(self) -> Adapted:
        """What the checks gave the adaptation to act on."""
        checks = ((v.task, v.label, v.drifted, v.spared) for v in self.verdicts)
        return count_adapted(checks, self.renewals)

    @property
    def not_adapted(self) -> str:
        """That the adaptation had nothing to act on; empty where it had, or never acts."""
        return self.adapted.note(self.adaptation, self.labels.get("adaptation"))

    @property
    def num_tasks(self) -> int:
        """How many tasks the stream had."""
        return len(self.accuracy)

    @property
    def mean_accuracy(self) -> Floats:
        """(tasks,) after each task, the mean over the tasks seen so far."""
        return mean_known(self.accuracy, axis=1)

    @property
    def faa_til(self) -> float | None:
        """Final average accuracy where the network is given the task of each sample."""
        if self.accuracy_til is None:
            return None
        last = float(mean_known(self.accuracy_til, axis=1)[-1])
        return None if math.isnan(last) else last

    def cost(self, book: Mapping[str, float | None]) -> float | None:
        """The sum of training, detection and adaptation; None if one of them is not known."""
        parts = [book.get(phase) for phase in COSTS]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


def clean(value: object) -> str:
    """One line that any terminal, SVG and HTML file can hold: no control characters.

    >>> clean("a\\x1b[31m b")
    'a�[31m b'
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def shortened(value: object, most: int) -> str:
    """`clean`, and no longer than so many letters: what came from a file may be of any length.

    >>> shortened("a name that goes on", 8)
    'a name …'
    """
    text = str(value)
    return clean(text if len(text) <= most else f"{text[: most - 1]}…")


def few(names: Sequence[str], most: int) -> list[str]:
    """The first names, and how many more there are.

    >>> few(["a", "b", "c"], 2)
    ['a', 'b', 'and 1 more']
    """
    left = len(names) - most
    return [*names[:most], f"and {left:,} more"] if left > 0 else list(names)


def _with_error(value: float | None, error: float | None, form: str) -> str:
    if value is None:
        return ""
    return format(value, form) + ("" if error is None else f" ± {format(error, form)}")


def mean_known(values: Floats, axis: int) -> Floats:
    """The mean of the known entries along an axis; NaN where none is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=axis)
    totals = np.where(known, values, 0.0).sum(axis=axis)
    means: Floats = np.where(counts > 0, totals / np.maximum(counts, 1), math.nan)
    return means
