"""Partial and gradual drift: the fraction of a class that has drifted, and which of its samples.

The current distribution is modelled as the mixture Q = (1 - s) P + s R of the reference P and a
drifted part R. Where R has no mass, dQ / dP = 1 - s, and elsewhere it is larger: 1 - s is the infimum
of the density ratio. It is estimated from the scores of a linear classifier, each sample scored by a
classifier that has not seen it:

    1 - s = min over t of  Q(score <= t) / P(score <= t)

It is an estimate and no test: whether a class has drifted at all is the detector's decision. Small
fractions come out too large (for 50 against 100 samples without any drift, about 0.1), and those of
faint drifts too small, since features that cannot separate the two show no drift.

Reference:
    G. Blanchard, G. Lee, C. Scott. Semi-supervised novelty detection. JMLR 11, 2010 (the mixture
    proportion as an infimum of ratios).
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
"""over sqrt(n): the DKW bound on the error of an empirical distribution function, at 95 %"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Share:
    """The fraction of current samples that has drifted away from reference samples."""

    share: float
    """0 to 1"""
    error: float
    """standard error of the fraction, never 0, from the number of samples alone. It is too small:
    within two of it lies the truth in 60 % (small fractions) to 90 % of clear drifts, and it does not
    cover drift that the features do not show"""
    evidence: Tensor
    """probability of having drifted, by sample, (samples,), double precision"""


def estimate_shares(pairs: Sequence[Pair], *, folds: int = 10, ridge: float = 1.0) -> list[Share]:
    """The fraction drifted of each pair of features, (reference samples, d) and (current samples, d).

    Needs at least two samples on either side, and about five for a useful estimate. Deterministic.

    Args:
        pairs: reference and current features of each class.
        folds: of the classifier that scores samples it was not fitted to.
        ridge: penalty of the classifier; larger than that of a test, since it ranks single samples.
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
        for place, fraction, deviation, by_sample in zip(places, *columns, strict=True):
            shares[place] = Share(share=fraction, error=deviation, evidence=by_sample)
    return [shares[place] for place in range(len(pairs))]


def _spread(num_reference: int, num_current: int, folds: int) -> Tensor:
    """An order of the pooled samples, (samples,), in which each fold holds samples of both sides.

    It is shuffled: drifted samples at regular distances could else all fall into one fold. And it is
    always the same, so that the estimate is deterministic.
    """
    draw = rng.fork(0, "share", num_reference, num_current)
    sides = [torch.randperm(samples, generator=draw) for samples in (num_reference, num_current)]
    return (torch.cat(sides) % folds).argsort(stable=True)


def _mixed_in(reference: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
    """Fractions drifted and their standard errors, (classes,) each, from scores (classes, samples).

    The minimum of the empirical ratio is biased downwards: at low scores a few samples decide it.
    The threshold is therefore where an upper confidence bound of the ratio is least; the ratio itself
    is then taken at that threshold.
    """
    samples = reference.shape[1], current.shape[1]
    slack = _DEVIATION * (samples[0] ** -0.5 + samples[1] ** -0.5)
    scores = reference.sort(dim=1).values
    # Thresholds at reference scores suffice: between them the ratio only grows.
    counted = torch.searchsorted(scores, scores, right=True).double()
    up_to = torch.searchsorted(current.sort(dim=1).values, scores, right=True).double()
    best = ((up_to / samples[1] + slack) / (counted / samples[0])).argmin(dim=1, keepdim=True)
    counted, up_to = counted.gather(1, best)[:, 0], up_to.gather(1, best)[:, 0]
    ratio = (up_to / samples[1]) / (counted / samples[0])
    # Agresti and Coull: one more sample on either side, or a count of 0 would have no error.
    kept, stayed = (counted + 1) / (samples[0] + 2), (up_to + 1) / (samples[1] + 2)
    relative = (1 - kept) / (kept * (samples[0] + 2)) + (1 - stayed) / (stayed * (samples[1] + 2))
    return (1 - ratio).clamp(0, 1), stayed / kept * relative.sqrt()


def _evidence(reference: Tensor, current: Tensor, share: Tensor) -> Tensor:
    """Each current sample's probability of having drifted, (classes, samples).

    Scores of drifted samples are modelled as normal with the reference's variance, around the mean
    that explains the mean of the current samples.
    """
    least = 0.5 / current.shape[1]  # half a sample: never 0 or 1, so that samples keep their order
    share = share.clamp(least, 1 - least)[:, None]
    centre = reference.mean(dim=1, keepdim=True)
    apart = ((current.mean(dim=1, keepdim=True) - centre) / share).clamp(min=0)
    spread = reference.var(dim=1, keepdim=True).clamp(min=1e-12)
    odds = apart * (current - centre - apart / 2) / spread
    return torch.sigmoid(share.logit() + odds)
