"""Events written by a person or placed by the paper's rules become the schedule they describe."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from streams_builders import (
    BLURRED,
    TURNED,
    concept_of,
    original,
    placed,
    placements,
    script,
    stream_of,
    task_lists,
)

from driftwise.errors import UserError
from driftwise.streams import EventSpec, Schedule, Stream, drift_events, make_script, read_event
from driftwise.streams.drift_events import event_tasks, own_transforms, split_classes
from driftwise.streams.schedule import ORIGINAL
from driftwise.streams.transforms import TRANSFORMS
from driftwise.types import Dataset, Parts

CHANGING = [name for name in TRANSFORMS if name != "identity"]


def drifting(made: Schedule) -> dict[int, list[int]]:
    """task -> the classes that drift at it."""
    return {event.task: list(event.concepts) for event in made.events}


# Events in plain data


def test_plain_data_becomes_the_event_it_describes() -> None:
    plain = {
        "task": 3,
        "classes": [1, 0],
        "transforms": [["permutation", 5], ["gaussian-noise", 3]],
        "name": "scrambled",
        "share": 0.5,
        "over_tasks": 2,
        "over_steps": None,
        "per_class": True,
        "unit": "row",
        "seed": 42,
    }
    assert read_event(plain, source="event 1") == EventSpec(
        task=3,
        classes=(1, 0),
        transforms=(("permutation", 5), ("gaussian-noise", 3)),
        name="scrambled",
        share=0.5,
        over_tasks=2,
        per_class=True,
        unit="row",
        seed=42,
    )
    natural = {"task": 2, "classes": "all-seen", "domain": "cartoon"}
    assert read_event(natural, source="event 1") == EventSpec(
        task=2, classes="all-seen", domain="cartoon"
    )


def test_the_events_of_the_documentation_make_a_schedule() -> None:
    text = drift_events.__doc__ or ""
    listed = yaml.safe_load(text[text.index("events:") :])["events"]
    specs = [read_event(event, source="documentation") for event in listed]
    made = make_script([(0, 1), (2,), (3,), (4,), ()], specs, seed=0, first_domain="photo")
    assert [event.task for event in made.events] == [2, 3, 4, 4, 5]
    assert list(made.events[1].concepts) == [2]
    assert made.mixture(0, 4) == {ORIGINAL: 1}
    assert made.mixture(0, 5) == made.mixture(0, 2)
    kinds = [event.kind for event in made.events]
    assert kinds == ["sudden", "partial", "sudden", "gradual", "sudden"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"transform": "rotation"}, "unknown key of an event 'transform'; did you mean"),
        ({"task": None}, "an event needs a task, a number; got none"),
        ({"task": "2"}, "task must be a number; got '2'"),
        ({"task": True}, "task must be a number; got True"),
        ({"classes": 3}, "classes must be a list of class numbers, or a scope; got 3"),
        ({"classes": ["0"]}, "a list of class numbers, or a scope; got '0' in the list"),
        ({"classes": [False]}, "got False in the list"),
        ({"classes": []}, "classes is empty"),
        ({"transforms": "rotation"}, "transforms must be a list of [name, severity]"),
        ({"transforms": ["rotation"]}, "a transform is written [name, severity]; got 'rotation'"),
        ({"transforms": [["rotation", 1, 2]]}, "a transform is written [name, severity]"),
        ({"transforms": [["rotation", True]]}, "a transform is written [name, severity]"),
        ({"transforms": [["rotate", 1]]}, "unknown transform 'rotate'; did you mean 'rotation'?"),
        ({"transforms": [["rotation", 6]]}, "severity must be 1 to 5; got 6"),
        ({"transforms": [["rotation", 1]] * 1000}, "takes at most 20 transforms"),
        ({"domain": 1950}, "domain must be a name; got 1950"),
        ({"share": "half"}, "share must be a number; got 'half'"),
        ({"over_steps": [3]}, "over_steps must be a number; got [3]"),
        ({"per_class": 1}, "per_class must be true or false; got 1"),
        ({"unit": "rows"}, "unknown unit 'rows'; did you mean 'row'?"),
        ({"transforms": None}, "an event takes transforms, a domain or both, or else `to`"),
        ({"to": "original"}, "an event takes transforms, a domain or both, or else `to`"),
        ({"transforms": None, "domain": "art", "per_class": True}, "per_class varies transforms"),
    ],
)
def test_invalid_events_are_refused_in_one_line_that_names_the_source(
    values: dict[str, Any], words: str
) -> None:
    good = {"task": 2, "classes": [0], "transforms": [["rotation", 2]]}
    with pytest.raises(UserError) as caught:
        read_event({**good, **values}, source="my.yaml: event 3")
    assert str(caught.value).startswith("my.yaml: event 3: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# The paper's rules


@pytest.mark.parametrize("num_tasks", [1, 2, 5, 10, 20])
def test_events_follow_the_published_formula_after_the_first_task_one_at_a_time(
    num_tasks: int,
) -> None:
    assert event_tasks(num_tasks, 0) == ()
    for num_drifts in range(1, num_tasks):
        first = num_tasks // (num_drifts + 1)
        literal = np.floor(np.linspace(first, num_tasks, num_drifts, endpoint=False)) + 1
        tasks = event_tasks(num_tasks, num_drifts)
        assert tasks == tuple(literal.astype(int))
        assert len(tasks) == num_drifts
        assert list(tasks) == sorted(set(tasks))
        assert all(2 <= task <= num_tasks for task in tasks)


UNEVEN = ((4,), (), (0, 1, 2), (), (3,))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_drifts": 1}, {3: [0, 1, 2, 3]}),
        ({"num_drifts": 2}, {2: [0, 1], 4: [2, 3, 4, 5]}),
        ({"num_drifts": 2, "scope": "all-seen"}, {2: [0, 1], 4: [0, 1, 2, 3, 4, 5]}),
        ({"max_classes_per_drift": 3}, {3: [1, 2, 3]}),
        ({"tasks": ((7, 2), (0,), (5,)), "max_classes_per_drift": 1}, {2: [2]}),
        (
            {"num_drifts": 2, "scope": "all-seen", "max_classes_per_drift": 3},
            {2: [0, 1], 4: [3, 4, 5]},
        ),
        # `num_drifts` has no meaning here
        ({"sequential": True, "num_drifts": 99}, {2: [0, 1], 3: [2, 3], 4: [4, 5], 5: [6, 7]}),
        ({"tasks": UNEVEN, "num_drifts": 2}, {2: [4], 4: [0, 1, 2]}),
        # without classes since the event before there is no event
        ({"tasks": UNEVEN, "sequential": True}, {2: [4], 4: [0, 1, 2]}),
        ({"tasks": ((), (), (0,)), "num_drifts": 2}, {}),
    ],
)
def test_scope_bound_and_order_decide_which_classes_drift(
    changes: dict[str, Any], expected: dict[int, list[int]]
) -> None:
    assert drifting(placed(**changes)) == expected


@settings(max_examples=40)
@given(placements(), task_lists(), st.data())
def test_only_classes_learned_before_drift_and_none_twice_but_in_all_seen(
    made: Schedule, tasks: list[list[int]], data: st.DataObject
) -> None:
    for event in made.events:
        assert set(event.concepts) <= set(made.known(event.task))
        assert event.concepts
    num_drifts = data.draw(st.integers(0, len(tasks) - 1))
    each = placed(tasks, num_drifts=num_drifts, sequential=data.draw(st.booleans()))
    drifted = [label for event in each.events for label in event.concepts]
    assert len(drifted) == len(set(drifted))


def test_the_options_of_a_placement_reach_every_event() -> None:
    made = placed(num_drifts=2, share=0.5, over_tasks=2, per_class=True)
    assert [(event.share, event.over_tasks) for event in made.events] == [(0.5, 2)] * 2
    assert [list(event.concepts.values()) for event in made.events] == [[1, 2], [3, 4, 5, 6]]
    assert len({concept.seed for concept in made.concepts}) == 6
    natural = placed(
        num_drifts=4, scope="all-seen", domains=("art", "sketch"), first_domain="photo"
    )
    shown = [natural.domain_of(concept_of(natural, 0, task)) for task in range(1, 6)]
    assert shown == ["photo", "art", "sketch", "art", "sketch"]
    assert {concept.transform for concept in natural.concepts} == {"identity"}
    assert len(natural.concepts) == 4  # classes of different domains meet in one concept


@pytest.mark.parametrize("transform", CHANGING)
@pytest.mark.parametrize("severity", [1, 5])
def test_a_class_that_drifts_again_gets_pixels_unlike_those_of_its_first_drift(
    transform: str, severity: int
) -> None:
    made = placed(
        ((0,), (), (), (), ()),
        num_drifts=2,
        scope="all-seen",
        transform=transform,
        severity=severity,
    )
    shown = [stream_of(made).samples("test", [0], task).images.flatten(1) for task in (1, 2, 4)]
    for before, after in itertools.pairwise(shown):
        assert (after != before).any(dim=1).all()


@pytest.mark.parametrize(("unit", "num_units"), [("pixel", 36), ("row", 6)])
def test_a_drift_seed_of_42_gives_the_published_permutation_at_every_event_and_seed(
    unit: str, num_units: int
) -> None:
    for seed in (0, 7):
        made = placed(
            ((0,), (1,), (2,), (3,), ()), num_drifts=2, drift_seed=42, unit=unit, seed=seed
        )
        for label, task in ((0, 2), (1, 4), (2, 4)):
            samples = stream_of(made).samples("test", [label], task)
            assert len(samples)
            for image, pixels in zip(
                samples.images.numpy(), original(samples).numpy(), strict=True
            ):
                x = pixels.reshape(num_units, -1).copy()
                rs = np.random.RandomState(42)
                s = rs.choice(num_units, num_units, replace=False)
                x[s] = x[rs.permutation(s)]
                np.testing.assert_array_equal(image, x.reshape(pixels.shape))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_drifts": 5}, "num_drifts must be 0 to 4 for 5 tasks"),
        ({"num_drifts": -1}, "num_drifts must be 0 to 4"),
        ({"severity": 6}, "severity must be 1 to 5; got 6"),
        ({"severity": 0, "num_drifts": 0}, "severity must be 1 to 5; got 0"),
        (
            {"scope": "some"},
            "scope must be one of since-last-event, all-seen, all-present; got 'some'",
        ),
        ({"max_classes_per_drift": 0}, "max_classes_per_drift must be at least 1; got 0"),
        ({"tasks": ((0, 1), (1, 2))}, "a class may arrive only once"),
        ({"transform": "rotate"}, "unknown transform 'rotate'; did you mean 'rotation'?"),
        ({"unit": "rows"}, "unknown unit 'rows'; did you mean 'row'?"),
        ({"share": 1.5}, "must lie above 0, up to 1; got 1.5"),
        ({"over_tasks": 0}, "over at least 1 task; got 0"),
        ({"domains": ("art",), "first_domain": "a", "per_class": True}, "per_class varies"),
    ],
)
def test_impossible_placements_are_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        placed(**changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("num_classes", [1, 5, 12])
def test_classes_are_split_as_evenly_as_can_be_in_their_order_or_refused(num_classes: int) -> None:
    classes = [7 * label % 13 for label in range(num_classes)]
    for num_tasks in range(1, num_classes + 1):
        tasks = split_classes(classes, num_tasks)
        assert [label for task in tasks for label in task] == classes
        sizes = [len(task) for task in tasks]
        assert sizes == sorted(sizes, reverse=True), "the first ones have one more"
        assert len(sizes) == num_tasks
        assert max(sizes) - min(sizes) <= 1
    for num_tasks in (0, num_classes + 1):
        with pytest.raises(UserError, match=f"{num_classes} classes cannot be split into"):
            split_classes(classes, num_tasks)


# From events to a schedule


def test_events_are_ordered_by_task_whatever_order_they_are_written_in() -> None:
    written = [
        EventSpec(task=2, classes=(0,), transforms=TURNED),
        EventSpec(task=4, classes=(0,), transforms=BLURRED),
        EventSpec(task=3, classes=(1,), transforms=BLURRED),
    ]
    orders = [script(*order) for order in itertools.permutations(written)]
    assert [event.task for event in orders[0].events] == [2, 3, 4]
    assert all(made == orders[0] for made in orders)


def test_scopes_name_the_classes_learned_since_the_event_before_or_all_of_them() -> None:
    made = script(
        EventSpec(task=2, transforms=TURNED),
        EventSpec(task=4, transforms=TURNED),
        EventSpec(task=5, transforms=TURNED),  # no class is new since task 4: no event
        EventSpec(task=5, classes="all-seen", transforms=TURNED),
    )
    assert [list(event.concepts) for event in made.events] == [[0, 1], [2, 3], [0, 1, 2, 3]]


def test_a_concept_builds_on_the_last_one_and_is_shared_by_classes_with_one_parent() -> None:
    made = script(
        EventSpec(task=2, classes=(0,), transforms=TURNED),
        EventSpec(task=4, classes=(0, 1, 2, 2), transforms=BLURRED),
    )
    assert [event.concepts for event in made.events] == [{0: 1}, {0: 2, 1: 3, 2: 3}]
    assert [concept.parent for concept in made.concepts] == [ORIGINAL, 1, ORIGINAL]
    assert made.concepts[1].seed == made.concepts[2].seed  # one event, one draw


def test_another_domain_starts_from_the_original_and_later_concepts_build_on_it() -> None:
    made = script(
        EventSpec(task=2, classes=(0,), transforms=TURNED),
        EventSpec(task=3, classes=(0, 1), domain="sketch"),
        EventSpec(task=4, classes=(0,), transforms=BLURRED),
        first_domain="photo",
    )
    assert made.events[1].concepts == {0: 2, 1: 2}
    assert [concept.parent for concept in made.concepts] == [ORIGINAL, ORIGINAL, 2]
    assert [made.domain_of(number) for number in range(4)] == ["photo", "photo", "sketch", "sketch"]


def test_names_bring_every_class_back_to_the_concept_it_had() -> None:
    made = script(
        EventSpec(task=2, classes=(0, 1), transforms=TURNED, per_class=True, name="own"),
        EventSpec(task=3, classes=(0, 1), to="original"),
        EventSpec(task=4, classes=(1, 0), to="own"),
    )
    assert made.events[2].concepts == made.events[0].concepts == {0: 1, 1: 2}
    assert set(made.events[1].concepts.values()) == {ORIGINAL}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"to": "turn"}, "unknown concept 'turn'; did you mean 'turned'?"),
        ({"classes": (1,), "to": "turned"}, "class 1 never had the concept 'turned'"),
        ({"transforms": TURNED, "name": "turned"}, "'turned', but that name is taken"),
        ({"transforms": TURNED, "name": "original"}, "'original', but that name is taken"),
        ({"transforms": TURNED, "classes": (0, 3)}, "classes [3] cannot drift at task 3"),
        ({"transforms": TURNED, "classes": "all"}, "unknown scope of classes 'all'; did you mean"),
    ],
)
def test_scripts_that_contradict_themselves_are_refused(event: dict[str, Any], words: str) -> None:
    first = EventSpec(task=2, classes=(0,), transforms=TURNED, name="turned")
    with pytest.raises(UserError) as caught:
        script(first, EventSpec(**{"task": 3, "classes": (0,), **event}))
    assert words in str(caught.value)


def test_events_seeds_classes_and_steps_draw_their_own_randomness() -> None:
    compound = (("permutation", 5), ("gaussian-noise", 3))
    written = [
        EventSpec(task=2, classes=(0, 1), transforms=compound, per_class=True),
        EventSpec(task=3, classes=(0, 1), transforms=compound),
    ]
    seeds = [concept.seed for seed in (0, 1) for concept in script(*written, seed=seed).concepts]
    assert len(seeds) == 2 * (4 + 4)  # the second event builds on two concepts, with one draw
    assert len(set(seeds)) == 2 * (4 + 2)
    given_seed = EventSpec(task=2, classes=(0,), transforms=(("permutation", 5),), seed=42)
    assert [script(given_seed, seed=seed).concepts[0].seed for seed in (0, 1)] == [42, 42]


@pytest.mark.parametrize("name", [name for name in CHANGING if name != "permutation"])
def test_classes_get_thirty_different_concepts_before_one_repeats(name: str) -> None:
    for severity in (1, 4):
        own = [own_transforms([(name, severity)], place) for place in range(31)]
        assert own[0] == own[30] == ((name, severity),)
        assert len(set(own[:30])) == 30
        assert {s for ((_, s),) in own[:6]} == {severity}  # as strong, while there are others
    assert own_transforms([("identity", 3)], 4) == (("identity", 3),)


def test_a_thousand_events_one_upon_the_other_can_be_read() -> None:
    images = np.arange(4 * 4, dtype=np.uint8).reshape(4, 2, 2, 1)
    data = Dataset(images=images, labels=np.arange(4) % 2, class_names=("a", "b"))
    samples = np.arange(4)
    parts = Parts(train=samples, monitored=samples[:0], reference=samples[:0], test=samples[:0])
    again = EventSpec(task=2, classes=(0,), transforms=(("permutation", 5),))
    schedule = make_script([(0,), (1,)], [again] * 1000, seed=0)
    stream = Stream(data, parts, schedule, batch_size=2, seed=0)
    drifted = stream.samples("train", [0], 2)
    assert drifted.concepts.tolist() == [1000, 1000]
    before = stream.samples("train", [0], 1).images.flatten(1).sort().values
    assert torch.equal(drifted.images.flatten(1).sort().values, before)
