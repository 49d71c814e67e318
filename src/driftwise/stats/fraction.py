"""Partial and gradual drift: how much of a class has moved, and which of its rows.

Current rows are taken for a mixture, (1 - s) as in the reference and s moved. Wherever moved rows
do not come, current rows are (1 - s) times as frequent as reference rows, and elsewhere more so:
1 - s is the least ratio of the two frequencies. It is looked for among the rows that look least
current to a linear classifier which has not seen them.

It is an estimate and no test: whether there is any drift at all is the detector's to say. Chance
makes small shares too large (of 50 against 100 rows of which none has moved, it finds a tenth), and
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
"""over the root of the rows: what an empirical distribution function strays, with 95 % at most"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Share:
    """How much of some rows has moved away from others."""

    share: float
    """0 to 1"""
    error: float
    """standard error of the share, never 0, from the number of rows alone. It is too small: of
    clear drifts, two of them hold the truth in six (small shares) to nine cases out of ten, and of
    what the features cannot tell they know nothing"""
    evidence: Tensor
    """probability of having moved, by row, (rows,), double precision"""


def estimate_shares(pairs: Sequence[Pair], *, folds: int = 10, ridge: float = 1.0) -> list[Share]:
    """The share of each pair of features, (reference rows, d) and (current rows, d).

    Needs two rows on either side, and about five to mean anything. Equal arguments give equal
    answers. `ridge` is stronger than a test's, since the classifier is to rank single rows.
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
        for place, moved, by_chance, by_row in zip(places, *columns, strict=True):
            shares[place] = Share(share=moved, error=by_chance, evidence=by_row)
    return [shares[place] for place in range(len(pairs))]


def _spread(num_reference: int, num_current: int, folds: int) -> Tensor:
    """An order of the pooled rows in which neighbours, which share a fold, are of both sides.

    It is a shuffled one, or rows that moved in a rhythm could all fall into one fold, whose
    classifier would have seen none of them; and always the same, so that nothing is left to chance.
    """
    draw = rng.fork(0, "share", num_reference, num_current)
    sides = [torch.randperm(rows, generator=draw) for rows in (num_reference, num_current)]
    return (torch.cat(sides) % folds).argsort(stable=True)


def _mixed_in(reference: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
    """Shares and their standard errors, (classes,) each, from scores (classes, rows).

    The least ratio of two counted shares is too small by chance: far down, a few rows decide it. So
    the score up to which to count is where the ratio is least at its worst, with as many more
    current rows as chance may have left out; there the ratio is read as it is.
    """
    rows = reference.shape[1], current.shape[1]
    slack = _DEVIATION * (rows[0] ** -0.5 + rows[1] ** -0.5)
    scores = reference.sort(dim=1).values
    # Up to a reference row's score: in between, current rows are added to no effect.
    counted = torch.searchsorted(scores, scores, right=True).double()
    up_to = torch.searchsorted(current.sort(dim=1).values, scores, right=True).double()
    best = ((up_to / rows[1] + slack) / (counted / rows[0])).argmin(dim=1, keepdim=True)
    counted, up_to = counted.gather(1, best)[:, 0], up_to.gather(1, best)[:, 0]
    ratio = (up_to / rows[1]) / (counted / rows[0])
    # By Agresti: one more row on either side of the score, or no rows at all would be certainty.
    kept, stayed = (counted + 1) / (rows[0] + 2), (up_to + 1) / (rows[1] + 2)
    relative = (1 - kept) / (kept * (rows[0] + 2)) + (1 - stayed) / (stayed * (rows[1] + 2))
    return (1 - ratio).clamp(0, 1), stayed / kept * relative.sqrt()


def _evidence(reference: Tensor, current: Tensor, share: Tensor) -> Tensor:
    """Each current row's probability of having moved, (classes, rows).

    Scores of moved rows are taken to spread as the reference's do, around the mean that explains
    the current rows' mean: the odds grow with the score, and by as much as the classes stand apart.
    """
    least = 0.5 / current.shape[1]  # half a row: the order of rows is never lost
    share = share.clamp(least, 1 - least)[:, None]
    centre = reference.mean(dim=1, keepdim=True)
    apart = ((current.mean(dim=1, keepdim=True) - centre) / share).clamp(min=0)
    spread = reference.var(dim=1, keepdim=True).clamp(min=1e-12)
    odds = apart * (current - centre - apart / 2) / spread
    return torch.sigmoid(share.logit() + odds)
