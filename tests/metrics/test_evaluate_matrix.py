"""Summaries of an accuracy matrix, worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise.metrics import (
    accuracy_matrix,
    backward_transfer,
    faa_of,
    final_average_accuracy,
    forgetting,
    forgetting_since,
    recoveries,
)
from driftwise.metrics.matrix import Matrix

# Task 1: learned at 90, best 95 after task 2, ends at 60. Task 2: learned at 80, ends at 70.
MATRIX: Matrix = [[90.0, None, None], [95.0, 80.0, None], [60.0, 70.0, 100.0]]
# Task 2 brought no classes.
WITH_A_GAP: Matrix = [[90.0, None, None], [95.0, None, None], [60.0, None, 100.0]]

percent = st.floats(0, 100)


@st.composite
def matrices(draw: st.DrawFn) -> list[list[float | None]]:
    num_tasks = draw(st.integers(1, 6))
    rows = [draw(st.lists(percent, min_size=n, max_size=n)) for n in range(1, num_tasks + 1)]
    return accuracy_matrix(rows)


def test_three_tasks_by_hand() -> None:
    assert final_average_accuracy(MATRIX) == pytest.approx((60 + 70 + 100) / 3)
    assert forgetting(MATRIX) == pytest.approx(((95 - 60) + (80 - 70)) / 2)
    assert backward_transfer(MATRIX) == pytest.approx(((60 - 90) + (70 - 80)) / 2)


def test_a_task_without_classes_counts_nowhere() -> None:
    assert final_average_accuracy(WITH_A_GAP) == pytest.approx((60 + 100) / 2)
    assert forgetting(WITH_A_GAP) == pytest.approx(95 - 60)
    assert backward_transfer(WITH_A_GAP) == pytest.approx(60 - 90)
    assert (forgetting([[40.0]]), backward_transfer([[40.0]])) == (0, 0)
    assert final_average_accuracy([[40.0]]) == 40.0
    assert final_average_accuracy([]) is final_average_accuracy([[None]]) is None
    assert forgetting([[None, None], [None, None]]) == 0.0


def test_forgetting_since_a_drift_ignores_what_was_reached_before_it() -> None:
    # A class of task 1 drifted at task 3: its 95 belongs to another concept.
    assert forgetting_since(MATRIX, [3, None, None]) == pytest.approx((0 + 10) / 2)
    assert forgetting_since(MATRIX, [2, None, None]) == pytest.approx((35 + 10) / 2)
    # A drift before the task itself changes nothing.
    assert forgetting_since(MATRIX, [1, 1, 1]) == forgetting(MATRIX)


@settings(deadline=None, max_examples=30)
@given(matrices())
def test_forgetting_is_never_negative_and_falls_the_later_its_maximum_starts(
    matrix: list[list[float | None]],
) -> None:
    num_tasks = len(matrix)
    curve = [forgetting_since(matrix, [start] * num_tasks) for start in range(1, num_tasks + 1)]
    assert curve[0] == forgetting(matrix)
    assert curve == sorted(curve, reverse=True)
    assert curve[-1] == 0.0
    assert backward_transfer(matrix) + forgetting(matrix) >= -1e-9
    ragged = [row[:number] for number, row in enumerate(matrix, start=1)]
    assert accuracy_matrix(ragged) == matrix
    for summary in (final_average_accuracy, forgetting, backward_transfer):
        assert summary(ragged) == summary(matrix)


def test_faa_of_some_classes_is_their_mean() -> None:
    per_class = {0: 10.0, 1: 20.0, 2: 60.0}
    assert faa_of(per_class, [0, 2]) == 35.0
    assert faa_of(per_class, [1, 1]) == 20.0
    assert faa_of(per_class, [0, 9]) == 10.0  # class 9 has no test samples
    assert faa_of(per_class, []) is None


def test_matrices_and_starts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="row 2"):
        forgetting([[90.0], [95.0]])
    with pytest.raises(ValueError, match="row 1"):
        accuracy_matrix([[90.0, None], [95.0, 80.0]])
    with pytest.raises(ValueError, match="one start for each of 3 tasks"):
        forgetting_since(MATRIX, [None])
    with pytest.raises(ValueError, match="a task from 1 to 3"):
        forgetting_since(MATRIX, [4, None, None])


# Recovery from drift


def test_a_class_is_back_once_it_is_nearly_as_good_as_before() -> None:
    ends = [{0: 90.0, 1: 80.0}, {0: 60.0, 1: 81.0}, {0: 87.9, 1: 70.0}, {0: 88.0, 1: 95.0}]
    drifted, untouched_at_first = recoveries(ends, [(2, [0]), (3, [1])])
    assert (drifted.task, drifted.label, drifted.before) == (2, 0, 90.0)
    assert drifted.after == (60.0, 87.9, 88.0)
    assert drifted.tasks == 3
    assert abs(drifted.area - (30 + 2.1 + 2)) < 1e-9
    assert (untouched_at_first.tasks, untouched_at_first.area) == (2, 11.0)


def test_the_next_event_of_a_class_begins_a_new_account() -> None:
    ends = [{0: 90.0}, {0: 50.0}, {0: 40.0}, {0: 40.0}]
    first, second = recoveries(ends, [(2, [0]), (3, [0])])
    assert (first.after, first.tasks, first.area) == ((50.0,), None, 40.0)
    assert (second.before, second.tasks, second.area) == (50.0, None, 20.0)


def test_a_class_that_was_not_tested_before_has_no_account() -> None:
    assert recoveries([{0: 90.0}, {0: 50.0, 1: 10.0}], [(1, [0]), (2, [1])]) == []
    assert recoveries([{0: 90.0}, {0: 20.0}], []) == []
