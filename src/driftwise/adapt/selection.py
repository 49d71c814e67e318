"""Which incoming samples to have labelled, when not all of them can be."""

from __future__ import annotations

import torch
from torch import Tensor

from driftwise import rng
from driftwise.protocols import AdaptationContext, Choose
from driftwise.types import Verdict

_ROUNDS = 10
"""of k-means: enough for centres that only have to be near something"""


def diverse(verdict: Verdict, context: AdaptationContext) -> Choose:
    """One sample from the middle of each of as many clusters, by the learner's features."""

    def choose(images: Tensor, count: int) -> Tensor:
        return _medoids(context.encode(images).features, count, seed=verdict.task)

    return choose


def uncertain(verdict: Verdict, context: AdaptationContext) -> Choose:
    """The samples whose class the learner is least sure of, by entropy."""
    del verdict

    def choose(images: Tensor, count: int) -> Tensor:
        log_p = context.encode(images).logits.log_softmax(dim=1)
        return (log_p.exp() * log_p).sum(dim=1).argsort(stable=True)[:count]

    return choose


def _medoids(features: Tensor, count: int, *, seed: int) -> Tensor:
    """Positions of distinct samples, (count,), each the one nearest to a k-means centre."""
    if count in (0, len(features)):
        return torch.arange(count)
    centres = features[_far_apart(features, count, seed)]
    for _ in range(_ROUNDS):
        nearest = torch.cdist(features, centres).argmin(dim=1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, features)
        sizes = torch.bincount(nearest, minlength=count)
        filled = sizes > 0
        centres = torch.where(filled[:, None], sums / sizes.clamp(min=1)[:, None], centres)
    distances = torch.cdist(centres, features)
    picked: list[int] = []
    for sample in distances:  # a sample may be the nearest to two centres
        sample[picked] = torch.inf
        picked.append(int(sample.argmin()))
    return torch.tensor(picked)


def _far_apart(features: Tensor, count: int, seed: int) -> Tensor:
    """Samples to begin with, (count,): each the one farthest from those before it."""
    picked = [int(torch.randint(len(features), (1,), generator=rng.fork(seed, "medoids")))]
    nearest = torch.full((len(features),), torch.inf)
    while len(picked) < count:
        distance = (features - features[picked[-1]]).square().sum(dim=1)
        nearest = torch.minimum(nearest, distance)
        nearest[picked] = -1  # copies of an image are as near as can be, and yet others
        picked.append(int(nearest.argmax()))
    return torch.tensor(picked)
