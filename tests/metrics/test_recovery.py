"""Recovery by hand-worked numbers."""

from __future__ import annotations

from driftwise.metrics import recoveries


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


def test_no_events_cost_nothing() -> None:
    assert recoveries([{0: 90.0}, {0: 20.0}], []) == []
