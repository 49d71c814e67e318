"""Partial and gradual drift: how much of a class has moved, and which of its samples.

Current samples are taken for a mixture, (1 - s) as in the reference and s moved. Wherever moved samples
do not come, current samples are (1 - s) times as frequent as reference samples, and elsewhere more so:
1 - s is the least ratio of the two frequencies. It is looked for among the samples that look least
current to a linear classifier which has not seen them.

It is an estimate and no test: whether there is any drift at all is the detector's to say. Chance
makes small shares too large (of 50 against 100 samples of which none has moved, it finds a tenth), and
what the features cannot tell apart has not moved for them: of a faint drift, the share comes out
too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError
from driftwise.stats.c2st import held_out_scores
from driftwise.stats.permutation import Pair, batches_of_equal_sizes, observed_split

__all__ = ["Share", "estimate_shares"]

_DEVIATION = math.sqrt(math.log(2 / 0.05) / 2)
"""over the root of the samples: what an empirical distribution function strays, with 95 % at most"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Share:
    """How much of some samples has moved away from others."""

    share: float
    """0 to 1"""
    error: float
    """standard error of the share, never 0, from the number of samples alone. It is too small: of
    clear drifts, two of them hold the truth in six (small shares) to nine cases out of ten, and of
    what the features cannot tell they know nothing"""
    evidence: Tensor
    """probability of having moved, by sample, (samples,), double precision"""


def estimate_shares(pairs: Sequence[Pair], *, folds: int = 10, ridge: float = 1.0) -> list[Share]:
    """The share of each pair of features, (reference samples, d) and (current samples, d).

    Needs two samples on either side, and about five to mean anything. Equal arguments give equal
    answers. `ridge` is stronger than a test's, since the classifier is to rank single samples.
    """
    if folds < 2 or ridge <= 0:
        raise UserError(f"expected at least 2 folds and a positive ridge; got {folds} and {ridge}")
    shares: dict[int, Share] = {}
    for places, pooled, (num_reference, num_current) in batches_of_equal_sizes(pairs, 1):
        order = _spread(num_reference, num_current, folds)
        is_current = observed_split(len(places), (num_reference, num_current))
        scores = held_out_scores(
            pooled.detach(), is_current, order=order, folds=folds, ridge=ridge
        )[:, 0]
        reference, current = scores[:, :num_reference], scores[:, num_reference:]
        share, error = _mixed_in(reference, current)
        evidence = _evidence(reference, current, share)
        columns = share.tolist(), error.tolist(), evidence
        for place, moved, by_chance, by_sample in zip(places, *columns, strict=True):
            shares[place] = Share(share=moved, error=by_chance, evidence=by_sample)
    return [shares[place] for place in range(len(pairs))]


def _spread(num_reference: int, num_current: int, folds: int) -> Tensor:
    """An order of the pooled samples in which neighbours, which share a fold, are of both sides.

    It is a shuffled one, or samples that moved in a rhythm could all fall into one fold, whose
    classifier would have seen none of them; and always the same, so that nothing is left to chance.
    """
    draw = rng.fork(0, "share", num_reference, num_current)
    sides = [torch.randperm(samples, generator=draw) for samples in (num_reference, num_current)]
    return (torch.cat(sides) % folds).argsort(stable=True)


def _mixed_in(reference: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
    """Shares and their standard errors, (classes,) each, from scores (classes, samples).

    The least ratio of two counted shares is too small by chance: far down, a few samples decide it. So
    the score up to which to count is where the ratio is least at its worst, with as many more
    current samples as chance may have left out; there the ratio is read as it is.
    """
    samples = reference.shape[1], current.shape[1]
    slack = _DEVIATION * (samples[0] ** -0.5 + samples[1] ** -0.5)
    scores = reference.sort(dim=1).values
    # Up to a reference sample's score: in between, current samples are added to no effect.
    counted = torch.searchsorted(scores, scores, right=True).double()
    up_to = torch.searchsorted(current.sort(dim=1).values, scores, right=True).double()
    best = ((up_to / samples[1] + slack) / (counted / samples[0])).argmin(dim=1, keepdim=True)
    counted, up_to = counted.gather(1, best)[:, 0], up_to.gather(1, best)[:, 0]
    ratio = (up_to / samples[1]) / (counted / samples[0])
    # By Agresti: one more sample on either side of the score, or no samples at all would be certainty.
    kept, stayed = (counted + 1) / (samples[0] + 2), (up_to + 1) / (samples[1] + 2)
    relative = (1 - kept) / (kept * (samples[0] + 2)) + (1 - stayed) / (stayed * (samples[1] + 2))
    return (1 - ratio).clamp(0, 1), stayed / kept * relative.sqrt()


def _evidence(reference: Tensor, current: Tensor, share: Tensor) -> Tensor:
    """Each current sample's probability of having moved, (classes, samples).

    Scores of moved samples are taken to spread as the reference's do, around the mean that explains
    the current samples' mean: the odds grow with the score, and by as much as the classes stand apart.
    """
    least = 0.5 / current.shape[1]  # half a sample: the order of samples is never lost
    share = share.clamp(least, 1 - least)[:, None]
    centre = reference.mean(dim=1, keepdim=True)
    apart = ((current.mean(dim=1, keepdim=True) - centre) / share).clamp(min=0)
    spread = reference.var(dim=1, keepdim=True).clamp(min=1e-12)
    odds = apart * (current - centre - apart / 2) / spread
    return torch.sigmoid(share.logit() + odds)
