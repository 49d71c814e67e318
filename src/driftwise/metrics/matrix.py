"""Accuracy over tasks: summaries of the accuracy matrix, and recovery from drift.

Row i holds the accuracies after task i, column j those of task j, in percent. An entry is None
above the diagonal (the task has not come yet) and for a task with nothing to test; such tasks are
left out of every mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

Matrix = Sequence[Sequence[float | None]]

WITHIN = 2.0
"""points below its former accuracy at which a class still counts as recovered"""


def accuracy_matrix(rows: Matrix) -> list[list[float | None]]:
    """The square matrix from its rows, each as long as there were tasks: None above the diagonal.

    >>> accuracy_matrix([[90.0], [70.0, 80.0]])
    [[90.0, None], [70.0, 80.0]]
    """
    for number, row in enumerate(rows, start=1):
        if len(row) != number:
            raise ValueError(f"row {number} needs one accuracy per task so far, got {len(row)}")
    return [[*row, *[None] * (len(rows) - len(row))] for row in rows]


def final_average_accuracy(matrix: Matrix) -> float | None:
    """FAA: the mean accuracy of all tasks after the last one; None without any."""
    last = _last_row(matrix)
    return _mean([value for value in last if value is not None])


def forgetting(matrix: Matrix) -> float:
    """F: how far each task but the last fell from its best, on average; 0 for a single task.

    The best may lie before a drift, on another concept: see `forgetting_since`.

    >>> forgetting([[90.0, None], [70.0, 80.0]])
    20.0
    """
    return forgetting_since(matrix, [None] * len(matrix))


def forgetting_since(matrix: Matrix, starts: Sequence[int | None]) -> float:
    """`forgetting`, where the best of task j is sought only from row `starts[j]` on.

    `starts` names, for each task, the last task (counted from 1) at which one of its classes
    drifted; None: never. An accuracy from before that drift was reached on another concept.
    """
    last = _last_row(matrix)
    if len(starts) != len(matrix):
        raise ValueError(f"expected one start for each of {len(matrix)} tasks, got {len(starts)}")
    falls = []
    for column, start in enumerate(starts[:-1]):
        if start is not None and not 1 <= start <= len(matrix):
            raise ValueError(f"a start is a task from 1 to {len(matrix)}, or None; got {start}")
        first_row = max(column, start - 1) if start is not None else column
        since = [row[column] for row in matrix[first_row:]]
        known = [value for value in since if value is not None]
        final = last[column]
        if final is not None:
            falls.append(max(known) - final)
    return _mean(falls) or 0.0


def backward_transfer(matrix: Matrix) -> float:
    """How much each task but the last gained since it was learned, on average; 0 for a single task.

    >>> backward_transfer([[90.0, None], [70.0, 80.0]])
    -20.0
    """
    gains = []
    for column, final in enumerate(_last_row(matrix)[:-1]):
        learned = matrix[column][column]
        if final is not None and learned is not None:
            gains.append(final - learned)
    return _mean(gains) or 0.0


def faa_of(per_class: Mapping[int, float], classes: Collection[int]) -> float | None:
    """The mean accuracy of some classes after the last task; None if there are none.

    A class without test samples has no accuracy and is left out.

    >>> faa_of({0: 50.0, 1: 90.0, 2: 70.0}, classes={0, 2})
    60.0
    """
    return _mean([per_class[label] for label in sorted(set(classes)) if label in per_class])


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """One class after one event, as the tests at the ends of tasks show it."""

    task: int
    """of the event, counted from 1"""
    label: int
    before: float
    """percent, at the end of the task before"""
    after: tuple[float, ...]
    """percent, at the end of the event's task and of every later one, up to its next event"""
    tasks: int | None
    """how many of these ends it took to recover; None: it has not"""
    area: float
    """points of accuracy lost, summed over these ends"""


def recoveries(
    per_class: Sequence[Mapping[int, float]], events: Iterable[tuple[int, Iterable[int]]]
) -> list[Recovery]:
    """The recovery of every class after every event; a class not tested before has none.

    `per_class` holds the accuracies by class at the end of each task, `events` the task and the
    classes of each.

    >>> ends = [{0: 90.0}, {0: 50.0}, {0: 89.0}]
    >>> recoveries(ends, [(2, [0])])[0].tasks, recoveries(ends, [(2, [0])])[0].area
    (2, 41.0)
    """
    changed = [(task, label) for task, labels in events for label in sorted(labels)]
    found = []
    for task, label in sorted(changed):
        next_event = min(
            (later for later, other in changed if other == label and later > task),
            default=len(per_class) + 1,
        )
        before = per_class[task - 2].get(label) if 1 < task <= len(per_class) else None
        if before is None:
            continue
        ends = [scores[label] for scores in per_class[task - 1 : next_event - 1]]
        is_back = [now >= before - WITHIN for now in ends]
        found.append(
            Recovery(
                task=task,
                label=label,
                before=before,
                after=tuple(ends),
                tasks=is_back.index(True) + 1 if any(is_back) else None,
                area=sum(max(0.0, before - now) for now in ends),
            )
        )
    return found


def _last_row(matrix: Matrix) -> Sequence[float | None]:
    """The accuracies after the last task, once the matrix has been found complete."""
    for number, row in enumerate(matrix, start=1):
        if not number <= len(row) <= len(matrix):
            raise ValueError(
                f"row {number} of the accuracy matrix needs {number} to {len(matrix)} entries, "
                f"got {len(row)}"
            )
    return matrix[-1] if matrix else ()


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
