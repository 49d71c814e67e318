"""Detectors that use no samples: perfect and useless detection, for comparison."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from driftwise import rng
from driftwise.detect.base import DetectorContext, Reference
from driftwise.errors import UserError
from driftwise.types import Samples, Verdict


class NeverDetector:
    """Flags nothing: what `Never` makes for a stream.

    >>> verdicts = NeverDetector(context=None).check(2, [0, 1], monitored=None, reference=None)
    >>> [verdict.drifted for verdict in verdicts]
    [False, False]
    """

    reads_monitored = False

    def __init__(self, context: DetectorContext) -> None:
        self._context = context

    def flagged(self, task: int, classes: Sequence[int]) -> Collection[int]:
        """The classes to be flagged at a task."""
        del task, classes
        return ()

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class; the samples are not used."""
        del monitored, reference
        flagged = self.flagged(task, classes)
        return [Verdict(task=task, label=label, drifted=label in flagged) for label in classes]


class AlwaysDetector(NeverDetector):
    """Flags every class at every task: what `Always` makes for a stream.

    >>> AlwaysDetector(context=None).flagged(2, [0, 1])
    [0, 1]
    """

    def flagged(self, task: int, classes: Sequence[int]) -> Collection[int]:
        """All of them."""
        del task
        return classes


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """Knows the schedule, and errs as often as it is set to: shows what a detector's errors cost.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> detector = dw.detect.Oracle(tpr=0.9, fpr=0.01)
    >>> loop = dw.DriftLoop(learner, detector=detector, adaptation=dw.adapt.Realign())
    """

    tpr: float = 1.0
    """fraction of drifted classes that are flagged when they drift"""
    fpr: float = 0.0
    """fraction of other classes that are flagged nevertheless"""

    def __post_init__(self) -> None:
        for name in ("tpr", "fpr"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UserError(f"the oracle's {name} must lie between 0 and 1; got {value}")

    def bind(self, context: DetectorContext) -> OracleDetector:
        """The detector, for one stream."""
        return OracleDetector(context, self)


class OracleDetector(NeverDetector):
    """What `Oracle` makes for a stream.

    >>> from driftwise.detect import DetectorContext
    >>> context = DetectorContext(encoder=lambda: None, drifting=lambda task: [1])
    >>> OracleDetector(context, Oracle()).flagged(2, [0, 1])
    [1]
    """

    def __init__(self, context: DetectorContext, options: Oracle) -> None:
        super().__init__(context)
        self._options = options

    def flagged(self, task: int, classes: Sequence[int]) -> Collection[int]:
        """The classes that drift at the task, but for errors drawn for each class and task."""
        drifting = self._context.drifting(task)
        rates = [self._options.tpr if c in drifting else self._options.fpr for c in classes]
        return [c for c, rate in zip(classes, rates, strict=True) if self._draw(task, c) < rate]

    def _draw(self, task: int, label: int) -> float:
        """One number per class and task: with higher rates the same classes stay flagged."""
        draw = rng.fork(self._context.seed, "oracle", task, label)
        return float(torch.rand((), generator=draw))


class Always:
    """Flags every class at every task.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> detector = dw.detect.Always()
    >>> loop = dw.DriftLoop(learner, detector=detector, adaptation=dw.adapt.Realign())
    """

    def bind(self, context: DetectorContext) -> AlwaysDetector:
        """The detector."""
        return AlwaysDetector(context)


class Never:
    """Flags nothing.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> detector = dw.detect.Never()
    >>> loop = dw.DriftLoop(learner, detector=detector, adaptation=dw.adapt.Realign())
    """

    def bind(self, context: DetectorContext) -> NeverDetector:
        """The detector."""
        return NeverDetector(context)
