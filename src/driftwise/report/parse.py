"""From a decoded `result.json` to a run, checked once at the edge.

A file may come from anybody. What a run takes in memory, on pages and in figures grows with its
file alone: a number in it never stands for that much of anything. Everything behind this edge may
rely on it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftwise.report.run import Calibration, DriftEvent, Floats, Run, Verdict, shortened

MOST_CELLS = 25_000_000
"""Entries of the largest matrix that is drawn: tasks by tasks, classes by tasks."""
MOST_LINES = 1000
"""Notes, and warnings, of one run."""
LONGEST_NAME, LONGEST_LINE, LONGEST_CONFIG = 200, 2000, 2**20
"""Letters; longer names and lines are cut, a longer config is none."""
DEEPEST_CONFIG = 20
LARGEST_NUMBER = 1e30
"""More than any count of operations, and nothing that overflows when it is squared."""


class DamagedError(ValueError):
    """A result that cannot be read; the message says what is wrong with it."""


def parse(result: object, folder: Path, samples: Path | None) -> Run:
    """The run that a decoded `result.json` describes; DamagedError says what is wrong with it."""
    if not isinstance(result, Mapping):
        raise DamagedError(f"expected an object, got {type(result).__name__}")
    try:
        return _parse(result, folder, samples)
    except KeyError as error:
        raise DamagedError(f"has no {shortened(repr(error.args[0]), LONGEST_NAME)}") from error
    except (
        *(TypeError, ValueError, AttributeError, IndexError, OverflowError),
        *(RecursionError, MemoryError),
    ) as error:
        raise DamagedError(shortened(error, LONGEST_NAME)) from error


def _parse(result: Mapping[str, Any], folder: Path, samples: Path | None) -> Run:
    accuracy = _percentages(result["accuracy_matrix"])
    if accuracy is None:
        raise DamagedError("has an empty 'accuracy_matrix'")
    per_class = tuple(_by_class(after) for after in result["per_class_accuracy"])
    confusion = _counts(result.get("confusion_matrix"))
    verdicts = tuple(_verdict(entry) for entry in result["verdicts"])
    events = tuple(_event(entry) for entry in result["drift_events"])
    labels = _numbers(result["labels"])
    class_names = _class_names(result.get("class_names"), per_class, confusion)
    classes = {label for after in per_class for label in after}
    classes |= {verdict.label for verdict in verdicts}
    classes |= {label for event in events for label in event.classes}
    stray_classes = [label for label in classes if not 0 <= label < len(class_names)]
    if stray_classes:
        raise DamagedError(
            f"has the class number {min(stray_classes)}, expected 0 to {len(class_names) - 1}"
        )
    if len(per_class) > len(accuracy):
        raise DamagedError(
            f"has accuracies per class of {len(per_class)} tasks, expected at most {len(accuracy)}"
        )
    if len(accuracy) * len(class_names) > MOST_CELLS:
        raise DamagedError(f"has {len(accuracy)} tasks with {len(class_names)} classes")
    tasks = {verdict.task for verdict in verdicts} | {event.task for event in events}
    stray = tasks - set(range(1, len(accuracy) + 1))
    if stray:
        raise DamagedError(f"has a task {min(stray)}, expected 1 to {len(accuracy)}")
    accuracy_til = _percentages(result.get("accuracy_matrix_til"))
    return Run(
        folder=folder,
        benchmark=_name(result["benchmark"]),
        method=_name(result["method"]),
        adaptation=_name(result["adaptation"]),
        detector=_name(result["detector"] if result["detector"] is not None else "none"),
        buffer_size=None if result["buffer_size"] is None else _integer(result["buffer_size"]),
        num_drifts=_integer(result["num_drifts"]),
        seed=_integer(result["seed"]),
        faa=_percent(result["faa"]),
        forgetting=_percent(result["forgetting"]),
        faa_drifted=_percent(result.get("faa_drifted")),
        faa_stable=_percent(result.get("faa_stable")),
        forgetting_since_event=_percent(result.get("forgetting_since_event")),
        backward_transfer=_percent(result.get("backward_transfer")),
        macro_f1=_last(result.get("macro_f1")),
        gradient_steps=_number(result.get("gradient_steps")),
        accuracy=accuracy,
        accuracy_til=accuracy_til,
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
        notes=tuple(_note(entry) for entry in (result.get("notes") or ())[:MOST_LINES]),
        warnings=tuple(_sentence(entry) for entry in (result.get("warnings") or ())[:MOST_LINES]),
        versions={_name(key): _name(value) for key, value in result["versions"].items()},
        config=_config(result["config"]),
        samples=samples,
    )


def _name(value: object) -> str:
    return shortened(value, LONGEST_NAME)


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DamagedError(f"has {value!r} where a number is expected")
    if not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise DamagedError(f"has a number beyond {LARGEST_NUMBER:g}")
    return float(value)


def _percent(value: Any) -> float | None:
    """A percentage, or a difference of two."""
    number = _number(value)
    if number is not None and abs(number) > 100 + 1e-6:
        raise DamagedError(f"has {number:g} where a percentage is expected")
    return number


def _integer(value: Any) -> int:
    """Of no more than 64 bits: of any length, a number could be of many megabytes."""
    number = int(value)
    if abs(number) >= 2**64 or number != value:
        raise DamagedError(f"has {shortened(value, 40)} where a whole number is expected")
    return number


def _numbers(book: Mapping[str, Any] | None) -> dict[str, float | None]:
    """The entries that are numbers or null; whatever else a book may hold is not for us."""
    plain = {name: value for name, value in (book or {}).items() if not isinstance(value, bool)}
    return {n: _number(v) for n, v in plain.items() if v is None or isinstance(v, int | float)}


def _last(values: Sequence[Any] | None) -> float | None:
    return _percent(values[-1]) if values else None


def _by_class(after: Mapping[str, Any] | None) -> dict[int, float]:
    """Percent by class, where it is known."""
    known = ((int(label), _percent(value)) for label, value in (after or {}).items())
    return {label: value for label, value in known if value is not None}


def _config(config: Mapping[str, Any]) -> dict[str, Any]:
    num_letters = len(json.dumps(config, allow_nan=False))
    if num_letters > LONGEST_CONFIG:
        raise DamagedError(f"has a config of {num_letters:,} letters")
    _check_values(config, DEEPEST_CONFIG)
    return dict(config)


def _check_values(value: Any, depth: int) -> None:
    if depth == 0:
        raise DamagedError(f"has a config with more than {DEEPEST_CONFIG} levels")
    if isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            _check_values(each, depth - 1)
    elif isinstance(value, int | float):
        _number(float(value))


_PLAIN = frozenset({int, float, type(None)})


def _percentages(rows: Sequence[Sequence[Any]] | None) -> Floats | None:
    """(n, n) from n rows, each up to its diagonal at least; NaN where nothing is known."""
    square = _square(rows, [*range(1, len(rows or ()) + 1)], math.nan)
    if square is not None and not (np.isnan(square) | (abs(square) <= 100 + 1e-6)).all():
        raise DamagedError("has a matrix with entries that are no percentages")
    return square


def _counts(rows: Sequence[Sequence[Any]] | None) -> Floats | None:
    """(n, n) from n whole rows."""
    square = _square(rows, [len(rows or ())] * len(rows or ()), 0.0)
    if square is not None and not ((square >= 0) & (square <= LARGEST_NUMBER)).all():
        raise DamagedError("has a matrix with entries that are no counts")
    return square


def _square(
    rows: Sequence[Sequence[Any]] | None, least: Sequence[int], fill: float
) -> Floats | None:
    """(n, n) from n rows of at most n entries and at least so many each; else becomes `fill`.

    Rows without their entries would stand for a matrix much larger than the file.
    """
    if not rows:
        return None
    for row, wanted in zip(rows, least, strict=True):
        if not wanted <= len(row) <= len(rows):
            raise DamagedError(f"has a matrix of {len(rows)} rows with a row of {len(row)}")
    if len(rows) ** 2 > MOST_CELLS:
        raise DamagedError(f"has a matrix of {len(rows)} rows")
    square = np.full((len(rows), len(rows)), fill)
    for index, row in enumerate(rows):
        if not _PLAIN.issuperset(map(type, row)):
            row = [_number(entry) for entry in row]  # which names what is no number
        square[index, : len(row)] = row  # None as NaN, and JSON holds no other NaN
    if np.nanmax(np.abs(square), initial=0.0) > LARGEST_NUMBER:
        raise DamagedError(f"has a number beyond {LARGEST_NUMBER:g}")
    square[np.isnan(square)] = fill
    return square


def _event(entry: Mapping[str, Any]) -> DriftEvent:
    return DriftEvent(
        task=_integer(entry["task"]),
        classes=tuple(sorted({_integer(label) for label in entry["classes"]})),
        transform=_name(entry["transform"]),
        severity=_number(entry.get("severity")),
        kind=_name(entry.get("kind", "sudden")),
        share=_share(entry.get("share")),
        over_tasks=max(1, _integer(entry.get("over_tasks") or 1)),
        domains=tuple(_name(name) for name in entry.get("domains") or () if name != "all"),
    )


def _share(value: Any) -> float:
    share = _number(value)
    if share is not None and not 0 <= share <= 1:
        raise DamagedError(f"has a share of {share:g}")
    return 1.0 if share is None else share


def _verdict(entry: Mapping[str, Any]) -> Verdict:
    drifted = entry["drifted"]
    if drifted is not None and not isinstance(drifted, bool):
        raise DamagedError(f"has a verdict {drifted!r}, which is neither true, false nor null")
    return Verdict(
        task=_integer(entry["task"]),
        label=_integer(entry["class"]),
        drifted=drifted,
        score=_number(entry.get("score")),
        p_value=_number(entry.get("p_value")),
        threshold=_number(entry.get("threshold")),
        p_values=_p_values(entry["p_values"]) if entry.get("p_values") else (),
        reason=_name(entry["reason"]) if entry.get("reason") else "",
        num_current=_integer(entry.get("num_current") or 0),
        harm=_number(entry.get("harm")),
        harm_error=_number(entry.get("harm_error")),
        harm_unlabelled=_number(entry.get("harm_unlabelled")),
        share=_number(entry.get("share")),
        share_error=_number(entry.get("share_error")),
        num_moved=len(entry.get("moved_rows") or ()),
        spared=bool(entry.get("spared")),
    )


def _p_values(by_test: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    return tuple((_name(name), _number(float(value)) or 0.0) for name, value in by_test.items())


def _renewals(
    entries: Sequence[Mapping[str, Any]] | None,
    verdicts: tuple[Verdict, ...],
    labels: Mapping[str, float | None],
) -> frozenset[tuple[int, int]]:
    """As told; else, an adaptation that asked for labels has renewed what it did not spare."""
    if entries is not None:
        return frozenset((_integer(entry["task"]), _integer(entry["class"])) for entry in entries)
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


def _class_names(
    names: Sequence[Any] | None,
    per_class: Sequence[Mapping[int, float]],
    confusion: Floats | None,
) -> tuple[str, ...]:
    """As told, filled up with the numbers of classes that have an entry and no name.

    A class number by itself makes no class: it would make all classes below it, too.
    """
    told = [_name(name) for name in names or ()]
    listed = len({label for after in per_class for label in after})
    known = max(listed, 0 if confusion is None else len(confusion))
    return (*told, *(str(label) for label in range(len(told), known)))


def _note(entry: Mapping[str, Any]) -> str:
    return f"task {_integer(entry['task'])}: {shortened(entry['text'], LONGEST_LINE)}"


def _sentence(entry: Any) -> str:
    if not isinstance(entry, str):
        raise DamagedError(f"has a warning {entry!r}, which is no text")
    return shortened(entry, LONGEST_LINE)
