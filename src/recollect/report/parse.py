"""From a decoded `result.json` to a run, checked once at the edge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.report.run import Calibration, DriftEvent, Floats, Run, Verdict, clean

LARGEST = 1e100
"""Numbers beyond it mean nothing here, and their sums and squares would be no numbers."""


class DamagedError(ValueError):
    """A result that cannot be read; the message says what is wrong with it."""


def parse(result: object, folder: Path, samples: Path | None) -> Run:
    """The run that a decoded `result.json` describes; DamagedError says what is wrong with it."""
    if not isinstance(result, Mapping):
        raise DamagedError(f"expected an object, got {type(result).__name__}")
    try:
        return _parse(result, folder, samples)
    except KeyError as error:
        raise DamagedError(f"has no {error.args[0]!r}") from error
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DamagedError(str(error)) from error


def _parse(result: Mapping[str, Any], folder: Path, samples: Path | None) -> Run:
    per_class = tuple(
        {
            int(label): number
            for label, value in (after or {}).items()
            if (number := _number(value)) is not None
        }
        for after in result["per_class_accuracy"]
    )
    confusion = _square(result.get("confusion_matrix"), fill=0.0)
    accuracy = _square(result["accuracy_matrix"])
    if accuracy is None:
        raise DamagedError("has an empty 'accuracy_matrix'")
    verdicts = tuple(_verdict(entry) for entry in result["verdicts"])
    events = tuple(_event(entry) for entry in result["drift_events"])
    labels = _numbers(result["labels"])
    classes = {label for after in per_class for label in after}
    classes |= {verdict.label for verdict in verdicts}
    classes |= {label for event in events for label in event.classes}
    num_classes = max(max(classes, default=-1) + 1, len(confusion) if confusion is not None else 0)
    if min(classes, default=0) < 0:
        raise DamagedError(f"has the class number {min(classes)}")
    tasks = {verdict.task for verdict in verdicts} | {event.task for event in events}
    stray = tasks - set(range(1, len(accuracy) + 1))
    if stray:
        raise DamagedError(f"has a task {min(stray)}, expected 1 to {len(accuracy)}")
    class_names = _class_names(result.get("class_names"), num_classes)
    if confusion is not None and len(confusion) < len(class_names):
        confusion = np.pad(confusion, (0, len(class_names) - len(confusion)))
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
        class_names=class_names,
        events=events,
        verdicts=verdicts,
        renewals=_renewals(result.get("renewals"), verdicts, labels),
        labels=labels,
        seconds=_numbers(result["seconds"]),
        flops=_numbers(result["flops"]),
        detection=_numbers(result["detection"]),
        notes=tuple(_note(entry) for entry in result.get("notes") or ()),
        warnings=tuple(_sentence(entry) for entry in result.get("warnings") or ()),
        versions=dict(result["versions"]),
        config=dict(result["config"]),
        samples=samples,
    )


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DamagedError(f"has {value!r} where a number is expected")
    if not abs(value) <= LARGEST:
        raise DamagedError(f"has a number beyond {LARGEST:g}")
    return float(value)


def _numbers(book: Mapping[str, Any] | None) -> dict[str, float | None]:
    """The entries that are numbers or null; whatever else a book may hold is not for us."""
    plain = {name: value for name, value in (book or {}).items() if not isinstance(value, bool)}
    return {n: _number(v) for n, v in plain.items() if v is None or isinstance(v, int | float)}


def _last(values: Sequence[Any] | None) -> float | None:
    return _number(values[-1]) if values else None


_PLAIN = frozenset({int, float, type(None)})


def _square(rows: Sequence[Sequence[Any]] | None, *, fill: float = math.nan) -> Floats | None:
    """(n, n) from n rows of at most n entries; what is missing or null becomes `fill`."""
    if not rows:
        return None
    square = np.full((len(rows), len(rows)), fill)
    for index, row in enumerate(rows):
        if len(row) > len(rows):
            raise DamagedError(f"has a matrix of {len(rows)} rows with a row of {len(row)}")
        if not _PLAIN.issuperset(map(type, row)):
            row = [_number(entry) for entry in row]  # which names what is no number
        square[index, : len(row)] = row  # None as NaN, and JSON holds no other NaN
    if np.nanmax(np.abs(square), initial=0.0) > LARGEST:
        raise DamagedError(f"has a number beyond {LARGEST:g}")
    square[np.isnan(square)] = fill
    return square


def _event(entry: Mapping[str, Any]) -> DriftEvent:
    return DriftEvent(
        task=int(entry["task"]),
        classes=tuple(sorted(int(label) for label in entry["classes"])),
        transform=clean(entry["transform"]),
        severity=_number(entry.get("severity")),
        kind=clean(entry.get("kind", "sudden")),
        share=1.0 if entry.get("share") is None else float(entry["share"]),
        over_tasks=int(entry.get("over_tasks") or 1),
        domains=tuple(clean(name) for name in entry.get("domains") or () if name != "all"),
    )


def _verdict(entry: Mapping[str, Any]) -> Verdict:
    drifted = entry["drifted"]
    if drifted is not None and not isinstance(drifted, bool):
        raise DamagedError(f"has a verdict {drifted!r}, which is neither true, false nor null")
    return Verdict(
        task=int(entry["task"]),
        label=int(entry["class"]),
        drifted=drifted,
        score=_number(entry.get("score")),
        p_value=_number(entry.get("p_value")),
        threshold=_number(entry.get("threshold")),
        p_values=tuple(
            (clean(name), float(value)) for name, value in (entry.get("p_values") or {}).items()
        ),
        reason=clean(entry.get("reason") or ""),
        num_current=int(entry.get("num_current") or 0),
        harm=_number(entry.get("harm")),
        harm_error=_number(entry.get("harm_error")),
        harm_unlabelled=_number(entry.get("harm_unlabelled")),
        share=_number(entry.get("share")),
        share_error=_number(entry.get("share_error")),
        num_moved=len(entry.get("moved_rows") or ()),
        spared=bool(entry.get("spared")),
    )


def _renewals(
    entries: Sequence[Mapping[str, Any]] | None,
    verdicts: tuple[Verdict, ...],
    labels: Mapping[str, float | None],
) -> frozenset[tuple[int, int]]:
    """As told; else, an adaptation that asked for labels has renewed what it did not spare."""
    if entries is not None:
        return frozenset((int(entry["task"]), int(entry["class"])) for entry in entries)
    if not labels.get("adaptation"):
        return frozenset()
    return frozenset((v.task, v.label) for v in verdicts if v.drifted and not v.spared)


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


def _sentence(entry: Any) -> str:
    if not isinstance(entry, str):
        raise DamagedError(f"has a warning {entry!r}, which is no text")
    return clean(entry)
