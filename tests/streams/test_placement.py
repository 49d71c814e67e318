"""The laws of placement: where the paper's rules let drift set in, whom it takes, what it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from streams_builders import concept_of, original, placed, placements, stream_of, task_lists

from driftwise.errors import UserError
from driftwise.streams import Schedule, transforms
from driftwise.streams.placement import event_tasks, split_classes


def takers(made: Schedule) -> dict[int, list[int]]:
    """task -> the classes that drift at it."""
    return {event.task: list(event.concepts) for event in made.events}


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
    made = placed(sequential=True, num_drifts=99)  # num_drifts is moot
    assert takers(made) == {2: [0, 1], 3: [2, 3], 4: [4, 5], 5: [6, 7]}


# Whom it takes


def test_since_last_event_takes_what_was_learned_since_then() -> None:
    assert takers(placed(num_drifts=1)) == {3: [0, 1, 2, 3]}
    assert takers(placed(num_drifts=2)) == {2: [0, 1], 4: [2, 3, 4, 5]}


def test_all_seen_takes_everything_learned_so_far() -> None:
    made = placed(num_drifts=2, scope="all-seen")
    assert takers(made) == {2: [0, 1], 4: [0, 1, 2, 3, 4, 5]}


def test_a_bounded_drift_takes_the_classes_that_came_last() -> None:
    assert takers(placed(max_classes_per_drift=3)) == {3: [1, 2, 3]}
    shuffled = ((7, 2), (0,), (5,))
    assert takers(placed(shuffled, num_drifts=1, max_classes_per_drift=1)) == {2: [2]}
    made = placed(num_drifts=2, scope="all-seen", max_classes_per_drift=3)
    assert takers(made) == {2: [0, 1], 4: [3, 4, 5]}


def test_uneven_tasks_and_tasks_without_classes_are_played_as_they_stand() -> None:
    uneven: tuple[tuple[int, ...], ...] = ((4,), (), (0, 1, 2), (), (3,))
    made = placed(uneven, num_drifts=2)
    assert made.tasks == uneven
    assert takers(made) == {2: [4], 4: [0, 1, 2]}
    # nothing was learned since the event before, so nothing drifts and there is no event
    assert takers(placed(uneven, sequential=True)) == {2: [4], 4: [0, 1, 2]}
    assert takers(placed(((), (), (0,)), num_drifts=2)) == {}


@given(placements())
def test_only_classes_learned_before_drift_and_each_once_per_event(made: Schedule) -> None:
    for event in made.events:
        assert set(event.concepts) <= set(made.known(event.task))
        assert event.concepts


@given(task_lists(), st.data())
def test_since_last_event_and_sequential_drift_no_class_twice(
    tasks: list[list[int]], data: st.DataObject
) -> None:
    made = placed(
        tasks,
        num_drifts=data.draw(st.integers(0, len(tasks) - 1)),
        sequential=data.draw(st.booleans()),
    )
    drifted = [label for event in made.events for label in event.concepts]
    assert len(drifted) == len(set(drifted))


# What it does


def test_classes_that_drift_together_for_the_first_time_share_one_concept() -> None:
    made = placed(num_drifts=2, scope="all-seen")
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
    made = placed(num_drifts=2, scope="all-seen", transform=transform, severity=severity)
    images = torch.from_numpy(
        np.random.RandomState(0).randint(0, 256, (6, 8, 8, 1)).astype(np.uint8)
    )
    looks = [images]
    for number in made.lineage(concept_of(made, 0, 5)):
        concept = made.concepts[number - 1]
        looks.append(
            transforms.apply(looks[-1], concept.transform, concept.severity, seed=concept.seed)
        )
    assert len(looks) == 3
    original, first, second = (look.flatten(1) for look in looks)
    assert (first != original).any(dim=1).all()
    assert (second != first).any(dim=1).all()


def test_events_and_seeds_draw_their_own_randomness() -> None:
    made, other = placed(num_drifts=2), placed(num_drifts=2, seed=1)
    seeds = [concept.seed for concept in (*made.concepts, *other.concepts)]
    assert len(set(seeds)) == 4
    assert made == placed(num_drifts=2)


@pytest.mark.parametrize(("unit", "num_units"), [("pixel", 36), ("row", 6)])
def test_a_drift_seed_of_42_gives_the_published_permutation_at_every_event_and_seed(
    unit: str, num_units: int
) -> None:
    tasks = ((0,), (1,), (2,), (3,), ())
    for seed in (0, 7):
        made = placed(tasks, num_drifts=2, drift_seed=42, unit=unit, seed=seed)
        stream = stream_of(made)
        for label, task in ((0, 2), (1, 4), (2, 4)):
            samples = stream.samples("test", [label], task)
            assert len(samples)
            for image, pixels in zip(
                samples.images.numpy(), original(samples).numpy(), strict=True
            ):
                x = pixels.reshape(num_units, -1).copy()
                rs = np.random.RandomState(42)
                s = rs.choice(num_units, num_units, replace=False)
                x[s] = x[rs.permutation(s)]
                np.testing.assert_array_equal(image, x.reshape(pixels.shape))


def test_share_speed_and_concepts_of_their_own_reach_every_event() -> None:
    made = placed(num_drifts=2, share=0.5, over_tasks=2, per_class=True)
    assert [(event.share, event.over_tasks) for event in made.events] == [(0.5, 2)] * 2
    assert [list(event.concepts.values()) for event in made.events] == [[1, 2], [3, 4, 5, 6]]
    assert len({concept.seed for concept in made.concepts}) == 6


def test_domains_are_taken_in_turn_one_per_event_without_a_transform() -> None:
    made = placed(num_drifts=4, scope="all-seen", domains=("art", "sketch"), first_domain="photo")
    assert [concept_of(made, 0, task) for task in range(1, 6)] == [0, 1, 2, 3, 4]
    shown = [made.domain_of(concept_of(made, 0, task)) for task in range(1, 6)]
    assert shown == ["photo", "art", "sketch", "art", "sketch"]
    assert {concept.transform for concept in made.concepts} == {"identity"}
    # classes that came from different domains meet in one look
    assert len(made.concepts) == 4
    with pytest.raises(UserError, match="per_class varies transforms, and the event has none"):
        placed(domains=("art",), first_domain="photo", per_class=True)


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
        ({"transform": "rotate"}, "unknown transform 'rotate'; did you mean 'rotation'?"),
        ({"unit": "rows"}, "unknown unit 'rows'; did you mean 'row'?"),
        ({"share": 1.5}, "must lie above 0, up to 1; got 1.5"),
        ({"over_tasks": 0}, "over at least 1 task; got 0"),
    ],
)
def test_impossible_schedules_are_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        placed(**changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# Splitting


@given(st.integers(1, 12), st.integers(0, 13))
def test_classes_are_split_as_evenly_as_can_be_in_their_order_or_refused(
    num_classes: int, num_tasks: int
) -> None:
    classes = [7 * label % 13 for label in range(num_classes)]
    if not 1 <= num_tasks <= num_classes:
        with pytest.raises(UserError, match=f"{num_classes} classes cannot be split into"):
            split_classes(classes, num_tasks)
    else:
        tasks = split_classes(classes, num_tasks)
        assert [label for task in tasks for label in task] == classes
        sizes = [len(task) for task in tasks]
        assert sizes == sorted(sizes, reverse=True), "the first ones have one more"
        assert len(sizes) == num_tasks
        assert max(sizes) - min(sizes) <= 1


def test_no_classes_cannot_be_split() -> None:
    with pytest.raises(UserError, match="0 classes cannot be split into 1 tasks"):
        split_classes([], 1)
