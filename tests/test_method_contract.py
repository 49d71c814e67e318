"""Every method with every buffer policy, and every adaptation; a new entry enrols itself.

The real loop runs a small stream: two tasks of two classes. In the second, the classes of the first
have drifted and an oracle reports it, so that every adaptation has something to do.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from same_state import same

from driftwise import rng
from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.config.registry import CATALOGUE, needs_vectors
from driftwise.config.schema import RunConfig
from driftwise.drift_loop import DriftLoop
from driftwise.learner import Learner
from driftwise.loop import run_tasks
from driftwise.metrics import Scores
from driftwise.protocols import Listener, Task
from driftwise.runs.checkpoint import flatten, unflatten
from driftwise.runs.listeners import Silent
from driftwise.types import Dataset, Extras, Samples, StepReport, TaskRecord

Names = tuple[str, str, str]
"""Of a method, a buffer policy and an adaptation."""
# Methods of class statistics learn from vectors: tests/runs/test_vector_runs.py.
METHODS = [name for name in CATALOGUE["method"] if not needs_vectors(name)]
POLICIES, ADAPTATIONS = (list(CATALOGUE[kind]) for kind in ("buffer_policy", "adaptation"))
COMBINATIONS: list[Names] = sorted(
    {
        *itertools.product(METHODS, POLICIES, ["amr"]),
        # No adaptation knows a method: each meets two of them.
        *(
            (METHODS[(n + more) % len(METHODS)], POLICIES[(n + more) % len(POLICIES)], adaptation)
            for n, adaptation in enumerate(ADAPTATIONS)
            for more in (0, 3)
        ),
    }
)
each_combination = pytest.mark.parametrize("names", COMBINATIONS, ids="-".join)


def quadrants(*, side: int = 8, channels: int = 1, train: Sequence[int] = (10,) * 4) -> Dataset:
    """A class per quadrant that shines, with noise; so many training samples of each, 4 for tests."""
    draw = np.random.default_rng(0)
    counts = np.array(train) + 4
    labels = np.repeat(np.arange(4), counts)
    shine = np.kron(np.eye(4).reshape(4, 2, 2), np.ones((side // 2, side // 2)))
    noise = draw.integers(0, 40, (len(labels), side, side, channels))
    return Dataset(
        images=(200 * shine[labels][..., None] + noise).astype(np.uint8),
        labels=labels,
        class_names=("upper left", "upper right", "lower left", "lower right"),
        is_test=np.concatenate([np.arange(count) < 4 for count in counts]),
    )


DATA = quadrants()


def config_of(names: Names, *, follow_ups: int = 1, **settings: Any) -> RunConfig:
    """A small network with everything in use that keeps a state: momentum, a rate that falls,
    augmentation. The benchmark lends each method its options as published."""
    method, buffer_policy, adaptation = names
    small: dict[str, Any] = {
        "backbone": "mlp",
        "options": {"backbone": {"hidden": [16]}},
        "num_tasks": 2,
        "epochs": 2,
        "batch_size": 4,
        "minibatch_size": 4,
        "buffer_size": 10,
        "lr": 0.4,
        "momentum": 0.5,
        "scheduler": "cosine",
        "augmentation": "crop",
    }
    merged = {**small, **settings}
    if adaptation.startswith("amr-"):  # a recovery as short as the run
        short = {"steps_per_class": 3, "follow_ups": follow_ups, "follow_up_share": 0.2}
        merged["options"] = {**merged["options"], "adaptation": short}
    return resolve(
        RunConfig(
            benchmark="fmnist-cd",
            method=method,
            buffer_policy=buffer_policy,
            adaptation=adaptation,
            detector="oracle",
            **merged,
        )
    )


def stored(state: object) -> Any:
    """A state as it comes back from a checkpoint."""
    return unflatten(*flatten(state))


def lasting(assembly: DriftLoop) -> Any:
    """All that two equal runs agree in."""
    state = stored(assembly.state_dict())
    del state["ledger"]["seconds"]
    return state


def global_state() -> tuple[Any, ...]:
    numpy_state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return (
        torch.get_rng_state(),
        numpy_state["key"].tobytes(),
        numpy_state["pos"],
        random.getstate(),
    )


class RecordingLearner:
    """Passes every call on to a learner; keeps its state in the midst of the second task, and all
    calls from there on."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.losses: list[float] = []
        self.task_state: Any = None
        self.later_calls: list[tuple[str, tuple[Any, ...]]] = []
        self._task = self._steps = 0

    @property
    def buffer(self) -> Any:
        return self.learner.buffer

    def annotate(self, samples: Samples) -> Extras:
        return self.learner.annotate(samples)

    def begin_task(self, classes: Sequence[int], *, from_scratch: bool) -> None:
        self._task += 1
        self._steps = 0
        assert self.task_state is None, "the second task is the last"
        self.learner.begin_task(classes, from_scratch=from_scratch)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        self._call("begin_epoch", epoch, epochs)

    def observe(self, batch: Samples) -> StepReport:
        report: StepReport = self._call("observe", batch)
        self.losses.append(report.loss)
        self._steps += 1
        if (self._task, self._steps) == (2, 5):
            self.task_state = stored(self.learner.state_dict())
        return report

    def end_task(self) -> None:
        self._call("end_task")

    def _call(self, name: str, *arguments: Any) -> Any:
        if self.task_state is not None:
            self.later_calls.append((name, arguments))
        return getattr(self.learner, name)(*arguments)


def run_on(
    assembly: DriftLoop,
    recording: RecordingLearner,
    *,
    after: int = 0,
    listener: Listener | None = None,
) -> list[TaskRecord[Scores]]:
    """The tasks after number `after`, once the caller keeps on asking for the next."""
    assert assembly.config.epochs is not None
    return list(
        run_tasks(
            assembly.stream.tasks(after=after),
            handler=replace(assembly.handler, learner=recording),
            context_of=assembly.context,
            evaluate=assembly.evaluate,
            epochs=assembly.config.epochs,
            listener=listener or Silent(),
        )
    )


class Keep(Silent):
    """Keeps the state of everything between the two tasks."""

    def __init__(self, assembly: DriftLoop) -> None:
        self.between: Any = None
        self._assembly = assembly

    def task_begins(self, task: Task) -> None:
        if task.number == 2:
            self.between = stored(self._assembly.state_dict())


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    """A run, and what is needed to go on from within it."""

    records: list[TaskRecord[Scores]]
    losses: list[float]
    final: Any
    between: Any
    task_state: Any
    later_calls: list[tuple[str, tuple[Any, ...]]]
    global_before: tuple[Any, ...]
    global_after: tuple[Any, ...]


@functools.cache
def whole_run(names: Names, *, follow_ups: int = 1) -> WholeRun:
    before = global_state()
    assembly = assemble(config_of(names, follow_ups=follow_ups), DATA)
    recording, keep = RecordingLearner(assembly.learner), Keep(assembly)
    records = run_on(assembly, recording, listener=keep)
    return WholeRun(
        records=records,
        losses=recording.losses,
        final=lasting(assembly),
        between=keep.between,
        task_state=recording.task_state,
        later_calls=recording.later_calls,
        global_before=before,
        global_after=global_state(),
    )


@each_combination
def test_it_learns_and_does_the_same_again_whatever_the_global_random_state_is(
    names: Names,
) -> None:
    run = whole_run(names)
    for record in run.records:
        # Between the two of them, where chance is 50 %: what is known of other classes is another
        # matter, and a slow average of so short a run still prefers the first ones.
        own = record.scores.accuracy_til[-1]
        assert own is not None
        assert own > 80, f"task {record.task}"
    assert same(run.global_after, run.global_before)
    with torch.random.fork_rng():
        torch.set_rng_state(rng.fork(123, "elsewhere").get_state())
        assembly = assemble(config_of(names), DATA)
        recording = RecordingLearner(assembly.learner)
        records = run_on(assembly, recording)
    assert recording.losses == run.losses
    assert records == run.records
    assert same(lasting(assembly), run.final)


@each_combination
def test_it_goes_on_from_the_midst_of_a_task(names: Names) -> None:
    # The learner by itself: what an adaptation does to it after the task is another law's matter.
    without = {"follow_ups": 0} if names[2].startswith("amr-") else {}
    run = whole_run(names, **without)
    assembly = assemble(config_of(names, **without), DATA)
    learner = assembly.learner
    learner.load_state_dict(run.task_state)
    with assembly.ledger.phase("train"):
        answers = [getattr(learner, name)(*arguments) for name, arguments in run.later_calls]
    losses = [answer.loss for answer in answers if isinstance(answer, StepReport)]
    assert 3 <= len(losses) < len(run.losses)
    assert losses == run.losses[-len(losses) :]
    assert same(stored(learner.state_dict()), run.final["learner"])


@each_combination
def test_it_goes_on_between_two_tasks(names: Names) -> None:
    run = whole_run(names)
    assembly = assemble(config_of(names), DATA)
    assembly.load_state_dict(run.between)
    assert run_on(assembly, RecordingLearner(assembly.learner), after=1) == run.records[1:]
    assert same(lasting(assembly), run.final)


# --- streams at the edge ------------------------------------------------------------------------


class Forget(Silent):
    """Empties the buffer before every task."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def task_begins(self, task: Task) -> None:
        for label in self._memory.counts():
            self._memory.drop(label)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A stream at the edge."""

    data: Dataset
    settings: dict[str, Any]
    forget: bool = False


EDGES = {
    # Images of 4x4 have shrunk to one pixel where the last batch norm sees them.
    "grey, one sample a step": Edge(
        data=quadrants(side=4, train=(2, 2, 2, 2)),
        settings={
            **{"batch_size": 1, "minibatch_size": 1, "epochs": 1, "lr": 0.05},
            **{"backbone": "cnn", "options": {"backbone": {"width": 8}}},
        },
    ),
    # The memory is empty at the first task anyhow; here it is at the second one, too.
    "colour, classes of one sample, a memory that was emptied": Edge(
        data=quadrants(channels=3, train=(1, 6, 6, 1)), settings={"epochs": 1}, forget=True
    ),
}


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES.keys())
@each_combination
def test_it_survives(names: Names, edge: Edge) -> None:
    assembly = assemble(config_of(names, **edge.settings), edge.data)
    recording = RecordingLearner(assembly.learner)
    listener = Forget(assembly.learner.buffer) if edge.forget else None
    records = run_on(assembly, recording, listener=listener)
    assert all(map(math.isfinite, recording.losses))
    assert assembly.ledger.steps == assembly.learner.steps
    assert assembly.ledger.steps >= len(recording.losses) > 3, "rehearsal counts as well"
    assert [record.task for record in records] == [1, 2]
    assert sum(count for _, _, count in records[1].scores.confusion) == 16, (
        "every test sample has been judged"
    )
    held = assembly.learner.buffer.counts()
    assert set(held) <= {0, 1, 2, 3}
    assert sum(held.values()) <= 10
    assert bool(held) is assembly.learner.method.rehearses
