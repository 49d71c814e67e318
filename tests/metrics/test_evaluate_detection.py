"""Detection quality on cases worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from driftwise import rng
from driftwise.metrics import DetectionQuality, detection_quality
from driftwise.types import Verdict


def verdicts(answers: Mapping[int, Mapping[int, bool | None]]) -> list[Verdict]:
    """Class -> task -> answer, in the order of the tasks."""
    flat = [(task, label, drifted) for label, by in answers.items() for task, drifted in by.items()]
    return [
        Verdict(task=task, label=label, drifted=drifted) for task, label, drifted in sorted(flat)
    ]


def test_nothing_to_judge_is_none() -> None:
    assert detection_quality([], {}, []) == DetectionQuality(
        tpr=None,
        fpr=None,
        delay=None,
        num_drifts=0,
        num_detected=0,
        num_missed=0,
        num_stable_checks=0,
        num_false_alarms=0,
        num_stable_rounds=0,
        num_alarmed_rounds=0,
        num_untestable=0,
    )


def test_a_class_that_is_never_renewed_stays_stale() -> None:
    # Vanilla: class 0 drifts at 3 and looks it ever after. Class 1 is flagged once for nothing.
    answers = verdicts(
        {
            0: {2: False, 3: True, 4: True, 5: True},
            1: {2: False, 3: False, 4: True, 5: False},
        }
    )
    quality = detection_quality(answers, {3: [0]}, renewals=[])
    assert quality.tpr == 1.0
    assert quality.delay == 0.0
    assert (quality.num_stable_checks, quality.num_false_alarms) == (5, 1)
    assert quality.fpr == pytest.approx(1 / 5)
    # Class 1 was stable at each of the four tasks, and one of them had a false alarm.
    assert (quality.num_stable_rounds, quality.num_alarmed_rounds) == (4, 1)


def test_a_renewed_class_is_stable_from_the_next_task_on() -> None:
    # AMR: flagged and renewed at 3, so the flag at 5 is a false alarm and the check at 3 is none.
    answers = verdicts({0: {2: False, 3: True, 4: False, 5: True}})
    quality = detection_quality(answers, {3: [0]}, renewals=[(3, 0)])
    assert quality.tpr == 1.0
    assert (quality.num_stable_checks, quality.num_false_alarms) == (3, 1)
    assert quality.fpr == pytest.approx(1 / 3)


def test_a_drift_found_late_is_not_missed_but_costs_delay() -> None:
    answers = verdicts({0: {3: False, 4: False, 5: True}, 1: {3: True, 4: False, 5: False}})
    quality = detection_quality(answers, {3: [0, 1]}, renewals=[(3, 1), (5, 0)])
    assert quality.tpr == 0.5
    assert quality.delay == pytest.approx((2 + 0) / 2)
    assert (quality.num_drifts, quality.num_detected, quality.num_missed) == (2, 1, 0)
    # The silent checks of class 0 while it was stale are no stable checks.
    assert (quality.num_stable_checks, quality.num_false_alarms) == (2, 0)


def test_an_untestable_check_at_the_event_is_a_miss_there_and_counts_for_no_rate() -> None:
    answers = verdicts({0: {2: None, 3: None, 4: True}, 1: {2: None, 3: False}})
    quality = detection_quality(answers, {3: [0]}, renewals=[])
    assert quality.num_untestable == 3
    assert (quality.tpr, quality.delay) == (0.0, 1.0)
    assert (quality.num_detected, quality.num_missed) == (0, 0)
    assert (quality.num_stable_checks, quality.num_false_alarms, quality.fpr) == (1, 0, 0.0)


def test_a_class_that_drifts_twice_is_two_events() -> None:
    # The first event (task 2) is not found before the second (task 4), which is found at once.
    answers = verdicts({0: {2: False, 3: False, 4: True, 5: False}})
    quality = detection_quality(answers, {2: [0], 4: [0]}, renewals=[(4, 0)])
    assert (quality.num_drifts, quality.num_detected, quality.num_missed) == (2, 1, 1)
    assert (quality.tpr, quality.delay) == (0.5, 0.0)
    assert (quality.num_stable_checks, quality.num_false_alarms) == (1, 0)


def test_a_drifted_class_that_nobody_checks_is_missed() -> None:
    quality = detection_quality([], {3: [0, 0]}, renewals=[])
    assert (quality.tpr, quality.num_drifts, quality.num_missed) == (0.0, 1, 1)


def slow_quality(
    answers: list[Verdict], drifts: dict[int, list[int]], renewals: list[tuple[int, int]]
) -> tuple[int, int, list[int]]:
    """(stable checks, false alarms, delays), by asking the definition at every check and event."""

    def is_stale(label: int, check: int) -> bool:
        return any(
            label in classes
            and task <= check
            and not any(who == label and task <= when < check for when, who in renewals)
            for task, classes in drifts.items()
        )

    stable = [v for v in answers if v.drifted is not None and not is_stale(v.label, v.task)]
    delays = []
    for event, classes in drifts.items():
        for label in classes:
            ends = [task for task, others in drifts.items() if task > event and label in others]
            found = [
                v.task
                for v in answers
                if v.label == label
                and v.drifted
                and event <= v.task < min(ends, default=99)
                and is_stale(label, v.task)
            ]
            delays += [min(found) - event] if found else []
    return len(stable), sum(bool(v.drifted) for v in stable), sorted(delays)


@pytest.mark.parametrize("seed", range(12))
def test_any_history_is_judged_as_the_definitions_say(seed: int) -> None:
    generator = rng.legacy(seed)
    answers = [
        Verdict(task=task, label=label, drifted=[True, False, None][generator.randint(3)])
        for task in range(2, 9)
        for label in range(4)
    ]
    drifts = {task: [c for c in range(4) if generator.rand() < 0.3] for task in range(2, 9)}
    renewals = [(task, c) for task in range(2, 9) for c in range(4) if generator.rand() < 0.3]
    quality = detection_quality(answers, drifts, renewals)
    num_stable, num_false_alarms, delays = slow_quality(answers, drifts, renewals)
    assert quality.num_stable_checks == num_stable
    assert quality.num_false_alarms == num_false_alarms
    assert quality.num_drifts == sum(map(len, drifts.values()))
    assert quality.num_missed == quality.num_drifts - len(delays)
    assert quality.num_detected == delays.count(0)
    assert quality.delay == (pytest.approx(sum(delays) / len(delays)) if delays else None)
    # The order of verdicts does not matter.
    assert detection_quality(answers[::-1], drifts, renewals) == quality
