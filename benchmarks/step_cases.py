"""Training steps as the loop makes them, on made-up images, taking turns with another side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from ratios import now
from torch import nn

from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.distributed import Group
from driftwise.drift_loop import DriftLoop
from driftwise.loop import run_tasks
from driftwise.models import MLP, ResNet18
from driftwise.runs.listeners import Listeners, Silent
from driftwise.runs.saving import CheckpointSaver, Interruption, Saving
from driftwise.streams import Task
from driftwise.types import Dataset, Samples

NUM_CLASSES = 10
FIRST_TASK = (0, 1)
"""Gets past the first task, which some methods learn without replay."""
CAPACITY = 320
"""A multiple of every batch: nobody then draws a short one."""
LR = 0.01
WARM_UP = 2
"""turns that are left out"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, and the steps it makes."""

    name: str
    backbone: str
    width: int | None
    image_shape: tuple[int, int, int]
    """height, width, channels"""
    batch_size: int
    """samples from the stream, and as many in a draw from memory"""
    steps: int
    """in a turn"""

    def make_network(self) -> nn.Module:
        """One of its networks, its weights drawn from torch's global state."""
        height, width, channels = self.image_shape
        shape = (channels, height, width)
        if self.width is None:
            return MLP(input_shape=shape, num_classes=NUM_CLASSES)
        return ResNet18(input_shape=shape, num_classes=NUM_CLASSES, width=self.width)


def _resnet(width: int, steps: int) -> Case:
    return Case(
        name=f"ResNet-18 width {width}",
        backbone="resnet18",
        width=width,
        image_shape=(32, 32, 3),
        batch_size=10,
        steps=steps,
    )


CASES = (
    Case(
        name="MLP",
        backbone="mlp",
        width=None,
        image_shape=(28, 28, 1),
        batch_size=32,
        steps=20,
    ),
    _resnet(20, 1),
    _resnet(64, 1),
)


def make_images(shape: tuple[int, int, int], per_class: list[int]) -> Dataset:
    """Random pixels, so many images of each class."""
    random = np.random.RandomState(0)
    labels = np.repeat(np.arange(len(per_class)), per_class)
    return Dataset(
        images=random.randint(256, size=(len(labels), *shape)).astype(np.uint8),
        labels=labels,
        class_names=tuple(map(str, range(len(per_class)))),
    )


def assembled(
    case: Case,
    method: str,
    steps: int,
    *,
    memory_format: Literal["contiguous", "channels-last"] = "contiguous",
    precision: Literal["fp32", "bf16"] = "fp32",
    of_method: Mapping[str, Any] = MappingProxyType({}),
) -> DriftLoop:
    """The parts of a run whose second task has at least so many steps; its memory is full."""
    # A third goes into the monitored and test parts.
    per_class = 2 * case.batch_size * (steps + 1) // (NUM_CLASSES - len(FIRST_TASK))
    dataset = make_images(
        case.image_shape,
        [24 if label in FIRST_TASK else per_class + 6 for label in range(NUM_CLASSES)],
    )
    options: dict[str, Any] = {} if case.width is None else {"backbone": {"width": case.width}}
    if of_method:
        options["method"] = dict(of_method)
    config = RunConfig(
        method=method,
        adaptation="vanilla",
        detector="never",
        tasks=(FIRST_TASK, tuple(range(len(FIRST_TASK), NUM_CLASSES))),
        num_drifts=0,
        backbone=case.backbone,
        memory_format=memory_format,
        precision=precision,
        options=options,
        batch_size=case.batch_size,
        minibatch_size=case.batch_size,
        buffer_size=CAPACITY,
        epochs=1,
        lr=LR,
        device="cpu",
    )
    assembly = assemble(resolve(config), dataset)
    learner, memory = assembly.learner, assembly.learner.buffer
    numbers = torch.arange(CAPACITY)
    rows = Samples(
        images=torch.from_numpy(dataset.images[numbers.numpy() % len(dataset.images)]),
        labels=numbers % len(FIRST_TASK),
        ids=numbers,
        concepts=torch.zeros_like(numbers),
    )
    with assembly.ledger.phase("adapt"):
        memory.offer(rows, learner.annotate(rows))
    return assembly


class TakingTurns:
    """A task like another, but for its batches: after some steps the other side has a turn."""

    def __init__(
        self, task: Task, other: Callable[[int], float], *, turns: int, steps: int
    ) -> None:
        """`other` makes so many steps of its own, and says how many seconds they took."""
        self._task = task
        self._other = other
        self._turns = turns
        self._steps = steps
        self.ours: list[float] = []
        """seconds of a step, by turn"""
        self.others: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def batches(self, rows: Samples, *, epoch: int, skip: int = 0) -> Iterator[Samples]:
        """As many as the turns need; taking them out of the stream is timed, too."""
        batches = self._task.batches(rows, epoch=epoch, skip=skip)
        for turn in range(-WARM_UP, self._turns):
            start = now()
            for _ in range(self._steps):
                yield next(batches)  # goes on once the loop is through with the step
            ours = now() - start
            others = self._other(self._steps)
            if turn >= 0:
                self.ours.append(ours / self._steps)
                self.others.append(others / self._steps)


def take_turns_with(
    assembly: DriftLoop, case: Case, other: Callable[[int], float], turns: int
) -> TakingTurns:
    """Run the first task, and so much of the second as the turns need."""
    first, second = assembly.stream.tasks()
    turn = TakingTurns(second, other, turns=turns, steps=case.steps)
    tasks: list[Any] = [first, turn]
    never = CheckpointSaver(Saving(seconds=1e9), lambda _: None, Interruption(), Group())
    for _ in run_tasks(
        tasks,
        handler=assembly.handler,
        context_of=assembly.context,
        evaluate=lambda _: None,
        epochs=1,
        listener=Listeners([Silent(), Silent()]),
        keep=never.stepped,
    ):
        pass
    return turn
