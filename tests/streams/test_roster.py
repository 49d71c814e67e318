"""Mixed concepts and natural drift: how much of a class drifts, which samples, to which pixels."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams_builders import (
    BLURRED,
    DOMAINS,
    PARTS,
    ROWS,
    TASKS,
    TURNED,
    applied,
    assert_equal,
    domains_of,
    every_part,
    ids_showing,
    make_images,
    natural,
    original,
    parts_of,
    script,
    stream_of,
    stream_with,
)

from driftwise import rng
from driftwise.errors import UserError
from driftwise.streams import Concept, DriftEvent, EventSpec, Schedule, Stream, transforms
from driftwise.types import Dataset

# How much of a class drifts, and when


@every_part
@pytest.mark.parametrize(
    ("share", "over_tasks"), [(1.0, 1), (1.0, 3), (0.4, 1), (0.7, 2), (0.25, 4), (1.0, 9)]
)
def test_drift_takes_an_evenly_rising_and_exact_share_and_leaves_the_rest_as_it_was(
    part: str, share: float, over_tasks: int
) -> None:
    event = EventSpec(task=2, classes=(0, 1), transforms=TURNED, share=share, over_tasks=over_tasks)
    stream = stream_with(event)
    before: set[int] = set()
    for task in range(1, 6):
        risen = min(task - 1, over_tasks)  # tasks that have added their even part
        for label in (0, 1):
            samples = stream.samples(part, [label], task)
            drifted = samples.concepts == 1
            assert int(drifted.sum()) == round(share * (risen / over_tasks) * len(samples))
            assert stream.schedule.mixture(label, task).get(1, 0.0) == pytest.approx(
                share * risen / over_tasks
            )
            start = stream.samples(part, [label], 1)
            assert torch.equal(samples.ids, start.ids)
            assert torch.equal(samples.images[~drifted], start.images[~drifted])
            turned = applied(start.images[drifted], stream.schedule.concepts[0])
            assert torch.equal(samples.images[drifted], turned)
        now = ids_showing(stream.samples(part, [0, 1], task), 1)
        assert before <= now  # a sample that has drifted stays drifted
        before = now
        assert set(stream.samples(part, [2], task).concepts.tolist()) == {0}


def test_every_sample_is_equally_likely_to_drift_first() -> None:
    event = EventSpec(task=2, classes=(0,), transforms=TURNED, share=0.25)
    times: Counter[int] = Counter()
    for seed in range(300):
        samples = stream_with(event, seed=seed).samples("train", [0], 2)
        times.update(ids_showing(samples, 1))
    share = round(0.25 * len(samples)) / len(samples)
    five_deviations = 5 * (300 * share * (1 - share)) ** 0.5
    assert all(abs(times[each] - 300 * share) < five_deviations for each in samples.ids.tolist())


def test_concealed_drift_adds_hardly_a_sample_per_task_and_is_complete_in_the_end() -> None:
    event = DriftEvent(task=2, concepts={0: 1}, over_tasks=20)
    stream = stream_of(
        Schedule(
            tasks=((0,), *[()] * 20), events=(event,), concepts=(Concept(transform="rotation"),)
        )
    )
    counts = [int(stream.samples("test", [0], task).concepts.sum()) for task in range(1, 22)]
    size = len(stream.samples("test", [0], 1))
    assert (counts[0], counts[-1]) == (0, size)
    assert set(np.diff(counts)) <= {int(size / 20), int(size / 20) + 1}


def test_two_partial_events_draw_independently() -> None:
    """Where two events overlap, the shares of the truth are met on average."""
    events = (
        EventSpec(task=2, classes=(0,), transforms=TURNED, share=0.5),
        EventSpec(task=3, classes=(0,), transforms=BLURRED, share=0.5),
    )
    assert script(*events).mixture(0, 3) == {0: 0.25, 1: 0.25, 2: 0.5}
    kept = []
    for seed in range(100):
        samples = stream_with(*events, seed=seed).samples("train", [0], 3)
        assert int((samples.concepts == 2).sum()) == round(0.5 * len(samples))
        kept.append(int((samples.concepts == 1).sum()) / len(samples))
    assert abs(np.mean(kept) - 0.25) < 5 * np.std(kept) / len(kept) ** 0.5
    assert 0 < np.std(kept) < 0.1


# The pixels of a concept


@every_part
def test_compound_drift_is_one_transform_after_the_other(part: str) -> None:
    steps = (("rotation", 1), ("gaussian-noise", 3), ("permutation", 4))
    stream = stream_with(EventSpec(task=2, classes=(0, 1), transforms=steps))
    made = stream.schedule.concepts
    assert [(step.transform, step.severity) for step in made] == list(steps)
    assert len({step.seed for step in made}) == 3
    dataset = make_images()
    for label in (0, 1):
        ids = torch.from_numpy(np.flatnonzero(dataset.labels == label))
        # noise is drawn for all samples of a class at once, so the literal version takes them all
        own = [
            dataclasses.replace(step, seed=rng.derive(step.seed, "class", label))
            if step.transform == "gaussian-noise"
            else step
            for step in made
        ]
        literal = applied(torch.from_numpy(dataset.images)[ids], *own)
        samples = stream.samples(part, [label], 2)
        assert torch.equal(samples.images, literal[torch.searchsorted(ids, samples.ids)])


@every_part
def test_a_recurring_concept_is_the_earlier_one_byte_by_byte(part: str) -> None:
    stream = natural(
        EventSpec(task=2, classes=(0, 1), transforms=(("shot-noise", 5),), name="noisy"),
        EventSpec(task=3, classes=(0,), transforms=BLURRED),
        EventSpec(task=3, classes=(1,), domain="sketch"),
        EventSpec(task=4, classes=(0,), to="noisy"),
        EventSpec(task=5, classes=(0, 1), to="original"),
    )
    assert_equal(stream.samples(part, [0], 4), stream.samples(part, [0], 2))
    assert_equal(stream.samples(part, [1], 4), stream.samples(part, [1], 3))
    assert_equal(stream.samples(part, [0, 1], 5), stream.samples(part, [0, 1], 1))
    for task in (2, 3):
        assert not torch.equal(
            stream.samples(part, [0], task).images, stream.samples(part, [0], 1).images
        )


def test_a_return_can_be_gradual_and_its_labels_are_known() -> None:
    stream = stream_with(
        EventSpec(task=2, classes=(0,), transforms=TURNED, name="turned"),
        EventSpec(task=3, classes=(0,), to="original", over_tasks=2),
        EventSpec(task=5, classes=(0,), to="turned"),
        recurring_in_training=True,
    )
    samples = stream.samples("test", [0], 3)
    back = samples.concepts == 0
    assert int(back.sum()) == round(len(samples) / 2)
    assert torch.equal(samples.images[back], original(samples)[back])
    assert stream.schedule.mixture(0, 4) == {0: 1}
    for stream.cumulative in (False, True):
        assert len(stream.task(5).train())
        assert [stream.task(number).new_labels() for number in (4, 5)] == [0, 0]


@pytest.mark.parametrize("transform", [t for t in transforms.TRANSFORMS if t != "identity"])
def test_per_class_drift_gives_every_class_another_concept(transform: str) -> None:
    made = script(
        EventSpec(task=3, classes=(0, 1, 2), transforms=((transform, 3),), per_class=True),
        EventSpec(task=5, classes=(3,), transforms=((transform, 3),), per_class=True, seed=42),
    )
    image = torch.from_numpy(make_images().images[:1])
    shown = {tuple(applied(image, concept).flatten().tolist()) for concept in made.concepts}
    assert len(shown) == len(made.concepts) == 4
    assert (made.concepts[0].transform, made.concepts[0].severity) == (transform, 3)
    # one permutation differs from another; of the other transforms no two classes share one
    kinds = {(concept.transform, concept.severity) for concept in made.concepts}
    assert len(kinds) == (1 if transform == "permutation" else 4)


# Natural drift


@every_part
def test_natural_drift_shows_other_images_of_the_class_as_they_are_or_transformed(
    part: str,
) -> None:
    stream = natural(
        EventSpec(task=2, classes=(0, 1), transforms=TURNED),  # has no effect on the sketches
        EventSpec(task=3, classes=(0, 1), domain="sketch"),
        EventSpec(task=4, classes=(2,), domain="sketch", transforms=TURNED),
    )
    before, after = stream.samples(part, [0], 1), stream.samples(part, [0], 3)
    assert set(domains_of(before)) == {"photo"}
    assert torch.equal(before.images, original(before))
    assert set(domains_of(after)) == {"sketch"}
    assert torch.equal(after.images, original(after))
    assert set(after.labels.tolist()) == {0}
    turned = stream.samples(part, [2], 4)
    assert set(domains_of(turned)) == {"sketch"}
    assert torch.equal(turned.images, applied(original(turned), stream.schedule.concepts[-1]))
    assert set(domains_of(stream_with().samples(part, range(4), 5))) == set(DOMAINS)


def test_all_samples_of_a_domain_are_shown_unless_domains_are_mixed() -> None:
    stream = natural(
        EventSpec(task=2, classes=(0,), domain="sketch", share=0.5),
        EventSpec(task=2, classes=(1,), domain="sketch"),
    )
    sizes = [
        sum(len(stream.samples(part, [label], task)) for part in PARTS)
        for label, task in ((0, 1), (0, 2), (1, 1), (1, 2), (2, 3))
    ]
    assert sizes == [20, 20, ROWS["photo"], ROWS["sketch"], ROWS["photo"]]


@every_part
@pytest.mark.parametrize(("share", "over_tasks"), [(0.2, 1), (0.5, 1), (1.0, 3)])
def test_partial_natural_drift_exchanges_images_one_by_one_in_the_stated_share(
    part: str, share: float, over_tasks: int
) -> None:
    event = EventSpec(task=2, classes=(0,), domain="cartoon", share=share, over_tasks=over_tasks)
    shown = [natural(event).samples(part, [0], task) for task in range(1, 6)]
    assert len({len(now) for now in shown}) == 1
    for earlier, later in itertools.pairwise(shown):
        assert ids_showing(later, 0) <= ids_showing(earlier, 0)
        assert ids_showing(earlier, 1) <= ids_showing(later, 1)
        assert torch.equal(later.images, original(later))
    last = Counter(domains_of(shown[-1]))
    assert last["cartoon"] == round(share * len(shown[-1]))
    assert last["photo"] == len(shown[-1]) - last["cartoon"]


def test_domains_that_no_event_names_change_nothing() -> None:
    made = script(EventSpec(task=2, classes=(0, 1), transforms=TURNED, share=0.3))
    one, other = (
        Stream(dataset, parts_of(make_images()), made, batch_size=4, seed=0)
        for dataset in (make_images(), without_domains())
    )
    assert_equal(one.samples("train", [0, 1], 2), other.samples("train", [0, 1], 2))


def without_domains() -> Dataset:
    return dataclasses.replace(make_images(), domains=None, domain_names=())


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_class_without_images_of_its_domain_is_refused_by_name(share: float) -> None:
    dataset = make_images(missing=(1, "cartoon"))
    event = EventSpec(task=2, classes=(0, 1), domain="cartoon", share=share)
    with pytest.raises(UserError) as caught:
        stream_of(script(event, first_domain="photo"), dataset=dataset)
    assert str(caught.value) == (
        "class 'dog' has no train samples of domain 'cartoon', which it is to show; "
        "add some, leave the class out, or let only classes drift that have samples there: "
        "scope all-present"
    )
    with pytest.raises(
        UserError, match=r"samples of domain 'photo'.*; add some, or leave the class out$"
    ):
        stream_of(script(event, first_domain="photo"), dataset=make_images(missing=(1, "photo")))
    without = script(EventSpec(task=2, classes=(0,), domain="cartoon"), first_domain="photo")
    assert len(stream_of(without, dataset=dataset).samples("test", [0, 1], 2))


def test_unknown_domains_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="unknown domain 'carton'; did you mean 'cartoon'"):
        natural(EventSpec(task=2, classes=(0,), domain="carton"))
    with pytest.raises(UserError, match="unknown domain 'fotos'"):
        stream_with(first_domain="fotos")
    with pytest.raises(UserError, match="names the domain 'photo'; the data set has no domains"):
        stream_of(script(first_domain="photo"), dataset=without_domains(), like=make_images())


# Any script at all


@st.composite
def scripts(draw: st.DrawFn) -> Schedule:
    """Events of all kinds, one upon the other."""
    pair = st.tuples(st.sampled_from(transforms.TRANSFORMS), st.integers(1, 5))
    events = []
    for task in sorted(draw(st.lists(st.integers(2, len(TASKS)), max_size=4))):
        known = [label for classes in TASKS[: task - 1] for label in classes]
        kind = draw(st.sampled_from(["transforms", "domain", "both", "original"]))
        steps = tuple(draw(st.lists(pair, min_size=1, max_size=2)))
        events.append(
            EventSpec(
                task=task,
                classes=tuple(draw(st.sets(st.sampled_from(known), min_size=1))),
                transforms=steps if kind in ("transforms", "both") else (),
                domain=draw(st.sampled_from(DOMAINS)) if kind in ("domain", "both") else None,
                to="original" if kind == "original" else None,
                share=draw(st.sampled_from([1.0, 0.6, 0.2])),
                over_tasks=draw(st.integers(1, 4)),
                per_class=kind in ("transforms", "both") and draw(st.booleans()),
            )
        )
    return script(*events, seed=draw(st.integers(0, 3)), first_domain="photo")


@settings(max_examples=25)
@given(scripts())
def test_every_sample_is_there_at_most_once_under_a_concept_of_its_own_domain(
    made: Schedule,
) -> None:
    stream = stream_of(made)
    for task in (1, 3, 5):
        ids = []
        for part in PARTS:
            samples = stream.samples(part, range(4), task)
            assert samples.ids.tolist() == sorted(set(samples.ids.tolist()))
            assert np.array_equal(samples.labels, make_images().labels[samples.ids.numpy()])
            shown = [made.domain_of(concept) for concept in samples.concepts.tolist()]
            assert shown == domains_of(samples)
            assert set(samples.concepts.tolist()) <= {
                concept for label in range(4) for concept in made.mixture(label, task)
            }
            ids += samples.ids.tolist()
        assert len(ids) == len(set(ids))  # no sample in two parts


@settings(max_examples=15)
@given(scripts())
def test_order_portions_and_a_saved_schedule_give_the_same_samples(made: Schedule) -> None:
    saved = Schedule.from_json(json.loads(json.dumps(made.to_json())))
    assert saved == made
    # another seed of the stream shuffles batches and must change no pixel
    forwards, backwards = stream_of(made, seed=0), stream_of(saved, seed=1)
    whole = {task: forwards.samples("test", range(4), task) for task in range(1, 6)}
    for task, label in itertools.product(reversed(range(1, 6)), reversed(range(4))):
        assert_equal(backwards.samples("test", [label], task), whole[task].of_class(label))
    assert_equal(forwards.samples("test", range(4), 3), whole[3])


@pytest.mark.parametrize("domain", [None, *DOMAINS])
@pytest.mark.parametrize(("share", "over_tasks"), [(0.1, 1), (0.35, 4), (0.5, 2), (1.0, 3)])
def test_the_truth_is_the_measured_share_of_every_concept_in_every_part(
    domain: str | None, share: float, over_tasks: int
) -> None:
    event = EventSpec(
        task=2,
        classes=(0, 1),
        domain=domain,
        transforms=TURNED if domain in (None, "sketch") else (),
        share=share,
        over_tasks=over_tasks,
    )
    stream = natural(event)
    for part, label, task in itertools.product(PARTS, (0, 1, 2), (1, 2, 4, 5)):
        samples = stream.samples(part, [label], task)
        truth = stream.schedule.mixture(label, task)
        assert sum(truth.values()) == pytest.approx(1)
        for concept in range(len(stream.schedule.concepts) + 1):
            measured = int((samples.concepts == concept).sum())
            # as near as whole samples can come
            assert abs(measured - truth.get(concept, 0.0) * len(samples)) <= 0.5 + 1e-9
