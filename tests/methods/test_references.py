from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from learn_builders import (
    CLASSES,
    SHAPE,
    as_floats,
    assert_pauses_change_nothing,
    assert_step_is,
    batch,
    labelled,
    make_learner,
    make_network,
    stream_alone,
    two_tasks_and_a_restart,
    weights_of,
)
from same_state import same
from torch import Tensor, nn

from driftwise.adapt import Vanilla
from driftwise.learner import Learner
from driftwise.loop import DriftHandler, run_tasks
from driftwise.methods import Draw, Finetune, Inputs, Joint, Method, Outcome
from driftwise.metrics import Ledger
from driftwise.protocols import AdaptationContext
from driftwise.runs.listeners import Silent
from driftwise.streams import Concept, DriftEvent, Schedule, Stream
from driftwise.types import Dataset, Parts, Samples, Verdict

# --- nothing is rehearsed -----------------------------------------------------------------------


@pytest.mark.parametrize("method", [Finetune(), Joint()], ids=["finetune", "joint"])
def test_a_step_is_cross_entropy_on_the_batch_and_leaves_the_buffer_alone(
    method: Finetune,
) -> None:
    learner = make_learner(method)
    kept = batch(50, samples=6)
    learner.buffer.offer(kept)
    learner.begin_task(range(CLASSES))
    for number in range(3):
        assert_step_is(learner, batch(number), stream_alone)
    assert learner.buffer.seen == 6
    assert sorted(learner.buffer.sample(6).samples.ids.tolist()) == kept.ids.tolist()


def test_finetuning_offers_the_buffer_nothing() -> None:
    learner = make_learner(Finetune())
    for number in range(3):
        learner.observe(batch(number))
    assert (len(learner.buffer), learner.buffer.seen) == (0, 0)


def test_finetuning_goes_on_from_task_to_task() -> None:
    learner = make_learner(Finetune())
    learner.begin_task((0, 1))
    learner.observe(labelled(1, 0, 1))
    learner.end_task()
    before = weights_of(learner.network)
    learner.begin_task((2,))
    assert same(weights_of(learner.network), before)


# --- everything at once -------------------------------------------------------------------------

TASKS = ((0, 1), (2,), (3, 4))
TURNED = 1
"""The concept that class 0 takes on at the second task."""
TRAINED = 6
"""Training samples of every class."""


@functools.cache
def make_images() -> Dataset:
    draw = np.random.RandomState(0)
    labels = np.repeat(np.arange(CLASSES), 2 * TRAINED)
    return Dataset(
        images=draw.randint(0, 256, (len(labels), *SHAPE)).astype(np.uint8),
        labels=labels,
        class_names=tuple("abcde"),
    )


def stream_for(method: type[Method]) -> Stream:
    ids = np.arange(len(make_images().labels))
    rest = np.array([], dtype=np.int64)
    parts = Parts(train=ids[::2], monitored=rest, reference=rest, test=ids[1::2])
    schedule = Schedule(
        tasks=TASKS,
        concepts=(Concept(transform="permutation", severity=5, seed=1),),
        events=(DriftEvent(task=2, concepts={0: TURNED}),),
    )
    return Stream(
        make_images(), parts, schedule, batch_size=4, seed=0, cumulative=method.cumulative
    )


class Recorded(Joint):
    """Writes down what the network is shown, and its weights where tasks begin and end."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.shown: list[list[tuple[bytes, int]]] = []
        self.began: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        self.announced: list[tuple[int, ...]] = []

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        self.shown[-1] += as_pairs(stream.x, stream.y)
        return super().outcome(network, stream, draw)

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        self.shown.append([])
        self.began.append(weights_of(network))
        self.announced.append(tuple(classes))

    def end_task(self, network: nn.Module) -> None:
        self.ended.append(weights_of(network))


def as_pairs(x: Tensor, labels: Tensor) -> list[tuple[bytes, int]]:
    return [(sample.numpy().tobytes(), int(label)) for sample, label in zip(x, labels, strict=True)]


class NoMonitor:
    """A monitor that checks nothing."""

    def check(self, task: object) -> list[Verdict]:
        return []

    def renew(self, task: object, labels: Sequence[int], learned: Samples) -> None:
        return


def bare(task: object) -> AdaptationContext:
    """Nothing on it: nobody may ask for labels."""
    del task
    nothing: dict[str, Any] = dict.fromkeys((each.name for each in fields(AdaptationContext)), None)
    return AdaptationContext(**nothing)


def trained(*, from_scratch: bool, epochs: int = 2) -> tuple[Learner, Recorded, Ledger]:
    method = Recorded(from_scratch=from_scratch)
    learner = make_learner(method)
    ledger = Ledger()
    records = run_tasks(
        stream_for(Joint).tasks(),
        handler=DriftHandler(
            monitor=NoMonitor(), adaptation=Vanilla(), learner=learner, ledger=ledger
        ),
        context_of=bare,
        evaluate=lambda task: None,
        epochs=epochs,
        listener=Silent(),
    )
    assert len(list(records)) == 3
    return learner, method, ledger


def test_joint_training_sees_every_known_class_as_it_is_now_in_every_epoch() -> None:
    _, method, _ = trained(from_scratch=True, epochs=2)
    assert method.announced == list(TASKS)
    for number, shown in enumerate(method.shown, start=1):
        known = [label for classes in TASKS[:number] for label in classes]
        samples = stream_for(Joint).samples("train", known, number)
        assert len(samples) == TRAINED * len(known)
        assert set(samples.concepts[samples.labels == 0].tolist()) == (
            {0} if number == 1 else {TURNED}
        )
        assert sorted(shown) == sorted(2 * as_pairs(as_floats(samples), samples.labels))


def test_joint_training_books_a_label_once_for_every_concept_of_a_sample() -> None:
    learner, _, ledger = trained(from_scratch=True)
    # Class 0 has to be labelled anew at the second task, as its concept is another from there on.
    assert ledger.labels == {"stream": TRAINED * (2 + 2 + 2), "monitoring": 0, "adaptation": 0}
    assert (len(learner.buffer), learner.buffer.seen) == (0, 0)


def test_joint_training_begins_every_task_with_other_fresh_weights() -> None:
    _, method, _ = trained(from_scratch=True)
    for attempt, began in enumerate(method.began):
        assert same(began, weights_of(make_network(attempt)))
    assert Joint().from_scratch, "by default"


def test_joint_training_goes_on_from_the_last_task_if_asked() -> None:
    _, method, _ = trained(from_scratch=False)
    assert same(method.began[0], weights_of(make_network(0)))
    assert same(method.began[1:], method.ended[:-1])
    assert not same(method.began[1], method.began[0])


def test_only_joint_training_asks_for_classes_of_earlier_tasks() -> None:
    for method, labels in ((Finetune, [2]), (Joint, [0, 1, 2])):
        samples = stream_for(method).task(2).train()
        assert torch.unique(samples.labels).tolist() == labels


@pytest.mark.parametrize("from_scratch", [True, False])
def test_a_pause_of_joint_training_changes_nothing(from_scratch: bool) -> None:
    assert_pauses_change_nothing(
        lambda: make_learner(Joint(from_scratch=from_scratch), momentum=0.9),
        two_tasks_and_a_restart(),
    )
