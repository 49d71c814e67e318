"""The theorems measured on a benchmark: gradients around a drift event, samples that a buffer loses.

A learner is trained up to the first event, then continues twice from there: with the stale buffer
(`vanilla`) and with the drifted classes realigned (`amr`), which an oracle detects.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.config import registry
from driftwise.config.benchmarks import QUIET, Notify
from driftwise.config.build import assemble, load_data
from driftwise.config.learners import network_maker, pick_device
from driftwise.config.presets import resolve, settled
from driftwise.config.schema import RunConfig
from driftwise.drift_loop import DriftLoop
from driftwise.errors import UserError
from driftwise.files import JSON, folder_in, replacing, write_json
from driftwise.loop import run_tasks
from driftwise.models.inputs import input_shape_of, to_input
from driftwise.protocols import Listener
from driftwise.protocols import Task as AnyTask
from driftwise.reproduce.theorems import (
    Pair,
    chance_all_replaced,
    chance_replaced,
    cosine,
    efficiency,
    mean_gradient,
    mixture_efficiency,
    paper_chance_all_replaced,
    paper_chance_replaced,
    simulate,
)
from driftwise.runs.listeners import Silent
from driftwise.streams import Task
from driftwise.types import Dataset, Samples, StepReport, TaskRecord

FORMAT = 1
BRANCHES = ("vanilla", "amr")
SHARES = tuple(round(0.1 * tenth, 1) for tenth in range(11))
MAX_SAMPLES = 250
"""Samples of a class that a gradient is measured on, at most."""


def theory_config(benchmark: str) -> RunConfig:
    """A learner small enough to be measured in minutes; one epoch where data are plenty."""
    if benchmark == "digits-cd":
        return RunConfig(benchmark=benchmark)
    return RunConfig(
        benchmark=benchmark,
        backbone="cnn",
        options={"backbone": {"width": 8}},
        epochs=1,
        batch_size=32,
        minibatch_size=32,
        lr=0.05,
        threads=1,
    )


def reproduce_theory(
    out: Path, benchmark: str, seeds: Sequence[int], notify: Notify = QUIET
) -> list[Path]:
    """Measure, write `theory.json` and the figures below `out`; the files."""
    from driftwise.reproduce.theory_figures import draw_theory

    figures = folder_in(out, "figures")
    measured = measure_theory(theory_config(benchmark), seeds, notify=notify)
    files = [out / "theory.json"]
    write_json(files[0], measured)
    for image in draw_theory(measured):
        for ending, content in image.files.items():
            files.append(figures / f"theory-{image.kind}.{ending}")
            with replacing(files[-1]) as file:
                file.write(content)
    return files


def measure_theory(
    config: RunConfig,
    seeds: Sequence[int],
    *,
    shares: Sequence[float] = SHARES,
    after_steps: Sequence[int] = (0, 10, 100),
    repeats: int = 500,
    data: Dataset | None = None,
    notify: Notify = QUIET,
) -> dict[str, JSON]:
    """The quantities of the theorems, as plain data.

    `moments`: per seed, branch, step since the event (the last one ends its task) and drifted
    class, cosines and efficiencies. `reservoir`: chances that stale samples are replaced.
    """
    if not seeds:
        raise UserError("theory is measured over one or more seeds; got none")
    config = resolve(
        dataclasses.replace(config, adaptation="vanilla", detector="oracle", seed=seeds[0])
    )
    dataset = load_data(config, notify) if data is None else data
    moments: list[dict[str, JSON]] = []
    first: DriftLoop | None = None
    for number, seed in enumerate(seeds):
        if notify.progress is not None:
            notify.progress("measuring", number, len(seeds))
        assembly = assemble(dataclasses.replace(config, seed=seed), dataset, notify=notify)
        first = first or assembly
        moments += _measure_seed(assembly, torch.tensor(shares), frozenset(after_steps))
    assert first is not None, "there is at least one seed"
    task = _first_event(first)
    plain = {key: value for key, value in first.config.to_json().items() if key != "seed"}
    return {
        "format": FORMAT,
        "benchmark": config.benchmark,
        "config": plain,
        "seeds": list(seeds),
        "event": {
            "task": task,
            "classes": list(first.stream.schedule.drifting(task)),
            "class_names": list(first.stream.class_names),
        },
        "shares": list(shares),
        "moments": moments,
        "reservoir": _measure_reservoir(first, task, repeats),
    }


def _first_event(assembly: DriftLoop) -> int:
    """The task at which classes drift for the first time."""
    schedule = assembly.stream.schedule
    for task in range(2, schedule.num_tasks + 1):
        if schedule.drifting(task):
            return task
    raise UserError(f"no class of {assembly.config.benchmark} drifts; num_drifts must be 1 or more")


def _measure_seed(
    assembly: DriftLoop, shares: Tensor, after_steps: frozenset[int]
) -> list[dict[str, JSON]]:
    event = _first_event(assembly)
    _run(assembly, islice(assembly.stream.tasks(), event - 1), "vanilla", Silent())
    state = copy.deepcopy(assembly.state_dict())
    subjects = [
        _Subject(assembly, event, label) for label in assembly.stream.schedule.drifting(event)
    ]
    twin = _twin(assembly)
    moments: list[dict[str, JSON]] = []
    for branch in BRANCHES:
        assembly.load_state_dict(copy.deepcopy(state))

        def note(step: int, branch: str = branch) -> None:
            twin.load_state_dict(assembly.learner.network.state_dict())
            where: dict[str, JSON] = {
                "seed": assembly.config.seed,
                "adaptation": branch,
                "step": step,
            }
            moments.extend({**where, **subject.measure(twin, shares)} for subject in subjects)

        _run(assembly, [assembly.stream.task(event)], branch, _At(after_steps, note))
    return moments


def _twin(assembly: DriftLoop) -> nn.Module:
    """A copy to measure on, so that the ledger of the run does not count it."""
    config, stream = assembly.config, assembly.stream
    make = network_maker(config, input_shape_of(stream.image_shape), stream.num_classes)
    return make(0).to(pick_device(config.device))


def _run(assembly: DriftLoop, tasks: Iterable[Task], adaptation: str, listener: Listener) -> None:
    config = dataclasses.replace(assembly.config, adaptation=adaptation)
    handler = dataclasses.replace(assembly.handler, adaptation=registry.make("adaptation", config))
    for _ in run_tasks(
        tasks,
        handler=handler,
        context_of=assembly.context,
        evaluate=assembly.evaluate,
        epochs=settled(config.epochs),
        listener=listener,
    ):
        pass


class _At(Silent):
    """Calls when a task begins, after some of its steps, and when it ends."""

    def __init__(self, steps: frozenset[int], call: Callable[[int], None]) -> None:
        self._steps = steps
        self._call = call
        self._step = 0

    def task_begins(self, task: AnyTask) -> None:
        """Before the buffer is realigned."""
        del task
        self._step = 0
        self._call(0)

    def stepped(self, epoch: int, report: StepReport) -> None:
        """After one of the wanted steps."""
        del epoch, report
        self._step += 1
        if self._step in self._steps:
            self._call(self._step)

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """After the last step."""
        del record
        if self._step not in self._steps:
            self._call(self._step)


class _Subject:
    """A drifted class: its samples in either concept, and those in the buffer.

    The gradients are compared with those of held-out samples; the realigned samples come from the
    buffer at the event and from the very samples that realignment requests.
    """

    def __init__(self, assembly: DriftLoop, event: int, label: int) -> None:
        stream, task = assembly.stream, assembly.stream.task(event)
        self._label = label
        self._buffer = assembly.learner.buffer
        self._device = pick_device(assembly.config.device)
        self._old = stream.samples("test", [label], event - 1)[:MAX_SAMPLES]
        self._new = stream.samples("test", [label], event)[:MAX_SAMPLES]
        unseen = (stream.samples(part, [label], event - 1) for part in ("monitored", "reference"))
        self._again = Samples.concat(list(unseen))[:MAX_SAMPLES]
        self._incoming = task.incoming(label)[:MAX_SAMPLES]
        self._seen = self._buffer.seen
        self._stale = self._buffer.samples_of(label)
        self._fresh = assembly.context(task).labels.ask(label, len(self._stale))
        # So that which samples are realigned first does not depend on their slots.
        shuffle = rng.fork(assembly.config.seed, "theory", label)
        self._order = torch.randperm(len(self._stale), generator=shuffle)[: len(self._fresh)]

    def measure(self, network: nn.Module, shares: Tensor) -> dict[str, JSON]:
        """All measures of the class for the current network and buffer."""
        gradient = functools.partial(self._gradient, network)
        old, new, again = map(gradient, (self._old, self._new, self._again))
        pair = Pair.of(old, new)
        held = self._buffer.samples_of(self._label)
        return {
            "class": self._label,
            "num_stale": len(self._stale),
            "stale_left": int(torch.isin(held.concepts, self._stale.concepts).sum()),
            "offered": self._buffer.seen - self._seen,
            "cosine": pair.cosine,
            "same_look_cosine": cosine(old, again),
            "old_norm": pair.old_old**0.5,
            "new_norm": pair.new_new**0.5,
            "formula": _floats(efficiency(pair, shares)),
            "mixture_formula": _floats(mixture_efficiency(pair, shares)),
            **self._realigned(gradient, new, shares),
        }

    def _realigned(
        self, gradient: Callable[[Samples], Tensor], new: Tensor, shares: Tensor
    ) -> dict[str, JSON]:
        """Efficiencies with a fraction of the class's samples in the buffer really realigned."""
        if not len(self._fresh):
            return {"measured": None, "mixture": None}
        stale, stream = self._stale[self._order], gradient(self._incoming)
        pulls = [
            gradient(Samples.concat([self._fresh[:count], stale[count:]]))
            for count in (shares * len(stale)).round().long().tolist()
        ]
        return {
            "measured": [cosine(stream + pull, new) for pull in pulls],
            "mixture": [cosine(pull, new) for pull in pulls],
        }

    def _gradient(self, network: nn.Module, samples: Samples) -> Tensor:
        x, y = to_input(samples.images, self._device), samples.labels.to(self._device)
        return mean_gradient(network, x, y)


def _measure_reservoir(assembly: DriftLoop, event: int, repeats: int) -> dict[str, JSON]:
    """Chances over the samples of the tasks from the event on, epochs included."""
    config, schedule = assembly.config, assembly.stream.schedule
    capacity = settled(config.buffer_size)
    labels = functools.partial(_labels_offered, assembly)
    before = np.concatenate([labels(task) for task in range(1, event)])
    after = np.concatenate([labels(task) for task in range(event, schedule.num_tasks + 1)])
    drifted = schedule.drifting(event)[0]
    # Evenly in the logarithm: the first samples matter as much as the last ones.
    offered = np.unique(np.geomspace(1, len(after), 25).round().astype(np.int64))
    stale = round(capacity / len(schedule.known(event)))
    simulated: dict[str, JSON] = {}
    for policy in ("reservoir", "balanced"):
        found = simulate(
            before,
            after,
            drifted=drifted,
            offered=offered.tolist(),
            capacity=capacity,
            policy=policy,
            repeats=repeats,
            seed=config.seed,
        )
        simulated[policy] = {
            "replaced": _floats(found.replaced),
            "error": _floats(found.replaced_error),
            "all_replaced": _floats(found.all_replaced),
        }
    return {
        "capacity": capacity,
        "stale": stale,
        "seen": len(before),
        "event_rows": len(labels(event)),
        "rows": offered.tolist(),
        "repeats": repeats,
        "paper": _floats(paper_chance_replaced(offered, capacity=capacity)),
        "exact": _floats(chance_replaced(offered, seen=len(before), capacity=capacity)),
        "paper_all": _floats(paper_chance_all_replaced(offered, stale=stale, capacity=capacity)),
        "exact_all": _floats(
            chance_all_replaced(offered, stale=stale, seen=len(before), capacity=capacity)
        ),
        "simulated": simulated,
    }


def _labels_offered(assembly: DriftLoop, task: int) -> np.ndarray:
    """The labels that a task offers to the buffer, shuffled in every epoch."""
    found = assembly.stream.task(task).train().labels
    order = rng.fork(assembly.config.seed, "theory", "labels", task)
    epochs = range(settled(assembly.config.epochs))
    shuffled = [found[torch.randperm(len(found), generator=order)] for _ in epochs]
    return torch.cat(shuffled).numpy()


def _floats(values: Tensor | np.ndarray) -> list[float | None]:
    """Plain numbers; None for what is not finite."""
    return [float(value) if np.isfinite(value) else None for value in values.tolist()]
