"""The stream: frozen pixels, separate parts, drift exactly where it is scheduled, batches."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streams_builders import (
    PAIRS,
    PARTS,
    TURNED,
    assert_equal,
    make_images,
    original,
    placed,
    script,
    stream_of,
)

from driftwise import rng
from driftwise.config.build import make_stream
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.datasets.readers.digits import load_digits
from driftwise.errors import UserError
from driftwise.streams import Concept, DriftEvent, EventSpec, Schedule, Stream, transforms
from driftwise.streams.split import cut
from driftwise.types import Dataset, Parts, Samples

every_transform = pytest.mark.parametrize("transform", transforms.TRANSFORMS)


@functools.cache
def digits() -> tuple[Dataset, Parts]:
    data = load_digits()
    pieces = cut(data.labels, (0.4, 0.2, 0.2, 0.2), rng.fork(0, "parts"))
    return data, Parts(**dict(zip(PARTS, pieces, strict=True)))


def digits_stream(tasks: Any = PAIRS, *, seed: int = 0, **changes: Any) -> Stream:
    """The digits; by default classes 0 to 3 drift at task 3 of 5."""
    return Stream(*digits(), placed(tasks, seed=seed, **changes), batch_size=10, seed=seed)


def tiny_stream(*concepts: Concept, events: dict[int, dict[int, int]]) -> Stream:
    drifts = tuple(DriftEvent(task=task, concepts=each) for task, each in events.items())
    return stream_of(Schedule(tasks=((0, 1), (2,), (3,)), events=drifts, concepts=concepts))


# Frozen


def fingerprint() -> str:
    """A hash of everything that two drifts of each transform show, and of the order of training."""
    digest = hashlib.sha256()
    for transform in transforms.TRANSFORMS:
        made = placed(num_drifts=2, scope="all-seen", transform=transform, tasks=((0,), (1,), (2,)))
        task = stream_of(made).task(3)
        for samples in (task.tests(), *task.batches(task.train(), epoch=1)):
            for field in fields(Samples):
                digest.update(getattr(samples, field.name).numpy().tobytes())
    return digest.hexdigest()


def test_the_same_seed_gives_the_same_pixels_and_order_in_a_fresh_process() -> None:
    before = torch.get_rng_state()
    here = fingerprint()
    assert torch.equal(torch.get_rng_state(), before)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    there = subprocess.run(
        [sys.executable, "-c", "import test_stream; print(test_stream.fingerprint())"],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here


def test_a_finished_run_holds_its_schedule(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    saved = Schedule.from_json(result["schedule"])
    assert saved == make_stream(resolve(RunConfig(epochs=1)), load_digits()).schedule


@every_transform
def test_reads_are_equal_in_any_order_and_portions(transform: str) -> None:
    forwards, backwards = (
        digits_stream(transform=transform, num_drifts=2, scope="all-seen") for _ in range(2)
    )
    whole = {number: forwards.task(number).tests() for number in (1, 2, 4)}
    for number in (4, 2, 1):
        assert_equal(forwards.task(number).tests(), whole[number])
        for label in reversed(range(2 * number)):
            assert_equal(backwards.samples("test", [label], number), whole[number].of_class(label))


def test_writing_to_samples_does_not_reach_the_stream() -> None:
    stream = digits_stream(transform="identity")
    for number in (1, 5):  # in which class 0 shows the data set's own pixels, and a concept's
        task = stream.task(number)
        before = task.tests().images.clone()
        task.tests().images.zero_()
        assert torch.equal(task.tests().images, before)


# Drift where it is scheduled


def test_scoring_samples_of_drifted_classes_change_from_the_event_on_and_no_others() -> None:
    stream = digits_stream()
    before, at_event, later = (stream.task(n).tests() for n in (2, 3, 5))
    same = at_event[torch.isin(at_event.ids, before.ids)]
    assert (same.images != before.images).flatten(1).any(dim=1).all()
    stable = later.labels >= 4
    images = torch.from_numpy(digits()[0].images)[later.ids]
    assert torch.equal(later.images[stable], images[stable])
    assert (later.images[~stable] != images[~stable]).flatten(1).any(dim=1).all()
    assert_equal(at_event.of_class(0), later.of_class(0))


@every_transform
def test_drifted_pixels_are_the_transform_of_all_samples_of_a_class_at_once(transform: str) -> None:
    stream = digits_stream(transform=transform, severity=3)
    data, seed = digits()[0], stream.schedule.concepts[0].seed
    for label in (0, 3):
        ids = torch.from_numpy(np.flatnonzero(data.labels == label))
        # Noise is drawn for every image, so each class has draws of its own.
        drawn = rng.derive(seed, "class", label) if transform.endswith("-noise") else seed
        literal = transforms.apply(
            torch.from_numpy(data.images[ids.numpy()]), transform, 3, seed=drawn
        )
        for part in PARTS:
            samples = stream.samples(part, [label], 3)
            assert torch.equal(samples.images, literal[torch.searchsorted(ids, samples.ids)])


def test_a_concept_transforms_its_parent_even_if_the_class_never_showed_that() -> None:
    quarter = Concept(transform="rotation", severity=2, seed=0)
    half = Concept(transform="rotation", severity=2, seed=0, parent=1)
    stream = tiny_stream(quarter, half, events={2: {0: 1}, 3: {1: 2}})
    for label, turns in ((0, 1), (1, 2)):
        expected = stream.samples("test", [label], 1).images
        for _ in range(turns):
            expected = transforms.apply(expected, "rotation", 2, seed=0)
        assert torch.equal(stream.samples("test", [label], 3).images, expected)


# The samples of a task


def test_each_kind_of_samples_comes_from_its_own_part_under_the_present_concepts() -> None:
    stream = digits_stream()
    assert len(stream.task(1).monitored()) == 0
    for task in stream.tasks():
        number, seen = task.number, (*task.known_classes, *task.new_classes)
        assert task.classes_by_task() == list(PAIRS[:number])
        assert task.known_classes == tuple(range(2 * (number - 1)))
        assert_equal(task.train(), stream.samples("train", task.new_classes, 1))
        assert_equal(task.monitored(), stream.samples("monitored", task.known_classes, number))
        assert_equal(task.tests(), stream.samples("test", seen, number))
        assert_equal(task.reference(0), stream.samples("reference", [0], number))
        assert_equal(task.incoming(0), stream.samples("train", [0], number))
        assert stream.counts("train", [0], number) == {0: len(task.incoming(0))}
    for part in PARTS:
        assert np.array_equal(stream.samples(part, range(10), 1).ids, getattr(digits()[1], part))


@pytest.mark.parametrize("cumulative", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"transform": "identity"},
        {"recurring_in_training": True, "over_tasks": 2},
        {"recurring_in_training": True, "num_drifts": 2, "scope": "all-seen", "share": 0.5},
    ],
    ids=str,
)
def test_every_concept_of_a_sample_is_labelled_once(
    changes: dict[str, Any], cumulative: bool
) -> None:
    stream = digits_stream(**changes)
    stream.cumulative = cumulative
    labelled: set[tuple[int, int]] = set()
    for task in stream.tasks():
        samples = task.train()
        concepts = samples.concepts.tolist()
        if changes.get("transform") == "identity":  # which changes no pixel
            concepts = [0] * len(concepts)
        now = set(zip(samples.ids.tolist(), concepts, strict=True))
        assert task.new_labels() == len(now - labelled)
        labelled |= now
    assert len({sample for sample, _ in labelled}) == len(stream.samples("train", range(10), 5))


def test_recurring_classes_return_drifted_in_the_events_task_alone() -> None:
    plain, recurring = digits_stream(), digits_stream(recurring_in_training=True)
    for number in (1, 2, 4, 5):
        assert_equal(plain.task(number).train(), recurring.task(number).train())
    samples = recurring.task(3).train()
    back = samples.labels < 4
    assert_equal(samples[~back], plain.task(3).train())
    assert_equal(samples[back], plain.samples("train", [0, 1, 2, 3], 3))
    assert (samples.concepts[back] == 1).all()


def test_tasks_come_in_order_and_a_task_may_bring_no_classes() -> None:
    stream = digits_stream(((0, 1), (), (2,)), num_drifts=1)
    assert [task.number for task in stream.tasks()] == [1, 2, 3]
    assert [task.number for task in stream.tasks(after=2)] == [3]
    assert (len(stream), stream.num_classes, stream.image_shape) == (3, 10, (8, 8, 1))
    empty = stream.task(2)
    assert (empty.new_classes, empty.known_classes) == ((), (0, 1))
    assert empty.train().images.shape == (0, 8, 8, 1)
    assert list(empty.batches(empty.train(), epoch=1)) == []
    assert set(empty.tests().labels.tolist()) == {0, 1}
    for number in (0, -1, 4):
        with pytest.raises(UserError, match=f"there are tasks 1 to 3; got {number}"):
            stream.task(number)


def test_labels_without_a_name_are_refused() -> None:
    data, parts = digits()
    nameless = Dataset(images=data.images, labels=data.labels, class_names=tuple("012345678"))
    with pytest.raises(UserError, match="labels must be 0 to 8; got 0 to 9"):
        Stream(nameless, parts, Schedule(tasks=((0,),)), batch_size=1, seed=0)


@pytest.mark.parametrize("encoder", ["learner", "random"])
def test_no_sample_has_two_uses(encoder: str) -> None:
    stream = make_stream(resolve(RunConfig(encoder=encoder)), load_digits())
    ids = [stream.samples(part, range(10), 1).ids for part in PARTS]
    assert torch.equal(torch.cat(ids).sort().values, torch.arange(1797))
    assert (len(ids[2]) > 0) == (encoder == "learner")  # one that learns needs held-out reference


# Batches


def test_batches_take_every_sample_once_per_epoch_in_an_order_of_its_own() -> None:
    before = torch.get_rng_state()
    task = digits_stream().task(2)
    samples = task.train()
    position = {sample: i for i, sample in enumerate(samples.ids.tolist())}
    orders = [samples.ids.tolist()]
    for epoch in (1, 2, 3):
        batches = list(task.batches(samples, epoch=epoch))
        assert [len(batch) for batch in batches[:-1]] == [10] * (len(batches) - 1)
        order = torch.cat([batch.ids for batch in batches])
        assert torch.equal(order.sort().values, samples.ids)
        for batch in batches:
            assert_equal(batch, samples[torch.tensor([position[i] for i in batch.ids.tolist()])])
        orders.append(order.tolist())
    other_task = digits_stream().task(3)
    orders.append(torch.cat([b.ids for b in other_task.batches(samples, epoch=1)]).tolist())
    assert len({tuple(order) for order in orders}) == 5
    skipped = list(task.batches(samples, epoch=1, skip=2))
    assert torch.cat([batch.ids for batch in skipped]).tolist() == orders[1][20:]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("side", "batches"), [(128, 4), (512, 1)])
def test_large_images_are_not_gathered_many_batches_at_once(side: int, batches: int) -> None:
    images = np.zeros((120, side, side, 3), dtype=np.uint8)
    data = Dataset(images=images, labels=np.zeros(120, dtype=np.int64), class_names=("cat",))
    part, none = np.arange(120), np.arange(0)
    parts = Parts(train=part, monitored=none, reference=none, test=none)
    task = Stream(data, parts, Schedule(tasks=((0,),)), batch_size=10, seed=0).task(1)
    first = next(task.batches(task.train(), epoch=1))
    assert first.images.untyped_storage().nbytes() == batches * 10 * side * side * 3


# Drift that sets in over the training steps of a task


STEPS = 6


@functools.cache
def over_steps(*, share: float = 1.0, seed: int = 0, over: int | None = STEPS) -> Stream:
    """Classes 0 and 1 return at task 2; their samples drift during the first training steps."""
    event = EventSpec(task=2, classes=(0, 1), transforms=TURNED, share=share, over_steps=over)
    return stream_of(script(event, seed=seed, recurring_in_training=True), seed=seed)


def epoch_of(stream: Stream, *, epoch: int = 1, task: int = 2) -> list[Samples]:
    now = stream.task(task)
    return list(now.batches(now.train(), epoch=epoch))


def test_drift_over_steps_concerns_the_first_epoch_of_its_own_task_alone() -> None:
    stream, at_once = over_steps(share=0.8), over_steps(share=0.8, over=None)
    for part, task in itertools.product(PARTS, range(1, 6)):
        assert_equal(stream.samples(part, range(4), task), at_once.samples(part, range(4), task))
    for epoch, task in ((2, 2), (3, 2), (1, 1), (1, 3)):
        one, other = (
            Samples.concat(epoch_of(each, epoch=epoch, task=task)) for each in (stream, at_once)
        )
        assert_equal(one, other)
    together = Samples.concat(epoch_of(at_once))
    assert_equal(together[together.ids.argsort()], at_once.task(2).train())
    tests = stream.task(2).tests()  # never trained on: no event drifts them step by step
    shuffled = Samples.concat(list(stream.task(2).batches(tests, epoch=1)))
    assert_equal(shuffled[shuffled.ids.argsort()], tests)


def test_samples_show_their_old_concept_up_to_a_step_and_the_new_one_after_it() -> None:
    stream = over_steps()
    before, after = (stream.samples("train", [0, 1], task) for task in (1, 2))
    place = {sample: number for number, sample in enumerate(before.ids.tolist())}
    given = stream.task(2).train()
    images = given.images.clone()
    num_old = 0
    for step, batch in enumerate(stream.task(2).batches(given, epoch=1)):
        drifting = batch[batch.labels < 2]
        index = torch.tensor([place[sample] for sample in drifting.ids.tolist()], dtype=torch.int64)
        drifted = drifting.concepts == 1
        assert_equal(drifting[drifted], after[index[drifted]])
        assert_equal(drifting[~drifted], before[index[~drifted]])
        assert not (step == 0 and drifted.any())
        assert drifted.all() or step < STEPS
        num_old += int((~drifted).sum())
        new = batch[batch.labels == 2]
        assert torch.equal(new.images, original(new))
    assert num_old > 0
    assert torch.equal(given.images, images)


def test_the_share_of_drifted_samples_rises_evenly_over_the_steps_and_epochs() -> None:
    drifted, seen = np.zeros(STEPS + 1), np.zeros(STEPS + 1)
    for seed in range(30):
        for step, batch in enumerate(epoch_of(over_steps(share=0.5, seed=seed))[: STEPS + 1]):
            drifting = batch[batch.labels < 2]
            drifted[step] += int((drifting.concepts == 1).sum())
            seen[step] += len(drifting)
    expected = 0.5 * np.arange(STEPS + 1) / STEPS
    deviation = np.sqrt(expected * (1 - expected) / seen)
    assert (np.abs(drifted / seen - expected) <= 5 * deviation).all()
    over = 2 * len(epoch_of(over_steps()))  # two epochs
    for epoch, share in ((1, 0.25), (2, 0.75), (3, 1)):
        samples = Samples.concat(epoch_of(over_steps(over=over), epoch=epoch))
        mean = float((samples.concepts[samples.labels < 2] == 1).double().mean())
        assert mean == pytest.approx(share, abs=0.15)


@pytest.mark.parametrize(
    ("changes", "made", "words"),
    [
        ({"over_steps": 0}, {}, "over at least 1 step of one task; got 0 steps over 1 tasks"),
        ({"over_steps": 5, "over_tasks": 2}, {}, "got 5 steps over 2 tasks"),
        ({"over_steps": 5}, {"recurring_in_training": False}, "needs recurring_in_training"),
        (
            {"over_steps": 5, "transforms": (), "domain": "sketch"},
            {"first_domain": "photo"},
            "natural drift cannot set in over steps",
        ),
    ],
)
def test_impossible_drift_over_steps_is_refused(
    changes: dict[str, Any], made: dict[str, Any], words: str
) -> None:
    options: dict[str, Any] = {"task": 2, "classes": (0,), "transforms": TURNED, **changes}
    with pytest.raises(UserError, match=words):
        script(EventSpec(**options), **{"recurring_in_training": True, **made})


def test_another_seed_gives_another_drift() -> None:
    shown = [
        stream_of(placed(((0,), (1,)), seed=seed)).samples("test", [0], 2).images for seed in (0, 1)
    ]
    assert not torch.equal(*shown)
    assert len(make_images().labels) > len(shown[0]) > 0
