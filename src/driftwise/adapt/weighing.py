"""Which old samples stay beside fresh ones: as many as the fresh labels support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from driftwise.adapt.base import FEWEST, class_means, features_of
from driftwise.protocols import AdaptationContext
from driftwise.stats.old_weight import old_weights
from driftwise.types import Samples


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """What becomes of a class in memory."""

    going: Tensor
    """bool (old samples,): which of them go; of class statistics, which fraction"""
    coming: Samples
    """the fresh samples that are put in"""


def weighed(asked: Mapping[int, Samples], context: AdaptationContext) -> dict[int, Mixture]:
    """The mixture of old and fresh samples for each class with fresh samples.

    A class with fewer than 5 fresh samples keeps its old ones but for as many. In a replay buffer a
    class keeps its number of samples, and the old ones nearest to fresh ones stay.
    """
    came = {label: samples for label, samples in asked.items() if len(samples)}
    if not came:
        return {}
    together = Samples.concat(list(came.values()))
    features = features_of(together.images, context)
    found = old_weights(features, together.labels, class_means(context, came))
    return {
        label: _mixture(
            label, fresh, features[together.labels == label], found.by_label[label], context
        )
        for label, fresh in came.items()
    }


def _mixture(
    label: int, fresh: Samples, features: Tensor, weight: float, context: AdaptationContext
) -> Mixture:
    held, count = context.buffer.samples_of(label), context.buffer.counts()[label]
    is_enough = len(fresh) >= FEWEST
    if not len(held):  # class statistics, which have no slots to be filled
        return Mixture(
            going=torch.arange(count) >= (round(weight) if is_enough else count), coming=fresh
        )
    slots = len(held)
    kept = round(slots * weight / (weight + len(fresh))) if is_enough else slots - len(fresh)
    kept = max(0, min(kept, slots - 1))
    distance = torch.cdist(features_of(held.images, context), features).amin(dim=1)
    # No sample is to be there twice: a fresh one may be in the buffer already.
    distance[torch.isin(held.ids, fresh.ids)] = torch.inf
    going = torch.ones(slots, dtype=torch.bool)
    going[distance.argsort(stable=True)[:kept]] = False
    return Mixture(going=going, coming=fresh[: slots - kept])
