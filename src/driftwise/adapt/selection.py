"""Which incoming samples to have labelled (active learning)."""

from __future__ import annotations

import torch
from torch import Tensor

from driftwise import rng
from driftwise.protocols import AdaptationContext, Choose
from driftwise.types import Verdict

_ROUNDS = 10
"""of k-means: enough, since the centres only choose samples"""


def diverse(verdict: Verdict, context: AdaptationContext) -> Choose:
    """The medoid of each of `count` k-means clusters of the learner's features.

    >>> import driftwise as dw
    >>> adaptation = dw.adapt.Realign(choice=dw.adapt.diverse)
    """

    def choose(images: Tensor, count: int) -> Tensor:
        return _medoids(context.encode(images).features, count, seed=verdict.task)

    return choose


def uncertain(verdict: Verdict, context: AdaptationContext) -> Choose:
    """The samples with the highest predictive entropy.

    >>> import driftwise as dw
    >>> adaptation = dw.adapt.Realign(choice=dw.adapt.uncertain)
    """
    del verdict

    def choose(images: Tensor, count: int) -> Tensor:
        log_p = context.encode(images).logits.log_softmax(dim=1)
        return (log_p.exp() * log_p).sum(dim=1).argsort(stable=True)[:count]

    return choose


def _medoids(features: Tensor, count: int, *, seed: int) -> Tensor:
    """Positions of distinct samples, (count,), each the nearest one to a k-means centre.

    features are (samples, d).
    """
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
    for of_centre in distances:  # a sample may be the nearest one to two centres
        of_centre[picked] = torch.inf
        picked.append(int(of_centre.argmin()))
    return torch.tensor(picked)


def _far_apart(features: Tensor, count: int, seed: int) -> Tensor:
    """Positions to start from, (count,): each the farthest sample from those before it."""
    picked = [int(torch.randint(len(features), (1,), generator=rng.fork(seed, "medoids")))]
    nearest = torch.full((len(features),), torch.inf)
    while len(picked) < count:
        distance = (features - features[picked[-1]]).square().sum(dim=1)
        nearest = torch.minimum(nearest, distance)
        nearest[picked] = -1  # copies of one sample have distance 0 and may all be needed
        picked.append(int(nearest.argmax()))
    return torch.tensor(picked)
