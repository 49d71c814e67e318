"""Summaries of an accuracy matrix in one number.

Row i holds the accuracies after task i, column j those of task j, in percent. An entry is None
above the diagonal (the task has not come yet) and for a task with nothing to test; such tasks are
left out of every mean.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

Matrix = Sequence[Sequence[float | None]]


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
