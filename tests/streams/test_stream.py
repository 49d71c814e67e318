"""The laws of the stream: frozen pixels, honest parts, and drift exactly where it is scheduled."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from driftwise import rng
from driftwise.config.build import make_stream
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.datasets.readers import digits
from driftwise.errors import UserError
from driftwise.streams import Concept, DriftEvent, Schedule, Stream, make_schedule, transforms
from driftwise.streams.split import cut
from driftwise.types import Dataset, Parts, Samples

PARTS = ("train", "monitored", "reference", "test")
PAIRS = tuple((2 * i, 2 * i + 1) for i in range(5))

every_transform = pytest.mark.parametrize("transform", transforms.TRANSFORMS)

load_digits = functools.cache(digits.load_digits)


@functools.cache
def parts_of_digits(seed: int) -> Parts:
    return parts_of(load_digits(), seed)


def parts_of(dataset: Dataset, seed: int) -> Parts:
    train, monitored, reference, test = cut(
        dataset.labels, (0.4, 0.2, 0.2, 0.2), rng.fork(seed, "parts")
    )
    return Parts(train=train, monitored=monitored, reference=reference, test=test)


def stream_of(
    tasks: Any = PAIRS, *, seed: int = 0, schedule: Schedule | None = None, **changes: Any
) -> Stream:
    """The digits under a schedule; by default classes 0 to 3 drift at task 3 of 5."""
    choices: dict[str, Any] = {"num_drifts": 1, "transform": "permutation", "severity": 5}
    digits = load_digits()
    return Stream(
        digits,
        parts_of_digits(seed),
        schedule or make_schedule(tasks, seed=seed, **{**choices, **changes}),
        batch_size=10,
        seed=seed,
    )


def assert_equal(one: Samples, other: Samples) -> None:
    for field in fields(Samples):
        assert torch.equal(getattr(one, field.name), getattr(other, field.name))


def changed_samples(one: Samples, other: Samples) -> torch.Tensor:
    """Which samples show other pixels, bool (samples,)."""
    assert torch.equal(one.ids, other.ids)
    return (one.images != other.images).flatten(1).any(dim=1)


def fingerprint() -> str:
    """A hash of everything that two drifts of each transform show, and of the order of training."""
    digest = hashlib.sha256()
    for transform in transforms.TRANSFORMS:
        stream = stream_of(num_drifts=2, scope="all-seen", transform=transform)
        digest.update(stream.task(5).tests().images.numpy().tobytes())
    task = stream.task(5)
    for batch in task.batches(task.train(), epoch=1):
        digest.update(batch.ids.numpy().tobytes())
    return digest.hexdigest()


# Frozen


@every_transform
def test_two_reads_are_equal(transform: str) -> None:
    task = stream_of(transform=transform).task(5)
    assert_equal(task.tests(), task.tests())
    assert_equal(task.monitored(), task.monitored())
    assert_equal(task.train(), task.train())


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


def test_another_seed_gives_another_drift_and_other_parts() -> None:
    one, other = stream_of(seed=0), stream_of(seed=1)
    assert not torch.equal(one.task(5).tests().ids, other.task(5).tests().ids)
    images = torch.arange(64, dtype=torch.uint8).view(1, 8, 8, 1)
    drifted = [
        transforms.apply(images, "permutation", 5, seed=s.schedule.concepts[0].seed)
        for s in (one, other)
    ]
    assert not torch.equal(*drifted)


@every_transform
def test_it_does_not_matter_in_which_order_or_portions_samples_are_read(transform: str) -> None:
    forwards = stream_of(transform=transform, num_drifts=2, scope="all-seen")
    backwards = stream_of(transform=transform, num_drifts=2, scope="all-seen")
    whole = {number: forwards.task(number).tests() for number in (1, 2, 4)}
    for number in (4, 2, 1):
        for label in reversed(range(2 * number)):
            assert_equal(backwards.samples("test", [label], number), whole[number].of_class(label))


def test_what_a_reader_does_to_its_samples_does_not_reach_the_stream() -> None:
    stream = stream_of(transform="identity")
    for number in (1, 5):  # in which class 0 shows the data set's own pixels, and a concept's
        task = stream.task(number)
        before = task.tests().images.clone()
        task.tests().images.zero_()
        assert torch.equal(task.tests().images, before)


# Drift where the schedule says


def test_concepts_are_original_before_the_event_and_others_from_it_on() -> None:
    stream = stream_of(num_drifts=2, scope="all-seen")  # tasks 2 and 4
    for part, label in itertools.product(PARTS, (0, 1)):
        shown = [set(stream.samples(part, [label], n).concepts.tolist()) for n in (1, 2, 3, 4, 5)]
        assert shown[0] == {0}
        assert shown[1] == shown[2] == {1}
        assert shown[3] == shown[4]
        assert shown[3] not in ({0}, {1})


def test_the_scoring_samples_of_drifted_classes_change_in_every_earlier_task_and_no_others() -> (
    None
):
    stream = stream_of()
    before, at_event, later = (stream.task(n).tests() for n in (2, 3, 5))
    assert changed_samples(before, at_event[torch.isin(at_event.ids, before.ids)]).all()
    assert set(before.labels.tolist()) == {0, 1, 2, 3}  # of task 1 and of task 2
    stable = torch.isin(later.labels, torch.tensor([4, 5, 6, 7, 8, 9]))
    original = torch.from_numpy(load_digits().images)[later.ids]
    assert torch.equal(later.images[stable], original[stable])
    assert (later.images[~stable] != original[~stable]).flatten(1).any(dim=1).all()
    assert_equal(at_event.of_class(0), later.of_class(0))  # and stay so


@every_transform
def test_drifted_pixels_are_the_transform_of_all_samples_of_a_class_at_once(transform: str) -> None:
    stream = stream_of(transform=transform, severity=3)
    digits, seed = load_digits(), stream.schedule.concepts[0].seed
    for label in range(4):
        ids = np.flatnonzero(digits.labels == label)
        # Noise is drawn for every image, so each class has draws of its own.
        drawn = rng.derive(seed, "class", label) if transform.endswith("-noise") else seed
        literal = transforms.apply(torch.from_numpy(digits.images[ids]), transform, 3, seed=drawn)
        where = {int(sample): position for position, sample in enumerate(ids)}
        for part in PARTS:
            samples = stream.samples(part, [label], 3)
            assert torch.equal(
                samples.images, literal[[where[sample] for sample in samples.ids.tolist()]]
            )


def test_a_second_drift_transforms_what_the_first_one_left() -> None:
    stream = stream_of(num_drifts=2, scope="all-seen")
    once, twice = stream.samples("test", [0], 3), stream.samples("test", [0], 4)
    spec = stream.schedule.concepts[int(twice.concepts[0]) - 1]
    assert spec.parent == int(once.concepts[0])
    assert torch.equal(
        twice.images, transforms.apply(once.images, "permutation", 5, seed=spec.seed)
    )


def test_a_class_can_take_on_a_concept_that_grew_out_of_one_it_never_showed() -> None:
    quarter = Concept(transform="rotation", severity=2, seed=0)
    half = Concept(transform="rotation", severity=2, seed=0, parent=1)
    stream = stream_of(
        schedule=Schedule(
            tasks=((0, 1), (2,), (3,)),
            events=(DriftEvent(task=2, concepts={0: 1}), DriftEvent(task=3, concepts={1: 2})),
            concepts=(quarter, half),
        )
    )
    for label, turns in ((0, 1), (1, 2)):
        expected = stream.samples("test", [label], 1).images
        for _ in range(turns):
            expected = transforms.apply(expected, "rotation", 2, seed=0)
        assert torch.equal(stream.samples("test", [label], 3).images, expected)


# What a task brings


def test_training_samples_are_all_samples_of_the_new_classes_and_of_no_other() -> None:
    stream = stream_of()
    for task in stream.tasks():
        samples = task.train()
        assert set(samples.labels.tolist()) == set(task.new_classes)
        assert (samples.concepts == 0).all()
        assert_equal(samples, stream.samples("train", task.new_classes, 1))


@pytest.mark.parametrize("cumulative", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"recurring_in_training": True},
        {"recurring_in_training": True, "share": 0.5},
        {"recurring_in_training": True, "over_tasks": 2},
        {"recurring_in_training": True, "num_drifts": 2, "scope": "all-seen", "share": 0.5},
    ],
    ids=str,
)
def test_every_look_of_a_sample_is_labelled_once(changes: dict[str, Any], cumulative: bool) -> None:
    stream = stream_of(**changes)
    stream.cumulative = cumulative
    given: set[tuple[int, int]] = set()
    for task in stream.tasks():
        samples = task.train()
        looks = set(zip(samples.ids.tolist(), samples.concepts.tolist(), strict=True))
        assert task.new_labels() == len(looks - given)
        given |= looks
    assert len({sample for sample, _ in given}) == len(stream.samples("train", range(10), 5))


def test_a_change_of_no_pixel_takes_no_new_label() -> None:
    stream = stream_of(transform="identity")
    stream.cumulative = True
    given = sum(task.new_labels() for task in stream.tasks())
    assert given == len(stream.samples("train", range(10), 5))


def test_recurring_classes_come_back_drifted_in_the_events_task_alone() -> None:
    plain, recurring = stream_of(), stream_of(recurring_in_training=True)
    for number in (1, 2, 4, 5):
        assert_equal(plain.task(number).train(), recurring.task(number).train())
    samples = recurring.task(3).train()
    back = samples.labels < 4
    assert_equal(samples[~back], plain.task(3).train())
    assert_equal(samples[back], plain.samples("train", [0, 1, 2, 3], 3))
    assert (samples.concepts[back] == 1).all()


def test_monitored_samples_are_of_all_known_classes_and_of_no_new_one() -> None:
    stream = stream_of()
    assert len(stream.task(1).monitored()) == 0
    for task in stream.tasks(after=1):
        assert set(task.monitored().labels.tolist()) == set(range(2 * (task.number - 1)))
        assert task.classes_by_task() == list(PAIRS[: task.number])


def test_everything_a_task_shows_comes_from_its_own_part_as_it_looks_now() -> None:
    stream = stream_of()
    for task in stream.tasks(after=1):
        seen = (*task.known_classes, *task.new_classes)
        assert_equal(task.monitored(), stream.samples("monitored", task.known_classes, task.number))
        assert_equal(task.tests(), stream.samples("test", seen, task.number))
        assert_equal(task.reference(0), stream.samples("reference", [0], task.number))
        assert_equal(task.incoming(0), stream.samples("train", [0], task.number))
    parts = parts_of_digits(0)
    for part in PARTS:
        assert np.array_equal(stream.samples(part, range(10), 1).ids, getattr(parts, part))


def test_a_task_without_classes_brings_nothing_and_makes_no_batch() -> None:
    stream = stream_of(((0, 1), (), (2,)), num_drifts=1)
    empty = stream.task(2)
    assert (empty.new_classes, empty.known_classes) == ((), (0, 1))
    assert empty.train().images.shape == (0, 8, 8, 1)
    assert list(empty.batches(empty.train(), epoch=1)) == []
    assert set(empty.tests().labels.tolist()) == {0, 1}


def test_tasks_come_in_order_and_can_be_taken_up_anywhere() -> None:
    stream = stream_of()
    assert [task.number for task in stream.tasks()] == [1, 2, 3, 4, 5]
    assert [task.number for task in stream.tasks(after=3)] == [4, 5]
    assert len(stream) == 5
    assert stream.num_classes == 10
    assert stream.image_shape == (8, 8, 1)


@pytest.mark.parametrize("number", [0, -1, 6])
def test_tasks_that_there_are_not_are_refused(number: int) -> None:
    with pytest.raises(UserError, match=f"there are tasks 1 to 5; got {number}"):
        stream_of().task(number)


def test_labels_without_a_name_are_refused() -> None:
    digits = load_digits()
    nameless = Dataset(images=digits.images, labels=digits.labels, class_names=tuple("012345678"))
    with pytest.raises(UserError, match="labels must be 0 to 8; got 0 to 9"):
        Stream(nameless, parts_of(nameless, 0), Schedule(tasks=((0,),)), batch_size=1, seed=0)


# Batches


def test_batches_take_every_sample_once_per_epoch_and_each_epoch_in_another_order() -> None:
    task = stream_of().task(2)
    samples = task.train()
    orders = []
    for epoch in (1, 2, 3):
        batches = list(task.batches(samples, epoch=epoch))
        assert [len(batch) for batch in batches[:-1]] == [10] * (len(batches) - 1)
        order = torch.cat([batch.ids for batch in batches])
        assert torch.equal(order.sort().values, samples.ids)
        orders.append(order.tolist())
    assert len({tuple(order) for order in [*orders, samples.ids.tolist()]}) == 4
    other_task = stream_of().task(3)
    assert torch.cat([b.ids for b in other_task.batches(samples, epoch=1)]).tolist() != orders[0]


def test_batches_keep_every_column_with_its_sample_and_draw_from_no_global_state() -> None:
    before = torch.get_rng_state()
    stream = stream_of()
    samples = stream.task(3).tests()
    position = {sample: i for i, sample in enumerate(samples.ids.tolist())}
    for batch in stream.task(3).batches(samples, epoch=1):
        assert_equal(
            batch, samples[torch.tensor([position[sample] for sample in batch.ids.tolist()])]
        )
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("side", "batches"), [(128, 4), (512, 1)])
def test_large_images_are_not_gathered_many_batches_at_once(side: int, batches: int) -> None:
    labels = np.zeros(120, dtype=np.int64)
    images = np.zeros((120, side, side, 3), dtype=np.uint8)
    data = Dataset(images=images, labels=labels, class_names=("cat",))
    task = Stream(data, parts_of(data, 0), Schedule(tasks=((0,),)), batch_size=10, seed=0).task(1)
    first = next(task.batches(task.train(), epoch=1))
    held = first.images.untyped_storage().nbytes()
    assert held == batches * 10 * side * side * 3


# Honest parts


@pytest.mark.parametrize("encoder", ["learner", "random"])
def test_no_sample_trains_is_watched_is_compared_with_and_scores(encoder: str) -> None:
    stream = make_stream(resolve(RunConfig(encoder=encoder)), load_digits())
    ids = [stream.samples(part, range(10), 1).ids for part in PARTS]
    together = torch.cat(ids)
    assert torch.equal(together.sort().values, torch.arange(1797))
    assert (len(ids[2]) > 0) == (encoder == "learner")  # one that learns needs samples of its own
