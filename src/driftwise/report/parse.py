"""From a decoded `result.json` to a run, checked once at the edge.

A file may come from anybody. What a run takes in memory, on pages and in figures grows with its
file alone: a number in it never stands for that much of anything. Everything behind this edge may
rely on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driftwise.report.saved_run import Calibration, DriftEvent, Floats, Run, Verdict, shortened

MOST_CELLS = 25_000_000
"""Entries of the largest matrix that is drawn: tasks by tasks, classes by tasks."""
MOST_LINES = 1000
"""Notes, and warnings, of one run."""
LONGEST_NAME, LONGEST_LINE, LONGEST_CONFIG = 200, 2000, 2**20
"""Letters; longer names and lines are cut, a longer config is damage."""
DEEPEST_CONFIG = 20
LARGEST_NUMBER = 1e30
"""More than any count of operations, and nothing that overflows when it is squared."""
LARGEST_PERCENTAGE = 100 + 1e-6

_PERCENTAGES = ("faa_drifted", "faa_stable", "forgetting_since_event", "backward_transfer")
_VERDICT_NUMBERS = (
    *("score", "p_value", "threshold", "harm", "harm_error", "harm_unlabelled"),
    *("share", "share_error", "moved", "moved_band", "spread", "spread_band"),
)


class DamagedError(ValueError):
    """A result that cannot be read; the message says what is wrong with it."""


def parse(result: object, folder: Path, samples: Path | None = None) -> Run:
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
    class_names = _class_names(result.get("class_names"), per_class, confusion)
    labels = _numbers(result["labels"])
    _check_indices(len(accuracy), len(class_names), per_class, verdicts, events)
    macro_f1 = result.get("macro_f1")
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
        **{name: _percent(result.get(name)) for name in _PERCENTAGES},
        macro_f1=_percent(macro_f1[-1]) if macro_f1 else None,
        gradient_steps=_number(result.get("gradient_steps")),
        accuracy=accuracy,
        accuracy_til=_percentages(result.get("accuracy_matrix_til")),
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
        warnings=tuple(_warning(entry) for entry in (result.get("warnings") or ())[:MOST_LINES]),
        versions={_name(key): _name(value) for key, value in result["versions"].items()},
        config=_config(result["config"]),
        samples=samples,
    )


def _check_indices(
    num_tasks: int,
    num_classes: int,
    per_class: Sequence[Mapping[int, float]],
    verdicts: Sequence[Verdict],
    events: Sequence[DriftEvent],
) -> None:
    """Every class and every task that is named exists, and there are not too many of them."""
    classes = {verdict.label for verdict in verdicts}.union(
        *per_class, *(event.classes for event in events)
    )
    stray = [label for label in classes if not 0 <= label < num_classes]
    if stray:
        raise DamagedError(f"has the class number {min(stray)}, expected 0 to {num_classes - 1}")
    if len(per_class) > num_tasks:
        raise DamagedError(
            f"has accuracies per class of {len(per_class)} tasks, expected at most {num_tasks}"
        )
    if num_tasks * num_classes > MOST_CELLS:
        raise DamagedError(f"has {num_tasks} tasks with {num_classes} classes")
    tasks = {verdict.task for verdict in verdicts} | {event.task for event in events}
    stray = [task for task in tasks if not 1 <= task <= num_tasks]
    if stray:
        raise DamagedError(f"has a task {min(stray)}, expected 1 to {num_tasks}")


# --- single values -------------------------------------------------------------------------------


def _name(value: object) -> str:
    return shortened(value, LONGEST_NAME)


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float):
        raise DamagedError(f"has {value!r} where a number is expected")
    if not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
        raise DamagedError(f"has a number beyond {LARGEST_NUMBER:g}")
    return float(value)


def _percent(value: Any) -> float | None:
    """A percentage, or a difference of two."""
    number = _number(value)
    if number is not None and abs(number) > LARGEST_PERCENTAGE:
        raise DamagedError(f"has {number:g} where a percentage is expected")
    return number


def _integer(value: Any) -> int:
    """Of no more than 64 bits: of any length, a number could be of many megabytes."""
    number = int(value)
    if abs(number) >= 2**64 or number != value:
        raise DamagedError(f"has {shortened(value, 40)} where a whole number is expected")
    return number


def _numbers(book: Mapping[str, Any] | None) -> dict[str, float | None]:
    """The entries that are numbers or null; anything else is ignored."""
    known = (type(None), int, float)
    return {name: _number(value) for name, value in (book or {}).items() if type(value) in known}


def _by_class(after: Mapping[str, Any] | None) -> dict[int, float]:
    """Percent by class, where it is known."""
    known = ((int(label), _percent(value)) for label, value in (after or {}).items())
    return {label: value for label, value in known if value is not None}


def _config(config: Mapping[str, Any]) -> dict[str, Any]:
    num_letters = _letters(config, DEEPEST_CONFIG)
    if num_letters > LONGEST_CONFIG:
        raise DamagedError(f"has a config of {num_letters:,} letters")
    return dict(config)


def _letters(branch: Any, depth: int) -> int:
    """About how many letters a part of a config has, all its numbers checked."""
    if depth == 0:
        raise DamagedError(f"has a config with more than {DEEPEST_CONFIG} levels")
    is_object = isinstance(branch, Mapping)
    total = sum(map(len, branch)) if is_object else 0
    for value in branch.values() if is_object else branch:
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, Mapping | list):
            total += _letters(value, depth - 1)
        elif value is not None:
            _number(float(value))
        total += 4
    return total


# --- matrices ------------------------------------------------------------------------------------

_PLAIN = frozenset({int, float, type(None)})


def _percentages(rows: Sequence[Sequence[Any]] | None) -> Floats | None:
    """(n, n) from n rows, each up to its diagonal at least; NaN where nothing is known."""
    least = range(1, len(rows or ()) + 1)
    return _square(rows, least, -LARGEST_PERCENTAGE, LARGEST_PERCENTAGE, "percentages")


def _counts(rows: Sequence[Sequence[Any]] | None) -> Floats | None:
    """(n, n) from n whole rows; 0 where nothing is known."""
    least = [len(rows or ())] * len(rows or ())
    square = _square(rows, least, 0, LARGEST_NUMBER, "counts")
    return None if square is None else np.nan_to_num(square)


def _square(
    rows: Sequence[Sequence[Any]] | None, least: Sequence[int], low: float, high: float, what: str
) -> Floats | None:
    """(n, n) from n rows of at most n entries and at least so many each, NaN for others.

    Rows without their entries would stand for a matrix much larger than the file.
    """
    if not rows:
        return None
    size = len(rows)
    for row, wanted in zip(rows, least, strict=True):
        if not wanted <= len(row) <= size:
            raise DamagedError(f"has a matrix of {size} rows with a row of {len(row)}")
        if not _PLAIN.issuperset(map(type, row)):
            for entry in row:
                _number(entry)  # names what is no number
    if size**2 > MOST_CELLS:
        raise DamagedError(f"has a matrix of {size} rows")
    square = np.full((size, size), math.nan)
    for index, row in enumerate(rows):
        square[index, : len(row)] = row  # None as NaN, and JSON holds no other NaN
    smallest, largest = np.fmin.reduce(square, axis=None), np.fmax.reduce(square, axis=None)
    if max(-smallest, largest) > LARGEST_NUMBER:
        raise DamagedError(f"has a number beyond {LARGEST_NUMBER:g}")
    if smallest < low or largest > high:  # false where all are NaN
        raise DamagedError(f"has a matrix with entries that are no {what}")
    return square


# --- entries of lists ----------------------------------------------------------------------------


def _event(entry: Mapping[str, Any]) -> DriftEvent:
    share = _number(entry.get("share"))
    if share is not None and not 0 <= share <= 1:
        raise DamagedError(f"has a share of {share:g}")
    return DriftEvent(
        task=_integer(entry["task"]),
        classes=tuple(sorted({_integer(label) for label in entry["classes"]})),
        transform=_name(entry["transform"]),
        severity=_number(entry.get("severity")),
        kind=_name(entry.get("kind", "sudden")),
        share=1.0 if share is None else share,
        over_tasks=max(1, _integer(entry.get("over_tasks") or 1)),
        domains=tuple(_name(name) for name in entry.get("domains") or () if name != "all"),
    )


def _verdict(entry: Mapping[str, Any]) -> Verdict:
    drifted = entry["drifted"]
    if drifted is not None and not isinstance(drifted, bool):
        raise DamagedError(f"has a verdict {drifted!r}, which is neither true, false nor null")
    by_test = entry.get("p_values") or {}
    numbers: dict[str, Any] = {name: _number(entry.get(name)) for name in _VERDICT_NUMBERS}
    return Verdict(
        task=_integer(entry["task"]),
        label=_integer(entry["class"]),
        drifted=drifted,
        **numbers,
        p_values=tuple((_name(test), _number(float(p)) or 0.0) for test, p in by_test.items()),
        reason=_name(entry["reason"]) if entry.get("reason") else "",
        num_current=_integer(entry.get("num_current") or 0),
        num_drifted=len(entry.get("moved_rows") or ()),
        spared=bool(entry.get("spared")),
        kind=_name(entry["kind"]) if entry.get("kind") else "",
    )


def _renewals(
    entries: Sequence[Mapping[str, Any]] | None,
    verdicts: Sequence[Verdict],
    labels: Mapping[str, float | None],
) -> frozenset[tuple[int, int]]:
    """As recorded; else, an adaptation that asked for labels has renewed what it did not spare."""
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
        rows = list(zip(*(map(_number, entry[name]) for name in names), strict=True))
    known = np.array([row for row in rows if None not in row and row[2]], dtype=np.float64)
    columns = dict(zip(names, known.reshape(-1, 3).T, strict=True))
    return Calibration(ece=_number(entry.get("ece")), **columns)


def _class_names(
    names: Sequence[Any] | None,
    per_class: Sequence[Mapping[int, float]],
    confusion: Floats | None,
) -> tuple[str, ...]:
    """As given, filled up with the numbers of classes that have an entry and no name.

    A class number by itself makes no class: it would make all classes below it, too.
    """
    given = [_name(name) for name in names or ()]
    known = max(len(set().union(*per_class)), 0 if confusion is None else len(confusion))
    return (*given, *map(str, range(len(given), known)))


def _note(entry: Mapping[str, Any]) -> str:
    return f"task {_integer(entry['task'])}: {shortened(entry['text'], LONGEST_LINE)}"


def _warning(entry: Any) -> str:
    if not isinstance(entry, str):
        raise DamagedError(f"has a warning {entry!r}, which is no text")
    return shortened(entry, LONGEST_LINE)
