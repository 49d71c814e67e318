"""One finished run, as its `result.json` tells it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

COSTS = ("train", "detect", "adapt")
"""The phases that make up what a run costs; evaluating it is our wish, not a cost of the method."""


class DamagedResult(ValueError):
    """A result that cannot be read; the message says what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class DriftEvent:
    """The truth: these classes changed their look when this task (counted from 1) began."""

    task: int
    classes: tuple[int, ...]
    transform: str
    severity: float | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a detector said about one class at one task."""

    task: int
    label: int
    drifted: bool | None
    """None: not testable"""
    score: float | None
    p_value: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Confidence against accuracy, as shares between 0 and 1; bins without rows are left out."""

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
    """(classes, classes) rows counted by true x predicted class, after the last task"""
    calibration: Calibration | None
    class_names: tuple[str, ...]
    events: tuple[DriftEvent, ...]
    verdicts: tuple[Verdict, ...]
    renewals: frozenset[tuple[int, int]]
    """(task, class): the class was met with fresh samples after that task's check"""
    labels: Mapping[str, float | None]
    seconds: Mapping[str, float | None]
    flops: Mapping[str, float | None]
    detection: Mapping[str, float | None]
    notes: tuple[str, ...]
    versions: Mapping[str, Any]
    config: Mapping[str, Any]
    samples: Path | None
    """the file with example pictures, if the run left one"""

    @property
    def num_tasks(self) -> int:
        """How many tasks the stream had."""
        return len(self.accuracy)

    @property
    def mean_accuracy(self) -> Floats:
        """(tasks,) after each task, the mean over the tasks seen so far."""
        return _row_means(self.accuracy)

    @property
    def faa_til(self) -> float | None:
        """Final average accuracy where the network is told which task a row belongs to."""
        if self.accuracy_til is None:
            return None
        last = float(_row_means(self.accuracy_til)[-1])
        return None if math.isnan(last) else last

    def cost(self, book: Mapping[str, float | None]) -> float | None:
        """The sum of training, detection and adaptation; None if one of them is not known."""
        parts = [book.get(phase) for phase in COSTS]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


def parse(result: object, folder: Path, samples: Path | None) -> Run:
    """The run that a decoded `result.json` describes; DamagedResult says what is wrong with it."""
    if not isinstance(result, Mapping):
        raise DamagedResult(f"expected an object, got {type(result).__name__}")
    try:
        return _parse(result, folder, samples)
    except KeyError as error:
        raise DamagedResult(f"has no {error.args[0]!r}") from error
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DamagedResult(str(error)) from error


def _parse(result: Mapping[str, Any], folder: Path, samples: Path | None) -> Run:
    per_class = tuple(
        {int(label): float(value) for label, value in (after or {}).items() if value is not None}
        for after in result["per_class_accuracy"]
    )
    confusion = _square(result.get("confusion_matrix"), fill=0.0)
    accuracy = _square(result["accuracy_matrix"])
    if accuracy is None:
        raise DamagedResult("has an empty 'accuracy_matrix'")
    verdicts = tuple(_verdict(entry) for entry in result["verdicts"])
    events = tuple(_event(entry) for entry in result["drift_events"])
    labels = _numbers(result["labels"])
    classes = {label for after in per_class for label in after}
    classes |= {verdict.label for verdict in verdicts}
    classes |= {label for event in events for label in event.classes}
    num_classes = max(max(classes, default=-1) + 1, len(confusion) if confusion is not None else 0)
    if min(classes, default=0) < 0:
        raise DamagedResult(f"has the class number {min(classes)}")
    return Run(
        folder=folder,
        benchmark=clean(result["benchmark"]),
        method=clean(result["method"]),
        adaptation=clean(result["adaptation"]),
        detector=clean(result["detector"] if result["detector"] is not None else "none"),
        buffer_size=None if result["buffer_size"] is None else int(result["buffer_size"]),
        num_drifts=int(result["num_drifts"]),
        seed=int(result["seed"]),
        faa=_number(result["faa"]),
        forgetting=_number(result["forgetting"]),
        faa_drifted=_number(result.get("faa_drifted")),
        faa_stable=_number(result.get("faa_stable")),
        forgetting_since_event=_number(result.get("forgetting_since_event")),
        backward_transfer=_number(result.get("backward_transfer")),
        macro_f1=_last(result.get("macro_f1")),
        gradient_steps=_number(result.get("gradient_steps")),
        accuracy=accuracy,
        accuracy_til=_square(result.get("accuracy_matrix_til")),
        per_class=per_class,
        confusion=confusion,
        calibration=_calibration(result.get("calibration")),
        class_names=_class_names(result.get("class_names"), num_classes),
        events=events,
        verdicts=verdicts,
        renewals=_renewals(result.get("renewals"), verdicts, labels),
        labels=labels,
        seconds=_numbers(result["seconds"]),
        flops=_numbers(result["flops"]),
        detection=_numbers(result["detection"]),
        notes=tuple(_note(entry) for entry in result.get("notes") or ()),
        versions=dict(result["versions"]),
        config=dict(result["config"]),
        samples=samples,
    )


def clean(value: object) -> str:
    """One line that any terminal, SVG and HTML file can hold: no control characters.

    >>> clean("a\\x1b[31m b")
    'a�[31m b'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in str(value))


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DamagedResult(f"has {value!r} where a number is expected")
    return float(value)


def _numbers(book: Mapping[str, Any] | None) -> dict[str, float | None]:
    """The entries that are numbers or null; whatever else a book may hold is not for us."""
    plain = {name: value for name, value in (book or {}).items() if not isinstance(value, bool)}
    return {n: _number(v) for n, v in plain.items() if v is None or isinstance(v, int | float)}


def _last(values: Sequence[Any] | None) -> float | None:
    return _number(values[-1]) if values else None


def _square(rows: Sequence[Sequence[Any]] | None, *, fill: float = math.nan) -> Floats | None:
    """(n, n) from n rows of at most n entries; what is missing or null becomes `fill`."""
    if not rows:
        return None
    square = np.full((len(rows), len(rows)), fill)
    for index, row in enumerate(rows):
        if len(row) > len(rows):
            raise DamagedResult(f"has a matrix of {len(rows)} rows with a row of {len(row)}")
        values = [_number(entry) for entry in row]
        square[index, : len(row)] = [fill if value is None else value for value in values]
    return square


def _row_means(matrix: Floats) -> Floats:
    """(rows,) the mean of the known entries of each row; NaN where none is known."""
    known = ~np.isnan(matrix)
    totals = np.where(known, matrix, 0.0).sum(axis=1)
    counts = known.sum(axis=1)
    means: Floats = np.where(counts > 0, totals / np.maximum(counts, 1), math.nan)
    return means


def _event(entry: Mapping[str, Any]) -> DriftEvent:
    return DriftEvent(
        task=int(entry["task"]),
        classes=tuple(sorted(int(label) for label in entry["classes"])),
        transform=clean(entry["transform"]),
        severity=_number(entry.get("severity")),
    )


def _verdict(entry: Mapping[str, Any]) -> Verdict:
    drifted = entry["drifted"]
    if drifted is not None and not isinstance(drifted, bool):
        raise DamagedResult(f"has a verdict {drifted!r}, which is neither true, false nor null")
    return Verdict(
        task=int(entry["task"]),
        label=int(entry["class"]),
        drifted=drifted,
        score=_number(entry.get("score")),
        p_value=_number(entry.get("p_value")),
    )


def _renewals(
    entries: Sequence[Mapping[str, Any]] | None,
    verdicts: tuple[Verdict, ...],
    labels: Mapping[str, float | None],
) -> frozenset[tuple[int, int]]:
    """As told; where nothing is told, an adaptation that asked for labels renewed what was flagged."""
    if entries is not None:
        return frozenset((int(entry["task"]), int(entry["class"])) for entry in entries)
    if not labels.get("adaptation"):
        return frozenset()
    return frozenset((verdict.task, verdict.label) for verdict in verdicts if verdict.drifted)


def _calibration(entry: Mapping[str, Any] | None) -> Calibration | None:
    """From a list of bins, or from one list per column."""
    if entry is None:
        return None
    names = ("confidence", "accuracy", "count")
    if "bins" in entry:
        rows = [tuple(_number(each[name]) for name in names) for each in entry["bins"]]
    else:
        columns = [map(_number, entry[name]) for name in names]
        rows = list(zip(*columns, strict=True))
    known = np.array([row for row in rows if None not in row and row[2]], dtype=np.float64)
    confidence, accuracy, count = known.reshape(-1, 3).T
    return Calibration(
        ece=_number(entry.get("ece")), confidence=confidence, accuracy=accuracy, count=count
    )


def _class_names(names: Sequence[Any] | None, num_classes: int) -> tuple[str, ...]:
    """As told, filled up with the numbers of classes that have no name."""
    told = [clean(name) for name in names or ()]
    return (*told, *(str(label) for label in range(len(told), num_classes)))


def _note(entry: Mapping[str, Any]) -> str:
    return f"task {int(entry['task'])}: {clean(entry['text'])}"
