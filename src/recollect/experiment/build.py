"""From a config to the parts of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from recollect import rng
from recollect.data.parts import cut
from recollect.detect import (
    Encoder,
    HeldOutReference,
    LearnerEncoder,
    Monitor,
    RandomEncoder,
    Setting,
)
from recollect.errors import UserError
from recollect.evaluate import FlopMeter, Ledger, Scores, score
from recollect.experiment import catalogue
from recollect.experiment.config import RunConfig
from recollect.learn import Learner
from recollect.memory import Memory
from recollect.shapes import Adaptation, LabelSource
from recollect.streams import Schedule, Stream, Task, TaskLabels, make_schedule
from recollect.streams.placement import split_classes
from recollect.types import Dataset, Parts

TRAIN, MONITORED, TEST = 0.6, 0.2, 0.2
"""How a data set without a test set of its own is cut."""


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The parts of a run, put together."""

    stream: Stream
    learner: Learner
    monitor: Monitor
    adaptation: Adaptation
    labels: Callable[[Task], LabelSource]
    evaluate: Callable[[Task], Scores]
    ledger: Ledger
    warnings: tuple[str, ...]

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while a run goes on."""
        return {
            "learner": self.learner.state_dict(),
            "monitor": self.monitor.state_dict(),
            "ledger": self.ledger.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self.learner.load_state_dict(state["learner"])
        self.monitor.load_state_dict(state["monitor"])
        self.ledger.load_state_dict(state["ledger"])


def assemble(config: RunConfig) -> Assembly:
    """Every part of a run that `presets.resolve` has completed the config of."""
    reference = reference_of(config)
    stream = make_stream(config, catalogue.find("benchmark", config.benchmark).factory()())
    learner = make_learner(config, stream.image_shape, stream.num_classes)
    ledger = Ledger(label_budget=config.label_budget)
    meter = FlopMeter(ledger.add_flops)
    meter.watch(learner.network, _input_shape(stream.image_shape))

    def encoder() -> Encoder:
        if config.encoder == "learner":
            return LearnerEncoder(learner.logits)
        random = RandomEncoder(stream.image_shape, seed=config.seed)
        meter.watch(random.network, _input_shape(stream.image_shape))
        return random

    def labels(task: Task) -> LabelSource:
        return TaskLabels(
            task,
            allowance=ledger.allowance,
            book=lambda count: ledger.book_labels("adaptation", count),
            seed=config.seed,
        )

    def evaluate(task: Task) -> Scores:
        tests = task.tests()
        logits = learner.logits(tests.images)
        return score(logits, tests.labels, task.classes_by_task(), task=task.number)

    return Assembly(
        stream=stream,
        learner=learner,
        monitor=Monitor(
            make_part(
                "detector",
                config,
                Setting(encoder=encoder, drifting=stream.schedule.drifting),
            ),
            HeldOutReference() if reference == "held-out" else learner.memory,
            book=lambda count: ledger.book_labels("monitoring", count),
        ),
        adaptation=make_part("adaptation", config),
        labels=labels,
        evaluate=evaluate,
        ledger=ledger,
        warnings=warnings_about(config),
    )


def make_part(kind: str, config: RunConfig, *arguments: Any) -> Any:
    """The part that a config names, made by its factory."""
    entry = catalogue.find(kind, getattr(config, kind))
    options_type = entry.options_type()
    options = [options_type(**config.options[kind])] if options_type else []
    return entry.factory()(*arguments, *options, **entry.fixed)


def reference_of(config: RunConfig) -> str:
    """What current rows are compared with: `memory` or `held-out`."""
    if config.reference != "auto":
        return config.reference
    return "held-out" if config.encoder == "learner" else "memory"


def warnings_about(config: RunConfig) -> tuple[str, ...]:
    """What a person should know before such a run begins."""
    looks = config.detector not in ("oracle", "always", "never")
    if looks and config.encoder == "learner" and reference_of(config) == "memory":
        return (
            "the learner has trained on the memory's rows, so they look more certain to it than "
            "fresh ones although nothing drifted: expect false alarms (use --reference held-out)",
        )
    return ()


def make_schedule_of(config: RunConfig, num_classes: int) -> Schedule:
    """The schedule that a config describes."""
    order = config.class_order if config.class_order is not None else range(num_classes)
    tasks = config.tasks
    if tasks is None:
        assert config.num_tasks is not None, "the config has not been resolved"
        tasks = split_classes(tuple(order), config.num_tasks)
    strangers = sorted({label for task in tasks for label in task} - set(range(num_classes)))
    if strangers:
        raise UserError(
            f"{config.benchmark} has classes 0 to {num_classes - 1}; the tasks name {strangers}"
        )
    return make_schedule(
        tasks,
        num_drifts=config.num_drifts,
        transform=config.transform,
        severity=config.severity,
        seed=config.seed,
        scope=config.scope,
        max_classes_per_drift=config.max_classes_per_drift,
        sequential=config.sequential,
        unit=config.permutation_unit,
        recurring_in_training=config.recurring_in_training,
    )


def make_stream(config: RunConfig, dataset: Dataset) -> Stream:
    """The data set, cut into parts and played by the config's schedule."""
    assert config.batch_size is not None, "the config has not been resolved"
    train, monitored, test = cut(
        dataset.labels, (TRAIN, MONITORED, TEST), rng.fork(config.seed, "parts")
    )
    reference = np.empty(0, dtype=np.int64)
    if config.monitor == "test":
        monitored = test
    if reference_of(config) == "held-out":
        halves = cut(dataset.labels[monitored], (0.5, 0.5), rng.fork(config.seed, "reference"))
        reference, monitored = monitored[halves[0]], monitored[halves[1]]
    return Stream(
        dataset,
        Parts(train=train, monitored=monitored, reference=reference, test=test),
        make_schedule_of(config, len(dataset.class_names)),
        batch_size=config.batch_size,
        seed=config.seed,
    )


def make_learner(config: RunConfig, image_shape: tuple[int, ...], num_classes: int) -> Learner:
    """A fresh learner for pictures of that shape."""
    assert config.lr is not None, "the config has not been resolved"
    assert config.buffer_size is not None, "the config has not been resolved"
    assert config.minibatch_size is not None, "the config has not been resolved"
    backbone = catalogue.find("backbone", config.backbone or "")
    lr, momentum, weight_decay = config.lr, config.momentum, config.weight_decay

    def make_network(attempt: int) -> nn.Module:
        with rng.as_global(rng.fork(config.seed, "network", attempt)):
            network: nn.Module = backbone.factory()(
                input_shape=_input_shape(image_shape),
                num_classes=num_classes,
                **config.options.get("backbone", {}),
            )
        return network

    def make_optimiser(network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            network.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay
        )

    policy = catalogue.find("buffer_policy", config.buffer_policy).factory()()
    return Learner(
        make_network=make_network,
        make_optimiser=make_optimiser,
        memory=Memory(config.buffer_size, policy=policy, seed=config.seed),
        objective=make_part("method", config),
        minibatch_size=config.minibatch_size,
        device=pick_device(config.device),
    )


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is the fastest there is."""
    there = ["cpu"]
    if torch.backends.mps.is_available():
        there.insert(0, "mps")
    if torch.cuda.is_available():
        there.insert(0, "cuda")
    if name == "auto":
        return torch.device(there[0])
    try:
        device = torch.device(name)
    except RuntimeError:  # torch's message names every kind of device there ever was
        device = None
    if device is None or device.type not in there:
        raise UserError(f"device {name!r} is not available; this machine has {', '.join(there)}")
    return device


def _input_shape(image_shape: tuple[int, ...]) -> tuple[int, ...]:
    """(height, width, channels) at rest -> (channels, height, width) in a network."""
    return (image_shape[-1], *image_shape[:-1])
