"""The shapes by which the loop and the rooms know one another without importing one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from driftwise.stats.fraction import Share
from driftwise.types import (
    AdaptationResult,
    Encoding,
    Extras,
    Samples,
    StepReport,
    TaskRecord,
    TaskState,
    Verdict,
)

Annotate = Callable[[Samples], Extras]
"""Gives the columns that the running method keeps beside samples in memory."""

Choose = Callable[[Tensor, int], Tensor]
"""Positions of the images, (samples, height, width, channels), that are worth so many labels."""


class HasSamples(Protocol):
    """Anything that can show its samples of a class: a memory, a set of held-out samples."""

    def samples_of(self, label: int) -> Samples:
        """The samples of one class (possibly none)."""
        ...


class Replay(HasSamples, Protocol):
    """A memory as adaptation sees it."""

    def counts(self) -> dict[int, int]:
        """Samples per class."""
        ...

    def drop(self, label: int, only: Tensor | None = None) -> int:
        """Free the slots of a class (`only`: those of some of its samples); how many they were."""
        ...

    def put(self, samples: Samples, extras: Extras = ...) -> None:
        """Fill free slots."""
        ...


class LabelSource(Protocol):
    """Where adaptation asks for labels; every answer is booked."""

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        """Up to `count` fresh samples of a class as it looks now (None: all there are).

        Any of them, unless `choose` says which.
        """
        ...

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """How many samples of each class to ask for, if so many are wanted (None: all there are).

        Fewer where a budget has to do for all of them. Nothing is asked yet.
        """
        ...

    def unlabelled(self) -> Samples:
        """What comes in now of all known classes and has no label yet; labels are -1."""
        ...


class MonitoredTask(Protocol):
    """A task as a monitor sees it."""

    @property
    def number(self) -> int:
        """Counted from 1."""
        ...

    @property
    def known_classes(self) -> tuple[int, ...]:
        """The classes that arrived before the task."""
        ...

    def monitored(self) -> Samples:
        """Current samples of every known class."""
        ...

    def reference(self, label: int) -> Samples:
        """Samples of a class as it looks now, which nobody trains on."""
        ...


class Task(MonitoredTask, Protocol):
    """A task as the loop sees it."""

    @property
    def new_classes(self) -> tuple[int, ...]:
        """The classes that the task brings."""
        ...

    @property
    def returning_classes(self) -> tuple[int, ...]:
        """Known classes that come back labelled, in the task's own training data."""
        ...

    def train(self) -> Samples:
        """The labelled samples that the task brings."""
        ...

    def new_labels(self) -> int:
        """How many of their labels no task before it has brought."""
        ...

    def batches(self, samples: Samples, *, epoch: int, skip: int = 0) -> Iterator[Samples]:
        """The samples once over, in an order of the epoch's own, but for the first `skip` batches."""
        ...


class Monitor(Protocol):
    """Gives verdicts, and is told when a class has been learned."""

    def check(self, task: MonitoredTask) -> list[Verdict]:
        """A verdict on every class that arrived before the task."""
        ...

    def renew(self, task: MonitoredTask, labels: Sequence[int], learned: Samples) -> None:
        """These classes have been learned as they look now, from these labelled samples."""
        ...


class Rehearse(Protocol):
    """One gradient step of which nothing is kept."""

    def __call__(self, batch: Samples | None, *, rate: float = 1.0) -> object:
        """On these samples and on memory, or on memory alone; `rate`: factor on the learning rate."""
        ...


@dataclass(frozen=True, kw_only=True)
class AdaptationContext:
    """What an adaptation has at hand. It does not know which method runs."""

    memory: Replay
    labels: LabelSource
    annotate: Annotate
    encode: Callable[[Tensor], Encoding]
    """what the learner makes of images, (samples, height, width, channels); nothing changes"""
    rehearse: Rehearse
    steps: Callable[[], int]
    """gradient steps made so far, rehearsals included"""
    monitored: Callable[[], Samples]
    """the samples that the monitor saw, with the labels it saw; -1: none"""
    compare: Callable[[Tensor, Tensor], Share]
    """how much of the second features, (samples, d), has moved away from the first"""
    tested: frozenset[int] = frozenset()
    """classes on which the check that calls for the repair had something to say"""


class Adaptation(Protocol):
    """Answers drifted classes."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Mend what can be mended now, and say what the coming task should do."""
        ...


@runtime_checkable
class AdaptsLater(Protocol):
    """An adaptation that is not done with a repair at once."""

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        """A task's last step has been made: go on mending; what a person should be told."""
        ...


class Learner(Protocol):
    """Learns from labelled batches."""

    @property
    def memory(self) -> Replay:
        """What it replays."""
        ...

    def begin_task(self, classes: Sequence[int], *, from_scratch: bool) -> None:
        """New classes are about to arrive; `from_scratch`: forget the weights first."""
        ...

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """The task's samples are about to come once over, for the `epoch`-th time of `epochs`."""
        ...

    def observe(self, batch: Samples) -> StepReport:
        """One step, then offer to memory."""
        ...

    def end_task(self) -> None:
        """The task is over."""
        ...

    def annotate(self, samples: Samples) -> Extras:
        """The columns that the method keeps beside samples."""
        ...


class Ledger(Protocol):
    """Books what everything costs."""

    @property
    def labels(self) -> Mapping[str, int]:
        """Labels used so far, by kind."""
        ...

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Seconds and FLOPs go to this phase meanwhile."""
        ...

    def book_labels(self, kind: str, count: int) -> None:
        """Labels were used."""
        ...

    def add_step(self) -> None:
        """A gradient step was made."""
        ...


class Listener(Protocol):
    """Is told what happens; changes nothing."""

    def task_begins(self, task: Task) -> None:
        """A task begins."""
        ...

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """The known classes were checked and answered; training will take so many samples a time."""
        ...

    def resumed(self, task: Task, task_state: TaskState, samples: int) -> None:
        """Training goes on in the middle of a task, which takes so many samples a time."""
        ...

    def stepped(self, epoch: int, report: StepReport) -> None:
        """One training step was made."""
        ...

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """A task is complete."""
        ...
