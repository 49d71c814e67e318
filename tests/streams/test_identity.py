"""The control: an identity is an event in the script, and no drift in the truth."""

from __future__ import annotations

from driftwise.streams import EventSpec, make_schedule, make_script

TASKS = ((0, 1), (2, 3), (4,), (5,))


def test_an_identity_drifts_nobody() -> None:
    made = make_schedule(TASKS, num_drifts=2, transform="identity", severity=5, seed=0)
    assert len(made.events) == 2
    assert made.drifted() == frozenset()


def test_an_identity_on_top_of_a_drift_is_no_second_one() -> None:
    made = make_script(
        TASKS,
        [
            EventSpec(task=2, classes=(0,), transforms=(("rotation", 2),)),
            EventSpec(task=3, classes=(0, 1), transforms=(("identity", 1),)),
        ],
        seed=0,
    )
    assert [made.drifting(task) for task in (2, 3, 4)] == [(0,), (), ()]
    assert made.drifted() == {0}


def test_another_domain_is_drift_although_no_pixel_is_transformed() -> None:
    event = EventSpec(task=2, classes=(0,), domain="sketch")
    made = make_script(TASKS, [event], seed=0, first_domain="photo")
    assert made.drifted() == {0}
