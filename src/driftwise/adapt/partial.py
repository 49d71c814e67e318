"""Partial drift: a class keeps the looks that are still valid, and takes on the new ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from driftwise.adapt.current_samples import current_samples
from driftwise.protocols import AdaptationContext, Choose
from driftwise.types import Samples, Verdict

FEWEST = 5
"""samples on either side, below which nothing can be said of single ones"""


@dataclass(frozen=True, kw_only=True)
class PartialRealign:
    """As much of a class's memory goes as of the class has moved, what fits least first."""

    full_from: float = 0.8
    """from this share on all samples go: estimates of a whole drift fall short of 1"""

    def outdated(self, verdict: Verdict, held: Samples, context: AdaptationContext) -> Tensor:
        """The samples that have to go, bool (samples,)."""
        everything = torch.ones(len(held), dtype=torch.bool)
        if self._surely_all(verdict):
            return everything
        now = current_samples(verdict.label, context)
        if min(len(held), len(now)) < FEWEST:
            return everything
        old, new = (context.encode(samples.images).features for samples in (held, now))
        share = context.compare(old, new).share if verdict.share is None else verdict.share
        if share >= self.full_from:
            return everything
        misfit = context.compare(new, old).evidence
        goes = torch.zeros(len(held), dtype=torch.bool)
        goes[misfit.argsort(descending=True)[: round(share * len(held))]] = True
        return goes

    def choice(self, verdict: Verdict, context: AdaptationContext) -> Choose:
        """Any fresh samples of the part that has moved; where all has, any at all."""
        held = context.memory.samples_of(verdict.label)

        def choose(images: Tensor, count: int) -> Tensor:
            anything = torch.arange(count)
            if self._surely_all(verdict) or min(len(held), len(images)) < FEWEST:
                return anything
            moved = context.compare(
                *(context.encode(some).features for some in (held.images, images))
            )
            share = moved.share if verdict.share is None else verdict.share
            if share >= self.full_from:
                return anything
            # Not the most extreme ones: they would stand for the edge of the new look.
            most = max(count, round(share * len(images)))
            ranked = moved.evidence.argsort(descending=True, stable=True)[:most]
            return ranked.sort().values[:count]

        return choose

    def _surely_all(self, verdict: Verdict) -> bool:
        """Whether the verdict says so, and nobody has to look at samples."""
        return verdict.share is not None and verdict.share >= self.full_from
