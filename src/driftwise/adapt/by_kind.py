"""Adaptation by the kind of change: realign, extend, restore, or leave alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from driftwise.adapt.base import Wrapper
from driftwise.adapt.partial import PartialRealign
from driftwise.adapt.recurring import RecurringConcepts
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Verdict

LEFT_ALONE = ("new class", "mix", "harmless", "corrupted", "none")
"""kinds of change that no fresh samples of the class would cure"""


class ByKind(Wrapper):
    """Acts on what a verdict says has happened to a class.

    - drift: all of its samples in the buffer are replaced by freshly labelled ones;
    - new mode: the new fraction alone is replaced, so that old and new stay in proportion;
    - recurring: the earlier concept is restored from the archive, without labels;
    - new class, mix, harmless, corrupted: nothing, and a note says what to do.

    A detector that names no kinds has all of its classes treated as drifted.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=dw.adapt.ByKind())
    """

    def __init__(self, *, concepts: int = 3, same_below: float = 0.4) -> None:
        """What is archived, and when it is restored: see `RecurringConcepts`."""
        super().__init__(
            RecurringConcepts(_ReplaceOrExtend(), concepts=concepts, same_below=same_below)
        )

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Adapt to the classes for which that helps."""
        alone = [each for each in drifted if each.kind in LEFT_ALONE]
        result = self._inner.adapt([each for each in drifted if each not in alone], context)
        notes = tuple(f"class {each.label}: {each.kind}; {each.action}" for each in alone)
        return dataclasses.replace(result, notes=(*notes, *result.notes))


class _ReplaceOrExtend(PartialRealign):
    """Replaces the new fraction where there is a new mode, and everything otherwise."""

    def _is_surely_full(self, verdict: Verdict) -> bool:
        return verdict.kind != "new mode" or super()._is_surely_full(verdict)
