"""The laws of mixed looks: how much of a class has moved, which samples, and what they show."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams_builders import (
    DOMAINS,
    PARTS,
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
    played,
    script,
    stream_of,
)

from driftwise import rng
from driftwise.config.build import make_stream
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.datasets.readers.digits import load_digits
from driftwise.streams import Concept, DriftEvent, EventSpec, Schedule, Stream, transforms
from driftwise.types import Samples

BLURRED = (("defocus-blur", 5),)


# How much of a class moves, and when


@every_part
def test_sudden_drift_moves_the_whole_class_at_once(part: str) -> None:
    stream = played(EventSpec(task=3, classes=(0,), transforms=TURNED))
    for task in range(1, 6):
        assert set(stream.samples(part, [0], task).concepts.tolist()) == {int(task >= 3)}
        assert set(stream.samples(part, [1], task).concepts.tolist()) == {0}


@every_part
@pytest.mark.parametrize(("share", "over_tasks"), [(1.0, 3), (0.7, 2), (0.25, 4), (1.0, 9)])
def test_gradual_drift_moves_an_evenly_rising_and_exact_share_of_every_class(
    part: str, share: float, over_tasks: int
) -> None:
    event = EventSpec(task=2, classes=(0, 1), transforms=TURNED, share=share, over_tasks=over_tasks)
    stream = played(event)
    for label, task in itertools.product((0, 1), range(1, 6)):
        samples = stream.samples(part, [label], task)
        risen = min(max(task - 1, 0), over_tasks)  # tasks that have added their even part
        moved = int((samples.concepts == 1).sum())
        assert moved == round(share * (risen / over_tasks) * len(samples))
        assert stream.schedule.mixture(label, task).get(1, 0.0) == pytest.approx(
            share * risen / over_tasks
        )


@every_part
def test_a_sample_that_has_moved_stays_moved(part: str) -> None:
    stream = played(EventSpec(task=2, classes=(0, 1), transforms=TURNED, share=0.9, over_tasks=4))
    before: set[int] = set()
    for task in range(1, 6):
        moved = ids_showing(stream.samples(part, [0, 1], task), 1)
        assert before <= moved
        before = moved
    assert before


@every_part
def test_what_has_not_moved_stays_as_it_was_byte_by_byte(part: str) -> None:
    stream = played(EventSpec(task=3, classes=(0, 1), transforms=TURNED, share=0.4))
    start, now = stream.samples(part, [0, 1], 1), stream.samples(part, [0, 1], 5)
    moved = now.concepts == 1
    assert torch.equal(now.ids, start.ids)
    assert torch.equal(now.images[~moved], start.images[~moved])
    assert torch.equal(now.images[moved], applied(start.images[moved], stream.schedule.concepts[0]))
    assert moved.any()
    assert not moved.all()


def test_every_sample_is_equally_likely_to_move_first() -> None:
    event = EventSpec(task=2, classes=(0,), transforms=TURNED, share=0.25)
    times: Counter[int] = Counter()
    for seed in range(300):
        samples = played(event, seed=seed).samples("train", [0], 2)
        times.update(ids_showing(samples, 1))
    share = round(0.25 * len(samples)) / len(samples)
    five_deviations = 5 * (300 * share * (1 - share)) ** 0.5
    assert all(
        abs(times[sample] - 300 * share) < five_deviations for sample in samples.ids.tolist()
    )


def test_concealed_drift_adds_hardly_a_sample_per_task_and_still_arrives() -> None:
    tasks = ((0,), *[()] * 20)
    event = DriftEvent(task=2, concepts={0: 1}, over_tasks=20)
    stream = stream_of(
        Schedule(tasks=tasks, events=(event,), concepts=(Concept(transform="rotation"),))
    )
    counts = [int(stream.samples("test", [0], task).concepts.sum()) for task in range(1, 22)]
    size = len(stream.samples("test", [0], 1))
    assert counts[0] == 0
    assert counts[-1] == size
    steps = np.diff(counts)
    assert steps.min() >= int(size / 20)
    assert steps.max() <= int(size / 20) + 1


def test_two_partial_events_draw_independent_lots() -> None:
    """The shares of the truth are what is met on average, where two events overlap."""
    events = (
        EventSpec(task=2, classes=(0,), transforms=TURNED, share=0.5),
        EventSpec(task=3, classes=(0,), transforms=BLURRED, share=0.5),
    )
    truth = script(*events).mixture(0, 3)
    assert truth == {0: 0.25, 1: 0.25, 2: 0.5}
    kept = []
    for seed in range(200):
        samples = played(*events, seed=seed).samples("train", [0], 3)
        assert int((samples.concepts == 2).sum()) == round(0.5 * len(samples))
        kept.append(int((samples.concepts == 1).sum()) / len(samples))
    assert abs(np.mean(kept) - 0.25) < 5 * np.std(kept) / len(kept) ** 0.5
    assert 0 < np.std(kept) < 0.1


def test_an_event_that_covers_a_whole_class_hides_a_slower_one_under_it() -> None:
    made = script(
        EventSpec(task=2, classes=(0,), transforms=TURNED, over_tasks=4),
        EventSpec(task=3, classes=(0,), transforms=BLURRED),
    )
    assert [made.drifting(task) for task in range(1, 6)] == [(), (0,), (0,), (), ()]
    assert [made.mixture(0, task) for task in (2, 3, 5)] == [{0: 0.75, 1: 0.25}, {2: 1}, {2: 1}]


# What it moves to


@every_part
def test_compound_drift_is_one_transform_after_the_other(part: str) -> None:
    steps = (("rotation", 1), ("gaussian-noise", 3), ("permutation", 4))
    stream = played(EventSpec(task=2, classes=(0, 1), transforms=steps))
    made = stream.schedule.concepts
    assert [(step.transform, step.severity) for step in made] == list(steps)
    assert len({step.seed for step in made}) == 3
    dataset = make_images()
    for label in (0, 1):
        ids = torch.from_numpy(np.flatnonzero(dataset.labels == label))
        # noise falls on all samples of a class at once, so the literal version takes them all, too
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
def test_a_recurring_look_is_the_earlier_one_byte_by_byte(part: str) -> None:
    stream = played(
        EventSpec(task=2, classes=(0, 1), transforms=(("shot-noise", 5),), name="noisy"),
        EventSpec(task=3, classes=(0, 1), transforms=BLURRED),
        EventSpec(task=4, classes=(0,), to="noisy"),
    )
    assert_equal(stream.samples(part, [0], 4), stream.samples(part, [0], 2))
    assert_equal(stream.samples(part, [1], 4), stream.samples(part, [1], 3))


@pytest.mark.parametrize("cumulative", [True, False])
def test_a_look_that_comes_back_has_its_labels_already(cumulative: bool) -> None:
    stream = played(
        EventSpec(task=2, classes=(0,), transforms=TURNED, name="turned"),
        EventSpec(task=4, classes=(0,), to="original"),
        EventSpec(task=5, classes=(0,), to="turned"),
        recurring_in_training=True,
    )
    stream.cumulative = cumulative
    assert len(stream.task(5).train())
    assert [stream.task(number).new_labels() for number in (4, 5)] == [0, 0]


@every_part
def test_returning_to_the_original_gives_back_the_start_byte_by_byte(part: str) -> None:
    stream = natural(
        EventSpec(task=2, classes=(0,), transforms=TURNED),
        EventSpec(task=2, classes=(1,), domain="sketch"),
        EventSpec(task=4, classes=(0, 1), to="original"),
    )
    assert_equal(stream.samples(part, [0, 1], 5), stream.samples(part, [0, 1], 1))
    assert not torch.equal(stream.samples(part, [0], 3).images, stream.samples(part, [0], 1).images)


def test_returning_can_be_gradual_too() -> None:
    stream = played(
        EventSpec(task=2, classes=(0,), transforms=TURNED),
        EventSpec(task=3, classes=(0,), to="original", over_tasks=2),
    )
    samples = stream.samples("test", [0], 3)
    assert int((samples.concepts == 0).sum()) == round(len(samples) / 2)
    back = samples.concepts == 0
    assert torch.equal(samples.images[back], original(samples)[back])
    assert stream.schedule.mixture(0, 4) == {0: 1}


@pytest.mark.parametrize("transform", [t for t in transforms.TRANSFORMS if t != "identity"])
def test_per_class_drift_gives_one_image_another_look_for_every_class(transform: str) -> None:
    made = script(
        EventSpec(task=3, classes=(0, 1, 2), transforms=((transform, 3),), per_class=True),
        EventSpec(task=5, classes=(3,), transforms=((transform, 3),), per_class=True, seed=42),
    )
    image = torch.from_numpy(make_images().images[:1])
    looks = [
        applied(image, made.concepts[number - 1]).flatten().tolist()
        for event in made.events
        for number in event.concepts.values()
    ]
    assert len({tuple(look) for look in looks}) == 4
    assert (made.concepts[0].transform, made.concepts[0].severity) == (transform, 3)
    if transform == "permutation":
        assert {(c.transform, c.severity) for c in made.concepts} == {("permutation", 3)}
    else:  # a class must not be told by a kind of look that it shares with another
        assert len({(c.transform, c.severity) for c in made.concepts}) == 4


def test_per_class_permutations_differ_under_a_fixed_seed_too() -> None:
    event = EventSpec(
        task=2, classes=(0, 1), transforms=(("permutation", 5),), per_class=True, seed=42
    )
    assert len({concept.seed for concept in script(event).concepts}) == 2


# Any script at all


@st.composite
def scripts(draw: st.DrawFn) -> Schedule:
    """Events of all kinds, one upon the other."""
    known: dict[int, list[int]] = {}
    for task in range(2, len(TASKS) + 1):
        known[task] = [label for classes in TASKS[: task - 1] for label in classes]
    pair = st.tuples(st.sampled_from(transforms.TRANSFORMS), st.integers(1, 5))
    events = []
    for task in sorted(draw(st.lists(st.integers(2, len(TASKS)), max_size=4))):
        kind = draw(st.sampled_from(["transforms", "domain", "both", "original"]))
        steps = tuple(draw(st.lists(pair, min_size=1, max_size=2)))
        events.append(
            EventSpec(
                task=task,
                classes=tuple(draw(st.sets(st.sampled_from(known[task]), min_size=1))),
                transforms=steps if kind in ("transforms", "both") else (),
                domain=draw(st.sampled_from(DOMAINS)) if kind in ("domain", "both") else None,
                to="original" if kind == "original" else None,
                share=draw(st.sampled_from([1.0, 0.6, 0.2])),
                over_tasks=draw(st.integers(1, 4)),
                per_class=kind in ("transforms", "both") and draw(st.booleans()),
            )
        )
    return script(*events, seed=draw(st.integers(0, 3)), first_domain="photo")


@settings(max_examples=40)
@given(scripts())
def test_every_sample_is_there_at_most_once_under_a_look_of_its_own_domain(made: Schedule) -> None:
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


@settings(max_examples=25)
@given(scripts())
def test_reading_in_any_order_or_portions_gives_the_same_samples(made: Schedule) -> None:
    forwards, backwards = stream_of(made, seed=0), stream_of(made, seed=1)
    whole = {task: forwards.samples("test", range(4), task) for task in range(1, 6)}
    for task, label in itertools.product(reversed(range(1, 6)), reversed(range(4))):
        assert_equal(backwards.samples("test", [label], task), whole[task].of_class(label))
    assert_equal(forwards.samples("test", range(4), 3), whole[3])


@settings(max_examples=25)
@given(scripts())
def test_the_looks_of_any_script_come_back_from_json(made: Schedule) -> None:
    back = Schedule.from_json(json.loads(json.dumps(made.to_json())))
    assert back == made
    assert_equal(
        stream_of(back, seed=9).samples("train", range(4), 5),
        stream_of(made).samples("train", range(4), 5),
    )


@settings(max_examples=40)
@given(
    st.sampled_from([None, *DOMAINS]),
    st.sampled_from([0.1, 0.35, 0.5, 1.0]),
    st.integers(1, 4),
    st.sampled_from([(), TURNED]),
)
def test_the_truth_is_the_measured_share_of_every_look_in_every_part(
    domain: str | None, share: float, over_tasks: int, steps: tuple[tuple[str, int], ...]
) -> None:
    if domain is None and not steps:
        steps = BLURRED
    event = EventSpec(
        task=2,
        classes=(0, 1),
        domain=domain,
        transforms=steps,
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


# A saved description


RICH = (
    EventSpec(task=2, classes=(0, 1), transforms=(("gaussian-noise", 4),), name="noisy"),
    EventSpec(task=3, classes=(0,), domain="cartoon", share=0.5),
    EventSpec(task=3, classes=(1, 2), transforms=TURNED, over_tasks=2, per_class=True),
    EventSpec(task=5, classes=(1,), to="noisy", share=0.7),
)
"""a bit of everything"""


def fingerprint(stream: Stream) -> str:
    """A hash of all samples of all parts at all tasks."""
    digest = hashlib.sha256()
    for part, task in itertools.product(PARTS, range(1, 6)):
        samples = stream.samples(part, range(4), task)
        for field in fields(Samples):
            digest.update(getattr(samples, field.name).numpy().tobytes())
    return digest.hexdigest()


def test_a_saved_schedule_brings_the_same_pixels_back_in_a_fresh_process(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    made = script(*RICH, seed=5, first_domain="photo")
    file.write_text(json.dumps(made.to_json()))
    code = (
        "import json, sys, test_mixtures as t; from pathlib import Path; "
        "saved = json.loads(Path(sys.argv[1]).read_text()); "
        # another seed of the stream shuffles batches and must change no pixel
        "print(t.fingerprint(t.stream_of(t.Schedule.from_json(saved), seed=77)))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    there = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == fingerprint(stream_of(made, seed=5))
    assert fingerprint(stream_of(script(*RICH, seed=6, first_domain="photo"))) != (
        there.stdout.strip()
    )


def test_a_finished_run_holds_the_schedule_that_it_played(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    saved = Schedule.from_json(result["schedule"])
    assert saved == make_stream(resolve(RunConfig(epochs=1)), load_digits()).schedule
