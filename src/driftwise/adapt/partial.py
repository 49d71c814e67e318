"""Partial drift: only the outdated part of a class is realigned."""

from __future__ import annotations

import torch
from torch import Tensor

from driftwise.adapt.base import FEWEST, current_samples
from driftwise.adapt.realign import Choice, Realign
from driftwise.adapt.screening import Screen
from driftwise.protocols import AdaptationContext, Choose
from driftwise.types import Samples, Verdict


class PartialRealign(Realign):
    """Replaces the same fraction of a class's buffer samples as has drifted, worst fit first.

    With n buffer samples and a fraction f drifted, round(f n) samples go: those most likely not to
    come from the current distribution.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> adaptation = dw.adapt.PartialRealign(full_from=0.9)
    >>> loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=adaptation)
    """

    def __init__(
        self,
        *,
        full_from: float = 0.8,
        choice: Choice | None = None,
        screen: Screen | None = None,
    ) -> None:
        """When to replace everything, and by what.

        Args:
            full_from: fraction drifted from which on all samples of the class go: estimates of a
                complete drift fall short of 1.
            choice: which incoming samples to have labelled; None: random ones of the drifted part.
            screen: sets answers aside that are probably wrong; None: all answers count.
        """
        super().__init__(choice=choice, screen=screen)
        self._full_from = full_from

    def outdated(self, verdict: Verdict, held: Samples, context: AdaptationContext) -> Tensor:
        """Which of a drifted class's samples in the buffer to replace, bool (samples,)."""
        everything = torch.ones(len(held), dtype=torch.bool)
        if self._is_surely_full(verdict):
            return everything
        now = current_samples(verdict.label, context)
        if min(len(held), len(now)) < FEWEST:
            return everything
        old, new = (context.encode(samples.images).features for samples in (held, now))
        fraction = context.compare(old, new).share if verdict.share is None else verdict.share
        if fraction >= self._full_from:
            return everything
        misfit = context.compare(new, old).evidence
        mask = torch.zeros(len(held), dtype=torch.bool)
        mask[misfit.argsort(descending=True)[: round(fraction * len(held))]] = True
        return mask

    def outdated_fraction(self, verdict: Verdict) -> float:
        """The estimated fraction that drifted; all where it is unknown or nearly all."""
        if verdict.share is None or self._is_surely_full(verdict):
            return 1.0
        return verdict.share

    def choose(self, verdict: Verdict, context: AdaptationContext) -> Choose | None:
        """The rule by which incoming samples are chosen."""
        if self._choice is not None:
            return self._choice(verdict, context)
        held = context.buffer.samples_of(verdict.label)

        def from_drifted_part(images: Tensor, count: int) -> Tensor:
            first = torch.arange(count)
            if self._is_surely_full(verdict) or min(len(held), len(images)) < FEWEST:
                return first
            drift = context.compare(
                *(context.encode(some).features for some in (held.images, images))
            )
            fraction = drift.share if verdict.share is None else verdict.share
            if fraction >= self._full_from:
                return first
            # Not the most extreme samples: they would represent the edge of the new concept only.
            num_drifted = max(count, round(fraction * len(images)))
            ranked = drift.evidence.argsort(descending=True, stable=True)[:num_drifted]
            return ranked.sort().values[:count]

        return from_drifted_part

    def _is_surely_full(self, verdict: Verdict) -> bool:
        """Whether the verdict alone decides, without comparing samples."""
        return verdict.share is not None and verdict.share >= self._full_from
