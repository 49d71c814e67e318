"""The laws of scripts: what a person writes becomes the schedule it says, or a clear refusal."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from streams_builders import script

from driftwise.errors import UserError
from driftwise.streams import EventSpec, Stream, event_spec, make_script, read_event, transforms
from driftwise.streams.schedule import ORIGINAL
from driftwise.streams.script import own_transforms
from driftwise.types import Dataset, Parts

TURNED = (("rotation", 2),)
BLURRED = (("defocus-blur", 5),)


# Reading


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


def test_the_events_of_the_documentation_can_be_played() -> None:
    text = event_spec.__doc__ or ""
    events = yaml.safe_load(text[text.index("events:") :])["events"]
    specs = [read_event(event, source="documentation") for event in events]
    made = make_script([(0, 1), (2,), (3,), (4,), ()], specs, seed=0, first_domain="photo")
    assert [event.task for event in made.events] == [2, 3, 4, 4, 5]
    assert list(made.events[1].concepts) == [2]
    assert made.mixture(0, 4) == {ORIGINAL: 1}
    assert made.mixture(0, 5) == made.mixture(0, 2)
    assert [event.kind for event in made.events] == [
        *("sudden", "partial", "sudden", "gradual", "sudden"),
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"transform": "rotation"}, "unknown key of an event 'transform'; did you mean"),
        ({"task": None}, "an event needs a task, a number; got none"),
        ({"task": "2"}, "task must be a number; got '2'"),
        ({"task": True}, "task must be a number; got True"),
        ({"task": 2.0}, "task must be a number; got 2.0"),
        ({"classes": 3}, "classes must be a list of class numbers, or a scope; got 3"),
        ({"classes": ["0"]}, "classes must be a list of class numbers, or a scope; got '0' in it"),
        ({"classes": [False]}, "got False in it"),
        ({"transforms": "rotation"}, "transforms must be a list of [name, severity]"),
        ({"transforms": ["rotation"]}, "a transform is written [name, severity]; got 'rotation'"),
        ({"transforms": [["rotation", 1, 2]]}, "a transform is written [name, severity]"),
        ({"transforms": [["rotation", True]]}, "a transform is written [name, severity]"),
        ({"transforms": [["rotate", 1]]}, "unknown transform 'rotate'; did you mean 'rotation'?"),
        ({"transforms": [["rotation", 6]]}, "severity must be 1 to 5; got 6"),
        ({"domain": 1950}, "domain must be a name; got 1950"),
        ({"share": "half"}, "share must be a number; got 'half'"),
        ({"over_tasks": 1.5}, "over_tasks must be a number; got 1.5"),
        ({"over_steps": [3]}, "over_steps must be a number; got [3]"),
        ({"per_class": 1}, "per_class must be true or false; got 1"),
        ({"unit": "rows"}, "unknown unit 'rows'; did you mean 'row'?"),
        ({"seed": "x"}, "seed must be a number; got 'x'"),
        ({"transforms": None}, "an event takes transforms, a domain or both, or else `to`"),
        ({"to": "original"}, "an event takes transforms, a domain or both, or else `to`"),
        ({"transforms": None, "domain": "art", "per_class": True}, "per_class varies transforms"),
    ],
)
def test_what_is_no_event_is_refused_in_one_line_that_names_the_source(
    values: dict[str, Any], words: str
) -> None:
    good = {"task": 2, "classes": [0], "transforms": [["rotation", 2]]}
    with pytest.raises(UserError) as caught:
        read_event({**good, **values}, source="my.yaml: event 3")
    assert str(caught.value).startswith("my.yaml: event 3: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# Who drifts when


def test_an_event_of_too_many_transforms_is_refused_in_one_line() -> None:
    few = {"task": 2, "transforms": [["rotation", 1]] * event_spec.MOST_TRANSFORMS}
    assert len(read_event(few, source="event 1").transforms) == event_spec.MOST_TRANSFORMS
    with pytest.raises(UserError, match=r"^event 1: an event takes at most 20 .*; got 1,000$"):
        read_event({"task": 2, "transforms": [["rotation", 1]] * 1000}, source="event 1")


def test_a_thousand_events_one_upon_the_other_can_be_played() -> None:
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


def test_events_are_played_in_the_order_of_their_tasks_whatever_order_they_are_written_in() -> None:
    events = [
        EventSpec(task=2, classes=(0,), transforms=TURNED),
        EventSpec(task=4, classes=(0,), transforms=BLURRED),
        EventSpec(task=3, classes=(1,), transforms=BLURRED),
    ]
    orders = [script(*order) for order in itertools.permutations(events)]
    assert [event.task for event in orders[0].events] == [2, 3, 4]
    assert all(made == orders[0] for made in orders)


def test_scopes_name_the_classes_learned_since_the_event_before_or_all_of_them() -> None:
    made = script(
        EventSpec(task=2, transforms=TURNED),
        EventSpec(task=4, transforms=TURNED),
        EventSpec(task=5, transforms=TURNED),  # nobody is new since task 4: no event
        EventSpec(task=5, classes="all-seen", transforms=TURNED),
    )
    assert [list(event.concepts) for event in made.events] == [[0, 1], [2, 3], [0, 1, 2, 3]]
    with pytest.raises(UserError, match="unknown scope of classes 'all'; did you mean 'all-seen'"):
        script(EventSpec(task=2, classes="all", transforms=TURNED))


def test_classes_that_are_not_known_yet_cannot_drift() -> None:
    with pytest.raises(UserError, match=r"classes \[2\] cannot drift at task 2"):
        script(EventSpec(task=2, classes=(0, 2), transforms=TURNED))


# To what


def test_a_look_grows_upon_the_last_one_and_is_shared_by_classes_that_come_from_one() -> None:
    made = script(
        EventSpec(task=2, classes=(0,), transforms=TURNED),
        EventSpec(task=4, classes=(0, 1, 2, 2), transforms=BLURRED),
    )
    first, second = made.events
    assert first.concepts == {0: 1}
    assert second.concepts == {0: 2, 1: 3, 2: 3}
    assert [concept.parent for concept in made.concepts] == [ORIGINAL, 1, ORIGINAL]
    assert made.concepts[1].seed == made.concepts[2].seed  # one event, one draw


def test_another_domain_begins_anew_and_what_follows_grows_upon_it() -> None:
    made = script(
        EventSpec(task=2, classes=(0,), transforms=TURNED),
        EventSpec(task=3, classes=(0, 1), domain="sketch"),
        EventSpec(task=4, classes=(0,), transforms=BLURRED),
        first_domain="photo",
    )
    assert made.events[1].concepts == {0: 2, 1: 2}
    assert [concept.parent for concept in made.concepts] == [ORIGINAL, ORIGINAL, 2]
    assert [made.domain_of(number) for number in range(4)] == ["photo", "photo", "sketch", "sketch"]


def test_names_bring_every_class_back_to_the_look_it_had() -> None:
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
        (
            EventSpec(task=3, classes=(0,), to="turn"),
            "unknown concept 'turn'; did you mean 'turned'?",
        ),
        (EventSpec(task=3, classes=(1,), to="turned"), "class 1 never had the concept 'turned'"),
        (
            EventSpec(task=3, classes=(1,), transforms=TURNED, name="turned"),
            "calls its concept 'turned', but that name is taken",
        ),
        (
            EventSpec(task=3, classes=(1,), transforms=TURNED, name="original"),
            "calls its concept 'original', but that name is taken",
        ),
    ],
)
def test_names_that_lead_nowhere_or_to_two_places_are_refused(event: EventSpec, words: str) -> None:
    with pytest.raises(UserError) as caught:
        script(EventSpec(task=2, classes=(0,), transforms=TURNED, name="turned"), event)
    assert words in str(caught.value)


# By which randomness


def test_events_seeds_classes_and_steps_draw_their_own_randomness() -> None:
    compound = (("permutation", 5), ("gaussian-noise", 3))
    events = [
        EventSpec(task=2, classes=(0, 1), transforms=compound, per_class=True),
        EventSpec(task=3, classes=(0, 1), transforms=compound),
    ]
    seeds = [concept.seed for seed in (0, 1) for concept in script(*events, seed=seed).concepts]
    assert len(seeds) == 2 * (4 + 4)  # the second event grows upon two looks, with one draw
    assert len(set(seeds)) == 2 * (4 + 2)


def test_a_seed_of_its_own_is_what_the_first_transform_draws_from() -> None:
    event = EventSpec(task=2, classes=(0,), transforms=(("permutation", 5),), seed=42)
    assert [script(event, seed=seed).concepts[0].seed for seed in (0, 1)] == [42, 42]


@given(
    st.sampled_from([t for t in transforms.TRANSFORMS if t not in ("identity", "permutation")]),
    st.integers(1, 5),
)
def test_classes_get_thirty_different_looks_before_one_repeats(name: str, severity: int) -> None:
    looks = [own_transforms([(name, severity)], place) for place in range(31)]
    assert looks[0] == ((name, severity),)
    assert len(set(looks[:30])) == 30
    assert looks[30] == looks[0]
    assert {s for ((_, s),) in looks[:6]} == {severity}  # as strong, as long as there are others


def test_a_drift_that_is_none_is_none_for_every_class() -> None:
    assert own_transforms([("identity", 3)], 4) == (("identity", 3),)
