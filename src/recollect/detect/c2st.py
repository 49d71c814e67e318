"""Classifier two-sample test: can current rows be told from reference rows, both unseen?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recollect.detect.evidence import (
    Evidence,
    Pair,
    batches_of_equal_sizes,
    permutation_evidence,
    random_splits,
    refuse_infinite,
)
from recollect.errors import UserError

_SCORE_STEPS = 1e12
"""to the unit of scores, which is the distance of the two labels"""


def c2st(
    pairs: Sequence[Pair],
    *,
    permutations: int = 100,
    folds: int = 10,
    ridge: float = 0.01,
    generator: torch.Generator,
) -> list[Evidence]:
    """Held-out area under the ROC curve of a linear classifier, for each pair of (rows, features).

    Ridge regression on standardised features scores each fold by the others; `ridge` is in units
    of the mean eigenvalue of their inner products. 0.5 is chance. The p-value is the rank of the
    observed split among itself and `permutations` random ones. Folds and features are the same for
    all splits, blind to which row is current: that is what makes the ranks valid.
    """
    if folds < 2 or ridge <= 0:
        raise UserError(f"expected at least 2 folds and a positive ridge; got {folds} and {ridge}")
    evidence: dict[int, Evidence] = {}
    for places, pooled, sizes in batches_of_equal_sizes(pairs, permutations):
        splits = random_splits(len(places), permutations, sizes, generator)
        # Neighbours share a fold: in random order, folds know nothing of the samples.
        order = torch.rand(pooled.shape[:2], generator=generator).argsort(dim=1)
        pooled = pooled.take_along_dim(order[:, :, None], dim=1)
        splits = splits.take_along_dim(order[:, None], dim=2)
        scores = held_out_scores(pooled, splits, folds=folds, ridge=ridge)
        statistics = areas_under_curve(scores, splits)
        evidence |= zip(places, permutation_evidence(statistics), strict=True)
    return [evidence[place] for place in range(len(pairs))]


def held_out_scores(pooled: Tensor, splits: Tensor, *, folds: int, ridge: float) -> Tensor:
    """Each row's score by the classifier fitted to the other folds, (classes, splits, rows).

    Features come as (classes, rows, features), folds being contiguous, and splits as
    (classes, splits, rows). A score is ridge regression's prediction, less the mean label that it
    was fitted to: that mean gives away the labels left out.

    With M the inverse of (inner products + penalty), projected for the intercept, the residuals of
    a fold f left out are M_ff^-1 (M y)_f. M does not depend on the labels y: one inverse serves all
    splits and folds, and more features than rows cost nothing.
    """
    rows = pooled.shape[1]
    standard = _standardised(pooled.double())
    products = standard @ standard.mT
    diagonal = products.diagonal(dim1=1, dim2=2)
    refuse_infinite(diagonal)
    penalty = ridge * diagonal.mean(dim=1, keepdim=True)
    penalty = torch.where(penalty > 0, penalty, 1.0)
    diagonal += penalty
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(products))
    inverse -= 1 / (rows * penalty[:, :, None])  # features being centred, this is the projection
    labels = splits.double()
    labels -= labels.mean(dim=2, keepdim=True)
    weights = labels @ inverse
    scores = torch.empty_like(labels)
    for fold in torch.arange(rows).tensor_split(min(folds, rows)):
        part = slice(int(fold[0]), int(fold[-1]) + 1)
        left_out = labels[:, :, part]
        residuals = torch.linalg.solve(inverse[:, part, part], weights[:, :, part], left=False)
        mean_label = -left_out.sum(dim=2, keepdim=True) / (rows - len(fold))
        scores[:, :, part] = left_out - residuals - mean_label
    return scores


def areas_under_curve(scores: Tensor, splits: Tensor) -> Tensor:
    """How often a current row scores above a reference row, ties counting half, (classes, splits).

    Scores and splits are (classes, splits, rows), with as many current rows in all splits.
    """
    # Rows that are equal must tie, whatever rounding made of their scores.
    scores = scores.mul(_SCORE_STEPS).round_()
    shape = *splits.shape[:2], -1
    current, reference = scores[splits].view(shape), scores[~splits].view(shape)
    reference = reference.sort(dim=2).values
    below = torch.searchsorted(reference, current)
    not_above = torch.searchsorted(reference, current, right=True)
    return (below + not_above).double().mean(dim=2) / (2 * reference.shape[2])


def _standardised(pooled: Tensor) -> Tensor:
    """Mean 0 and variance 1 in each feature over the rows; a constant feature becomes 0."""
    centred = pooled - pooled.mean(dim=1, keepdim=True)
    deviations = centred.square().mean(dim=1, keepdim=True).sqrt()
    is_rounding = deviations <= 1e-12 * pooled.abs().amax(dim=1, keepdim=True)
    return torch.where(is_rounding, 0.0, centred / deviations)
