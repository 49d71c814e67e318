"""The interfaces by which the loop and the packages know one another without imports."""

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
    Moments,
    Samples,
    StepReport,
    TaskRecord,
    TaskState,
    Verdict,
)

Annotate = Callable[[Samples], Extras]
"""Computes what the method keeps beside samples in the buffer."""

Choose = Callable[[Tensor, int], Tensor]
"""Chooses which of the images, (samples, height, width, channels), get so many labels."""


class HasSamples(Protocol):
    """Anything with samples of a class: a replay buffer, held-out samples."""

    def samples_of(self, label: int) -> Samples:
        """The samples of one class (possibly none)."""
        ...


class Replay(HasSamples, Protocol):
    """A replay buffer as an adaptation sees it."""

    def counts(self) -> dict[int, int]:
        """Samples per class."""
        ...

    def slots_of(self, label: int) -> int:
        """Fresh samples that replace a class completely."""
        ...

    def drop(self, label: int, only: Tensor | None = None) -> int:
        """Free the slots of a class (`only`: of some of its samples); returns their number."""
        ...

    def put(self, samples: Samples, extras: Extras = ...) -> None:
        """Fill free slots."""
        ...


@runtime_checkable
class KeepsStatistics(Protocol):
    """A buffer of class statistics: it keeps no samples."""

    def moments_of(self, label: int) -> Moments | None:
        """What is kept of a class; None: nothing."""
        ...

    def features(self, images: Tensor) -> Tensor:
        """What statistics are kept of, (samples, d)."""
        ...

    def pooled(self) -> tuple[Tensor, float] | None:
        """The scatter within classes, (d, d), and its degrees of freedom; None: not kept."""
        ...

    def restore(self, label: int, moments: Moments) -> None:
        """Put earlier statistics in the place of a class's present ones."""
        ...

    def distance(self, moments: Moments, images: Tensor) -> float:
        """How far the mean of samples is from that of statistics, in pooled variances."""
        ...


class LabelSource(Protocol):
    """Where an adaptation requests labels; every label is booked."""

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        """Up to `count` fresh samples of a class in its current concept (None: all there are).

        A random choice, unless `choose` is given.
        """
        ...

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """How many samples of each class to ask for, if so many are wanted (None: all there are).

        Fewer where the budget is too small for all of them. Nothing is requested yet.
        """
        ...

    def unlabelled(self) -> Samples:
        """Current samples of all known classes without labels; their labels are -1."""
        ...


@runtime_checkable
class AsksAgain(Protocol):
    """A source of labels that can have a sample labelled a second time."""

    def ask_again(self, label: int, samples: Samples) -> Tensor:
        """Whether a second answer says the same of samples of this class, bool (samples,).

        Each is booked; what the budget does not allow is not confirmed.
        """
        ...


def split_budget(wanted: Mapping[int, int], total: int) -> dict[int, int]:
    """Whole numbers that add up to `total`, or to all that is wanted, each in proportion.

    What rounding leaves over goes to those who lost most by it.

    >>> split_budget({0: 50, 1: 50, 2: 10}, 12)
    {0: 6, 1: 5, 2: 1}
    >>> split_budget({0: 3, 1: 0}, 4)
    {0: 3, 1: 0}
    """
    everything = sum(wanted.values())
    if total >= everything:
        return dict(wanted)
    shares = {who: count * total // everything for who, count in wanted.items()}
    lost = sorted(wanted, key=lambda who: -(wanted[who] * total % everything))
    for who in lost[: total - sum(shares.values())]:
        shares[who] += 1
    return shares


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
        """Held-out samples of a class in its current concept."""
        ...


class Task(MonitoredTask, Protocol):
    """A task as the loop sees it."""

    @property
    def new_classes(self) -> tuple[int, ...]:
        """The classes that the task brings."""
        ...

    @property
    def returning_classes(self) -> tuple[int, ...]:
        """Known classes that return, labelled, in the task's training data."""
        ...

    def train(self) -> Samples:
        """The labelled samples that the task brings."""
        ...

    def new_labels(self) -> int:
        """How many of their labels no task before it has brought."""
        ...

    def batches(self, samples: Samples, *, epoch: int, skip: int = 0) -> Iterator[Samples]:
        """One pass over the samples in the order of the epoch, without the first `skip` batches."""
        ...


class Monitor(Protocol):
    """Gives verdicts, and renews the reference of learned classes."""

    def check(self, task: MonitoredTask) -> list[Verdict]:
        """A verdict on every class that arrived before the task."""
        ...

    def renew(self, task: MonitoredTask, labels: Sequence[int], learned: Samples) -> None:
        """These classes were learned in their current concept, from these labelled samples."""
        ...


class Rehearse(Protocol):
    """One train step after which the buffer is as before."""

    def __call__(self, batch: Samples | None, *, rate: float = 1.0) -> object:
        """On these samples and the buffer, or the buffer alone; `rate`: factor on the learning rate."""
        ...


@dataclass(frozen=True, kw_only=True)
class AdaptationContext:
    """What an adaptation works with. It does not know the method."""

    buffer: Replay
    labels: LabelSource
    annotate: Annotate
    encode: Callable[[Tensor], Encoding]
    """logits and features of images, (samples, height, width, channels); no side effects"""
    rehearse: Rehearse
    steps: Callable[[], int]
    """train steps so far, rehearsals included"""
    monitored: Callable[[], Samples]
    """the monitored samples, with the labels that the monitor knows; -1: unknown"""
    compare: Callable[[Tensor, Tensor], Share]
    """the fraction of the second features, (samples, d), that drifted from the first"""
    tested: frozenset[int] = frozenset()
    """classes that the last check could test"""


class Adaptation(Protocol):
    """Adapts a learner to drifted classes."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Adapt now, and return what the coming task should do."""
        ...


@runtime_checkable
class AdaptsLater(Protocol):
    """An adaptation that continues after the task."""

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        """Continue after the task's last step; returns messages for the user."""
        ...


class Learner(Protocol):
    """Learns from labelled batches."""

    @property
    def buffer(self) -> Replay:
        """The replay buffer."""
        ...

    def begin_task(self, classes: Sequence[int], *, from_scratch: bool) -> None:
        """New classes arrive; `from_scratch`: new weights first."""
        ...

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """A pass over the task's samples begins, the `epoch`-th of `epochs`."""
        ...

    def observe(self, batch: Samples) -> StepReport:
        """One train step; then the batch is offered to the buffer."""
        ...

    def end_task(self) -> None:
        """The task is over."""
        ...

    def annotate(self, samples: Samples) -> Extras:
        """What the method keeps beside samples."""
        ...


@runtime_checkable
class ForgetsSamples(Protocol):
    """A learner that can remove what samples have brought."""

    def forget(self, samples: Samples) -> None:
        """As if these samples had never come, as far as their classes were not realigned since."""
        ...


class Ledger(Protocol):
    """Records what everything costs."""

    @property
    def labels(self) -> Mapping[str, int]:
        """Labels used so far, by kind."""
        ...

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Seconds and FLOPs within belong to this phase."""
        ...

    def book_labels(self, kind: str, count: int) -> None:
        """Labels were used."""
        ...

    def add_step(self) -> None:
        """A gradient step was made."""
        ...


class Listener(Protocol):
    """Is notified of what happens, and changes nothing."""

    def task_begins(self, task: Task) -> None:
        """A task begins."""
        ...

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """Known classes were checked and adapted to; an epoch has so many samples."""
        ...

    def resumed(self, task: Task, task_state: TaskState, samples: int) -> None:
        """Training resumes within a task; an epoch has so many samples."""
        ...

    def stepped(self, epoch: int, report: StepReport) -> None:
        """One training step was made."""
        ...

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """A task is complete."""
        ...
