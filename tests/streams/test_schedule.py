"""Schedules: which concepts a class has when, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from streams_builders import TURNED, concept_of, placed, placements, script

from driftwise.errors import UserError
from driftwise.streams import Concept, DriftEvent, EventSpec, Schedule
from driftwise.streams.schedule import ORIGINAL

CONCEPTS = (
    Concept(transform="rotation", severity=1, seed=0),
    Concept(transform="rotation", severity=1, seed=0, parent=1),
)


@settings(max_examples=50)
@given(placements())
def test_a_class_shows_its_last_concept_which_builds_on_the_one_before(made: Schedule) -> None:
    for label in (label for task in made.tasks for label in task):
        shown = ORIGINAL
        for task in range(1, made.num_tasks + 1):
            for event in made.events:
                if event.task == task and label in event.concepts:
                    new = event.concepts[label]
                    assert made.concepts[new - 1].parent == shown != new
                    assert made.lineage(new) == (*made.lineage(shown), new)
                    shown = new
            assert concept_of(made, label, task) == shown
            assert (label in made.drifting(task)) == (
                concept_of(made, label, task) != concept_of(made, label, task - 1)
            )
    used = {concept for event in made.events for concept in event.concepts.values()}
    assert used == set(range(1, len(made.concepts) + 1))
    assert Schedule.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    ("share", "over_tasks", "shares"),
    [
        (1.0, 1, [0, 1, 1, 1]),
        (0.5, 1, [0, 0.5, 0.5, 0.5]),
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


def test_an_event_has_a_word_for_how_it_sets_in() -> None:
    options: list[dict[str, Any]] = [{}, {"share": 0.5}, {"over_tasks": 2}, {"over_steps": 9}]
    kinds = [DriftEvent(task=2, concepts={}, **each).kind for each in options]
    assert kinds == ["sudden", "partial", "gradual", "gradual"]


def test_an_event_takes_its_share_of_every_concept_and_all_of_it_at_full_share() -> None:
    made = Schedule(
        tasks=((0,), (), (), (), (), ()),
        events=(
            DriftEvent(task=2, concepts={0: 1}, share=0.5),
            DriftEvent(task=3, concepts={0: 2}, share=0.2),
            DriftEvent(task=4, concepts={0: 1}, share=0.5),
            DriftEvent(task=5, concepts={0: 2}),
            DriftEvent(task=6, concepts={0: ORIGINAL}),
        ),
        concepts=CONCEPTS,
    )
    assert made.mixture(0, 3) == pytest.approx({0: 0.4, 1: 0.4, 2: 0.2})
    assert made.mixture(0, 4) == pytest.approx({0: 0.2, 1: 0.7, 2: 0.1})
    assert [made.mixture(0, task) for task in (5, 6)] == [{2: 1.0}, {ORIGINAL: 1.0}]


def test_an_event_that_covers_a_whole_class_hides_a_slower_one_under_it() -> None:
    made = script(
        EventSpec(task=2, classes=(0,), transforms=TURNED, over_tasks=4),
        EventSpec(task=3, classes=(0,), transforms=(("defocus-blur", 5),)),
    )
    assert [made.drifting(task) for task in range(1, 6)] == [(), (0,), (0,), (), ()]
    assert [made.mixture(0, task) for task in (2, 3, 5)] == [{0: 0.75, 1: 0.25}, {2: 1}, {2: 1}]


def test_an_identity_is_an_event_and_no_drift_but_another_domain_is_drift() -> None:
    made = placed(num_drifts=2, transform="identity")
    assert len(made.events) == 2
    assert made.drifted() == frozenset()
    identity = EventSpec(task=3, classes=(0, 1), transforms=(("identity", 1),))
    second = script(EventSpec(task=2, classes=(0,), transforms=TURNED), identity)
    assert [second.drifting(task) for task in (2, 3, 4)] == [(0,), (), ()]
    natural = script(EventSpec(task=2, classes=(0,), domain="sketch"), first_domain="photo")
    assert natural.drifted() == {0}


def test_a_concept_belongs_to_the_nearest_domain_among_its_ancestors() -> None:
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


@pytest.mark.parametrize(
    ("events", "concepts", "words"),
    [
        ([{"concepts": {1: 1}}], CONCEPTS, r"classes \[1\] cannot drift at task 2"),
        ([{"task": 1}], CONCEPTS, "classes can drift at tasks 2 to 3; an event names 1"),
        ([{"task": 4}], CONCEPTS, "an event names 4"),
        ([{"task": 3}, {"task": 2}], CONCEPTS, "in the order of their tasks; got .3, 2"),
        ([{"concepts": {0: 3}}], CONCEPTS, r"there are concepts 0 to 2; an event names \[3\]"),
        ([{"share": 0.0}], CONCEPTS, "must lie above 0, up to 1; got 0.0"),
        ([{"share": 1.1}], CONCEPTS, "must lie above 0, up to 1; got 1.1"),
        ([{"share": float("nan")}], CONCEPTS, "must lie above 0, up to 1; got nan"),
        ([{"over_tasks": 0}], CONCEPTS, "over at least 1 task; got 0"),
        ([], CONCEPTS[1:], "concept 1 must have a parent before it; got parent 1"),
        ([], (Concept(domain="art"),), "names the domain 'art'; name the first_domain too"),
    ],
)
def test_impossible_schedules_are_refused(
    events: list[dict[str, Any]], concepts: tuple[Concept, ...], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        Schedule(
            tasks=((0,), (1,), (2,)),
            events=tuple(DriftEvent(**{"task": 2, "concepts": {0: 1}, **each}) for each in events),
            concepts=concepts,
        )
