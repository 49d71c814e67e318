"""The laws of schedules: which looks a class has when, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from streams_builders import concept_of, placements

from driftwise.errors import UserError
from driftwise.streams import Concept, DriftEvent, Schedule
from driftwise.streams.schedule import ORIGINAL

CONCEPTS = (
    Concept(transform="rotation", severity=1, seed=0),
    Concept(transform="rotation", severity=1, seed=0, parent=1),
)


# Which look a class has


@given(placements())
def test_a_class_shows_the_last_look_taken_on_up_to_the_task(made: Schedule) -> None:
    for label in (label for task in made.tasks for label in task):
        shown = ORIGINAL
        for task in range(1, made.num_tasks + 1):
            for event in made.events:
                if event.task == task and label in event.concepts:
                    assert event.concepts[label] != shown  # an event changes the look
                    shown = event.concepts[label]
            assert concept_of(made, label, task) == shown
            assert (label in made.drifting(task)) == (
                concept_of(made, label, task) != concept_of(made, label, task - 1)
            )


@given(placements())
def test_a_new_look_grows_out_of_the_one_that_the_class_showed(made: Schedule) -> None:
    for event in made.events:
        for label, taken_on in event.concepts.items():
            before = concept_of(made, label, event.task - 1)
            assert made.concepts[taken_on - 1].parent == before
            assert made.lineage(taken_on) == (*made.lineage(before), taken_on)
    assert {c for event in made.events for c in event.concepts.values()} == set(
        range(1, len(made.concepts) + 1)
    )


@pytest.mark.parametrize(
    ("share", "over_tasks", "shares"),
    [
        (1.0, 1, [0, 1, 1, 1]),
        (0.5, 1, [0, 0.5, 0.5, 0.5]),
        (1.0, 2, [0, 0.5, 1, 1]),
        (0.6, 3, [0, 0.2, 0.4, 0.6]),
        (1.0, 8, [0, 0.125, 0.25, 0.375]),
    ],
)
def test_the_share_of_an_event_rises_evenly_to_its_end(
    share: float, over_tasks: int, shares: list[float]
) -> None:
    event = DriftEvent(task=2, concepts={0: 1}, share=share, over_tasks=over_tasks)
    made = Schedule(tasks=((0,), (), (), ()), events=(event,), concepts=CONCEPTS)
    for task, expected in enumerate(shares, start=1):
        assert event.share_at(task) == pytest.approx(expected)
        truth = {ORIGINAL: 1 - expected, 1: expected}
        assert made.mixture(0, task) == pytest.approx({c: s for c, s in truth.items() if s})
        assert made.drifting(task) == ((0,) if expected != shares[max(task - 2, 0)] else ())
        assert concept_of(made, 0, task) == int(expected >= 0.5)


@pytest.mark.parametrize(
    ("choices", "kind"),
    [
        ({}, "sudden"),
        ({"share": 0.5}, "partial"),
        ({"over_tasks": 2}, "gradual"),
        ({"over_steps": 9}, "gradual"),
    ],
)
def test_an_event_has_a_word_for_how_it_sets_in(choices: dict[str, Any], kind: str) -> None:
    assert DriftEvent(task=2, concepts={}, **choices).kind == kind


def test_an_event_takes_its_share_of_every_look_and_all_of_it_at_full_share() -> None:
    made = Schedule(
        tasks=((0,), (), (), (), ()),
        events=(
            DriftEvent(task=2, concepts={0: 1}, share=0.5),
            DriftEvent(task=3, concepts={0: 2}, share=0.2),
            DriftEvent(task=4, concepts={0: 1}, share=0.5),
            DriftEvent(task=5, concepts={0: 2}),
        ),
        concepts=CONCEPTS,
    )
    assert made.mixture(0, 3) == pytest.approx({0: 0.4, 1: 0.4, 2: 0.2})
    assert made.mixture(0, 4) == pytest.approx({0: 0.2, 1: 0.7, 2: 0.1})
    assert made.mixture(0, 5) == {2: 1.0}


def test_a_concept_is_shown_by_the_nearest_domain_on_its_way_from_the_original() -> None:
    made = Schedule(
        tasks=((0, 1), (), ()),
        events=(
            DriftEvent(task=2, concepts={0: 2}, share=0.5),
            DriftEvent(task=3, concepts={0: 3, 1: 3}),
        ),
        concepts=(Concept(domain="art"), Concept(transform="rotation", parent=1), Concept()),
        first_domain="photo",
    )
    assert [made.domain_of(concept) for concept in range(4)] == ["photo", "art", "art", "photo"]
    assert made.domains_of(0) == ("photo", "art")
    assert made.domains_of(1) == ("photo",)
    assert [made.mixes_domains(label) for label in (0, 1)] == [True, False]


# At rest


@given(placements())
def test_a_schedule_comes_back_from_json_as_it_was(made: Schedule) -> None:
    assert Schedule.from_json(json.loads(json.dumps(made.to_json()))) == made


# What is refused


@pytest.mark.parametrize(
    ("events", "concepts", "words"),
    [
        ([(2, {1: 1})], CONCEPTS, r"classes \[1\] cannot drift at task 2"),
        ([(1, {0: 1})], CONCEPTS, "classes can drift at tasks 2 to 3; an event names 1"),
        ([(0, {0: 1})], CONCEPTS, "an event names 0"),
        ([(4, {0: 1})], CONCEPTS, "an event names 4"),
        ([(3, {0: 2}), (2, {0: 1})], CONCEPTS, "in the order of their tasks; got .3, 2"),
        ([(2, {0: 3})], CONCEPTS, r"there are concepts 0 to 2; an event names \[3\]"),
        ([], CONCEPTS[1:], "concept 1 must have a parent before it; got parent 1"),
        ([], (Concept(domain="art"),), "names the domain 'art'; name the first_domain too"),
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


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"share": 0.0}, "must lie above 0, up to 1; got 0.0"),
        ({"share": 1.1}, "must lie above 0, up to 1; got 1.1"),
        ({"share": float("nan")}, "must lie above 0, up to 1; got nan"),
        ({"over_tasks": 0}, "over at least 1 task; got 0"),
    ],
)
def test_impossible_shares_are_refused(choices: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Schedule(
            tasks=((0,), (1,)),
            events=(DriftEvent(task=2, concepts={0: 1}, **choices),),
            concepts=CONCEPTS,
        )


def test_a_class_may_come_back_to_its_original_look() -> None:
    made = Schedule(
        tasks=((0,), (1,), (2,)),
        events=(DriftEvent(task=2, concepts={0: 1}), DriftEvent(task=3, concepts={0: ORIGINAL})),
        concepts=CONCEPTS,
    )
    assert [concept_of(made, 0, task) for task in (1, 2, 3)] == [ORIGINAL, 1, ORIGINAL]
