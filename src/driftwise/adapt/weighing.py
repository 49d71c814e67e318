"""Which old samples stay beside fresh ones: as many as the fresh labels support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from driftwise.adapt.base import class_means, features_of
from driftwise.protocols import AdaptationContext
from driftwise.stats.old_weight import old_weights
from driftwise.types import Samples

MIN_FRESH = 10
"""fresh samples of all classes together below which nothing is decided by them"""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """What becomes of a class in memory."""

    going: Tensor
    """bool (old samples,): which of them go; of class statistics, which fraction"""
    coming: Samples
    """the fresh samples that are put in"""
    over: Samples
    """the fresh samples for which there is no room, to be trained on once"""


def weighed(asked: Mapping[int, Samples], context: AdaptationContext) -> dict[int, Mixture]:
    """The mixture of old and fresh samples for each class with fresh samples.

    With fewer than 10 fresh samples in all, or a single one of a class, old samples stay but for as
    many. In a replay buffer a class keeps its number of samples, and the old ones nearest to fresh
    ones stay.
    """
    came = {label: samples for label, samples in asked.items() if len(samples)}
    if not came:
        return {}
    together = Samples.concat(list(came.values()))
    features = features_of(together.images, context)
    weights = old_weights(features, together.labels, class_means(context, came)).by_label
    is_enough = len(together) >= MIN_FRESH
    return {
        label: _mixture(
            label,
            fresh,
            features[together.labels == label],
            weights[label] if is_enough and len(fresh) > 1 else None,
            context,
        )
        for label, fresh in came.items()
    }


def _mixture(
    label: int, fresh: Samples, features: Tensor, weight: float | None, context: AdaptationContext
) -> Mixture:
    """`weight` None: all old samples count."""
    held, count = context.buffer.samples_of(label), context.buffer.counts()[label]
    if not len(held):  # class statistics, which have no slots to be filled
        return Mixture(
            going=torch.arange(count) >= (count if weight is None else round(weight)),
            coming=fresh,
            over=fresh[:0],
        )
    slots = len(held)
    kept = slots - len(fresh)
    if weight is not None:
        kept = round(slots * weight / (weight + len(fresh)))
    kept = max(0, min(kept, slots - 1))
    distance = torch.cdist(features_of(held.images, context), features).amin(dim=1)
    # No sample is to be there twice: a fresh one may be in the buffer already.
    distance[torch.isin(held.ids, fresh.ids)] = torch.inf
    going = torch.ones(slots, dtype=torch.bool)
    going[distance.argsort(stable=True)[:kept]] = False
    return Mixture(going=going, coming=fresh[: slots - kept], over=fresh[slots - kept :])
