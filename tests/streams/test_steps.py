"""The laws of drift that sets in over the training steps of a task."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from streams_builders import PARTS, TURNED, assert_equal, original, script, stream_of

from driftwise.errors import UserError
from driftwise.streams import EventSpec, Stream
from driftwise.types import Samples

STEPS = 6


@functools.cache
def over_steps(*, share: float = 1.0, seed: int = 0, over: int | None = STEPS) -> Stream:
    """Classes 0 and 1 come back at task 2; their samples move during the first training steps."""
    event = EventSpec(task=2, classes=(0, 1), transforms=TURNED, share=share, over_steps=over)
    return stream_of(script(event, seed=seed, recurring_in_training=True), seed=seed)


def epoch_of(stream: Stream, *, epoch: int = 1, task: int = 2) -> list[Samples]:
    now = stream.task(task)
    return list(now.batches(now.train(), epoch=epoch))


def test_drift_over_steps_is_complete_in_all_samples_that_are_not_trained_on() -> None:
    stream, at_once = over_steps(share=0.8), over_steps(share=0.8, over=None)
    for part, task in itertools.product(PARTS, range(1, 6)):
        assert_equal(stream.samples(part, range(4), task), at_once.samples(part, range(4), task))
    assert stream.schedule.events[0].kind == "gradual"


def test_samples_show_their_old_look_before_their_turn_and_the_new_one_from_it_on() -> None:
    stream = over_steps()
    before, after = (stream.samples("train", [0, 1], task) for task in (1, 2))
    place = {sample: number for number, sample in enumerate(before.ids.tolist())}
    waiting = 0
    for step, batch in enumerate(epoch_of(stream)):
        drifting = batch[batch.labels < 2]
        index = torch.tensor([place[sample] for sample in drifting.ids.tolist()], dtype=torch.int64)
        moved = drifting.concepts == 1
        assert_equal(drifting[moved], after[index[moved]])
        assert_equal(drifting[~moved], before[index[~moved]])
        if step == 0:
            assert not moved.any()
        if step >= STEPS:
            assert moved.all()
        waiting += int((~moved).sum())
        new = batch[batch.labels == 2]
        assert torch.equal(new.images, original(new))
    assert waiting > 0


def test_the_share_of_moved_samples_rises_evenly_over_the_steps() -> None:
    moved, seen = np.zeros(STEPS + 1), np.zeros(STEPS + 1)
    for seed in range(60):
        for step, batch in enumerate(epoch_of(over_steps(share=0.5, seed=seed))[: STEPS + 1]):
            drifting = batch[batch.labels < 2]
            moved[step] += int((drifting.concepts == 1).sum())
            seen[step] += len(drifting)
    expected = 0.5 * np.arange(STEPS + 1) / STEPS
    deviation = np.sqrt(expected * (1 - expected) / seen)
    assert (np.abs(moved / seen - expected) <= 5 * deviation).all()
    assert moved[0] == 0


def test_drift_that_takes_longer_than_an_epoch_goes_on_in_the_next() -> None:
    batches = len(epoch_of(over_steps()))
    moved = []
    for epoch in (1, 2, 3):
        samples = Samples.concat(epoch_of(over_steps(over=2 * batches), epoch=epoch))
        moved.append(float((samples.concepts[samples.labels < 2] == 1).double().mean()))
    assert moved[0] == pytest.approx(0.25, abs=0.15)
    assert moved[1] == pytest.approx(0.75, abs=0.15)
    assert moved[2] == 1


def test_later_epochs_and_tasks_and_streams_without_steps_show_the_whole_share() -> None:
    stream, at_once = over_steps(share=0.8), over_steps(share=0.8, over=None)
    for epoch, task in ((2, 2), (3, 2), (1, 1), (1, 3)):
        batches = zip(
            epoch_of(stream, epoch=epoch, task=task),
            epoch_of(at_once, epoch=epoch, task=task),
            strict=True,
        )
        for one, other in batches:
            assert_equal(one, other)


def test_drift_that_does_not_set_in_over_steps_is_there_from_the_first_step_on() -> None:
    stream = over_steps(over=None)
    together = Samples.concat(epoch_of(stream))
    assert_equal(together[together.ids.argsort()], stream.task(2).train())


def test_an_epoch_read_twice_is_the_same_and_the_samples_given_are_left_alone() -> None:
    stream = over_steps()
    task = stream.task(2)
    samples = task.train()
    images = samples.images.clone()
    once, again = (list(task.batches(samples, epoch=1)) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        assert_equal(one, other)
    assert torch.equal(samples.images, images)


def test_samples_from_elsewhere_have_no_turn_to_wait_for() -> None:
    stream = over_steps()
    task = stream.task(2)
    tests = task.tests()  # never trained on: they have no place among the training samples
    together = Samples.concat(list(task.batches(tests, epoch=1)))
    assert_equal(together[together.ids.argsort()], tests)


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
def test_drift_over_steps_is_refused_where_it_makes_no_sense(
    changes: dict[str, Any], made: dict[str, Any], words: str
) -> None:
    choices: dict[str, Any] = {"task": 2, "classes": (0,), "transforms": TURNED, **changes}
    with pytest.raises(UserError, match=words):
        script(EventSpec(**choices), **{"recurring_in_training": True, **made})
