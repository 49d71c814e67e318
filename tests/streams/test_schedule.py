"""The laws of schedules: where drift sets in, whom it takes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.streams import Concept, DriftEvent, Schedule, make_schedule, transforms
from recollect.streams.placement import event_tasks, split_classes
from recollect.streams.schedule import ORIGINAL

PAIRS = tuple((2 * i, 2 * i + 1) for i in range(5))
"""five tasks of two classes, as in the benchmarks of ten"""


def schedule(tasks: Any = PAIRS, **changes: Any) -> Schedule:
    choices: dict[str, Any] = {
        "num_drifts": 1,
        "transform": "permutation",
        "severity": 5,
        "seed": 0,
    }
    return make_schedule(tasks, **{**choices, **changes})


def takers(made: Schedule) -> dict[int, list[int]]:
    """task -> the classes that drift at it."""
    return {event.task: list(event.concepts) for event in made.events}


@st.composite
def task_lists(draw: st.DrawFn) -> list[list[int]]:
    """Up to six tasks, uneven or empty, over shuffled classes."""
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    classes = draw(st.permutations(range(sum(sizes))))
    ends = np.cumsum(sizes)
    return [classes[end - size : end] for size, end in zip(sizes, ends, strict=True)]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    tasks = draw(task_lists())
    return schedule(
        tasks,
        num_drifts=draw(st.integers(0, len(tasks) - 1)),
        scope=draw(st.sampled_from(["since-last-event", "all-seen"])),
        max_classes_per_drift=draw(st.none() | st.integers(1, 4)),
        sequential=draw(st.booleans()),
        recurring_in_training=draw(st.booleans()),
        seed=draw(st.integers(0, 9)),
    )


# Where drift sets in


@pytest.mark.parametrize(
    ("num_tasks", "num_drifts", "tasks"),
    [(5, 1, (3,)), (5, 2, (2, 4)), (10, 2, (4, 7)), (10, 4, (3, 5, 7, 9)), (5, 0, ())],
)
def test_events_sit_where_the_published_experiments_had_them(
    num_tasks: int, num_drifts: int, tasks: tuple[int, ...]
) -> None:
    assert event_tasks(num_tasks, num_drifts) == tasks


@pytest.mark.parametrize("num_tasks", range(1, 21))
def test_events_follow_the_published_formula_after_the_first_task_one_at_a_time(
    num_tasks: int,
) -> None:
    for num_drifts in range(1, num_tasks):
        first = num_tasks // (num_drifts + 1)
        literal = np.floor(np.linspace(first, num_tasks, num_drifts, endpoint=False)) + 1
        tasks = event_tasks(num_tasks, num_drifts)
        assert tasks == tuple(literal.astype(int))
        assert len(tasks) == num_drifts
        assert list(tasks) == sorted(set(tasks))
        assert all(2 <= task <= num_tasks for task in tasks)


def test_sequential_drifts_at_every_task_the_classes_of_the_one_just_before() -> None:
    made = schedule(sequential=True, num_drifts=99)  # num_drifts is moot
    assert takers(made) == {2: [0, 1], 3: [2, 3], 4: [4, 5], 5: [6, 7]}


# Whom it takes


def test_since_last_event_takes_what_was_learned_since_then() -> None:
    assert takers(schedule(num_drifts=1)) == {3: [0, 1, 2, 3]}
    assert takers(schedule(num_drifts=2)) == {2: [0, 1], 4: [2, 3, 4, 5]}


def test_all_seen_takes_everything_learned_so_far() -> None:
    made = schedule(num_drifts=2, scope="all-seen")
    assert takers(made) == {2: [0, 1], 4: [0, 1, 2, 3, 4, 5]}


def test_a_bounded_drift_takes_the_classes_that_came_last() -> None:
    assert takers(schedule(max_classes_per_drift=3)) == {3: [1, 2, 3]}
    shuffled = ((7, 2), (0,), (5,))
    assert takers(schedule(shuffled, num_drifts=1, max_classes_per_drift=1)) == {2: [2]}
    made = schedule(num_drifts=2, scope="all-seen", max_classes_per_drift=3)
    assert takers(made) == {2: [0, 1], 4: [3, 4, 5]}


def test_uneven_tasks_and_tasks_without_classes_are_played_as_they_stand() -> None:
    uneven: tuple[tuple[int, ...], ...] = ((4,), (), (0, 1, 2), (), (3,))
    made = schedule(uneven, num_drifts=2)
    assert made.tasks == uneven
    assert takers(made) == {2: [4], 4: [0, 1, 2]}
    # nothing was learned since the event before, so nothing drifts and there is no event
    assert takers(schedule(uneven, sequential=True)) == {2: [4], 4: [0, 1, 2]}
    assert takers(schedule(((), (), (0,)), num_drifts=2)) == {}


@given(schedules())
def test_only_classes_learned_before_drift_and_each_once_per_event(made: Schedule) -> None:
    for event in made.events:
        assert set(event.concepts) <= set(made.known(event.task))
        assert event.concepts


@given(task_lists(), st.data())
def test_since_last_event_and_sequential_drift_no_class_twice(
    tasks: list[list[int]], data: st.DataObject
) -> None:
    made = schedule(
        tasks,
        num_drifts=data.draw(st.integers(0, len(tasks) - 1)),
        sequential=data.draw(st.booleans()),
    )
    drifted = [label for event in made.events for label in event.concepts]
    assert len(drifted) == len(set(drifted))


# Which look it gives


@given(schedules())
def test_concept_of_is_the_last_look_taken_on_up_to_the_task(made: Schedule) -> None:
    for label in (label for task in made.tasks for label in task):
        shown = ORIGINAL
        for task in range(1, made.num_tasks + 1):
            for event in made.events:
                if event.task == task and label in event.concepts:
                    assert event.concepts[label] != shown  # an event changes the look
                    shown = event.concepts[label]
            assert made.concept_of(label, task) == shown
            assert (label in made.drifting(task)) == (
                made.concept_of(label, task) != made.concept_of(label, task - 1)
            )


@given(schedules())
def test_a_new_look_grows_out_of_the_one_that_the_class_showed(made: Schedule) -> None:
    for event in made.events:
        for label, taken_on in event.concepts.items():
            before = made.concept_of(label, event.task - 1)
            assert made.concepts[taken_on - 1].parent == before
            assert made.lineage(taken_on) == (*made.lineage(before), taken_on)
    assert {c for event in made.events for c in event.concepts.values()} == set(
        range(1, len(made.concepts) + 1)
    )


def test_classes_that_drift_together_for_the_first_time_share_one_concept() -> None:
    made = schedule(num_drifts=2, scope="all-seen")
    first, second = made.events
    assert set(first.concepts.values()) == {1}
    assert second.concepts[0] == second.concepts[1]
    assert len({second.concepts[label] for label in (2, 3, 4, 5)}) == 1
    assert second.concepts[0] != second.concepts[2]  # they come from different looks


@pytest.mark.parametrize("transform", [t for t in transforms.TRANSFORMS if t != "identity"])
@pytest.mark.parametrize("severity", [1, 5])
def test_a_class_that_drifts_again_gets_pixels_unlike_those_of_its_first_drift(
    transform: str, severity: int
) -> None:
    made = schedule(num_drifts=2, scope="all-seen", transform=transform, severity=severity)
    images = torch.from_numpy(
        np.random.RandomState(0).randint(0, 256, (6, 8, 8, 1)).astype(np.uint8)
    )
    looks = [images]
    for number in made.lineage(made.concept_of(0, 5)):
        concept = made.concepts[number - 1]
        looks.append(
            transforms.apply(looks[-1], concept.transform, concept.severity, seed=concept.seed)
        )
    assert len(looks) == 3
    original, first, second = (look.flatten(1) for look in looks)
    assert (first != original).any(dim=1).all()
    assert (second != first).any(dim=1).all()


def test_events_and_seeds_draw_their_own_randomness() -> None:
    made, other = schedule(num_drifts=2), schedule(num_drifts=2, seed=1)
    seeds = [concept.seed for concept in (*made.concepts, *other.concepts)]
    assert len(set(seeds)) == 4
    assert made == schedule(num_drifts=2)


# At rest


@given(schedules())
def test_a_schedule_comes_back_from_json_as_it_was(made: Schedule) -> None:
    assert Schedule.from_json(json.loads(json.dumps(made.to_json()))) == made


# What is refused


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_drifts": 5}, "num_drifts must be 0 to 4 for 5 tasks"),
        ({"num_drifts": -1}, "num_drifts must be 0 to 4"),
        ({"severity": 0}, "severity must be 1 to 5; got 0"),
        ({"severity": 6}, "severity must be 1 to 5; got 6"),
        ({"scope": "some"}, "scope must be one of since-last-event, all-seen; got 'some'"),
        ({"max_classes_per_drift": 0}, "max_classes_per_drift must be at least 1; got 0"),
        ({"tasks": ((0, 1), (1, 2))}, "a class may arrive only once"),
    ],
)
def test_impossible_schedules_are_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        schedule(**changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


CONCEPTS = (
    Concept(transform="rotation", severity=1, seed=0),
    Concept(transform="rotation", severity=1, seed=0, parent=1),
)


@pytest.mark.parametrize(
    ("events", "concepts", "words"),
    [
        ([(2, {1: 1})], CONCEPTS, r"classes \[1\] cannot drift at task 2"),
        ([(1, {0: 1})], CONCEPTS, "classes can drift at tasks 2 to 3; an event names 1"),
        ([(0, {0: 1})], CONCEPTS, "an event names 0"),
        ([(4, {0: 1})], CONCEPTS, "an event names 4"),
        ([(3, {0: 2}), (2, {0: 1})], CONCEPTS, "in the order of their tasks; got .3, 2"),
        ([(2, {0: 3})], CONCEPTS, r"there are concepts 0 to 2; an event names \[3\]"),
        ([], CONCEPTS[1:], "concept 1 must grow out of one before it; got parent 1"),
    ],
)
def test_schedules_written_by_hand_are_refused_where_they_make_no_sense(
    events: list[tuple[int, dict[int, int]]], concepts: tuple[Concept, ...], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        Schedule(
            tasks=((0,), (1,), (2,)),
            events=tuple(DriftEvent(task=task, concepts=shown) for task, shown in events),
            concepts=concepts,
        )


def test_a_class_may_come_back_to_its_original_look() -> None:
    made = Schedule(
        tasks=((0,), (1,), (2,)),
        events=(DriftEvent(task=2, concepts={0: 1}), DriftEvent(task=3, concepts={0: ORIGINAL})),
        concepts=CONCEPTS,
    )
    assert [made.concept_of(0, task) for task in (1, 2, 3)] == [ORIGINAL, 1, ORIGINAL]


# Splitting


@given(st.integers(1, 12), st.integers(0, 13))
def test_classes_are_split_into_equal_tasks_in_their_order_or_refused(
    num_classes: int, num_tasks: int
) -> None:
    classes = [7 * label % 13 for label in range(num_classes)]
    if num_tasks == 0 or num_classes % num_tasks:
        with pytest.raises(UserError, match=f"{num_classes} classes cannot be split into"):
            split_classes(classes, num_tasks)
    else:
        tasks = split_classes(classes, num_tasks)
        assert [label for task in tasks for label in task] == classes
        assert {len(task) for task in tasks} == {num_classes // num_tasks}


def test_no_classes_cannot_be_split() -> None:
    with pytest.raises(UserError, match="0 classes cannot be split into 1 equal tasks"):
        split_classes([], 1)
