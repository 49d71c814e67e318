"""Classifier two-sample test (C2ST): can a classifier separate current from reference samples?

Reference:
    D. Lopez-Paz, M. Oquab. Revisiting classifier two-sample tests. ICLR, 2017.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.permutation import (
    Evidence,
    Pair,
    batches_of_equal_sizes,
    by_blocks,
    permutation_evidence,
    random_splits,
    refuse_infinite,
)

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
    """Held-out area under the ROC curve of a linear classifier, for each pair of (samples, features).

    Ridge regression on standardised features scores each fold by the others; `ridge` is in units
    of the mean eigenvalue of their inner products. 0.5 is chance. The p-value is the rank of the
    observed split among itself and `permutations` random ones. Folds and features are the same for
    all splits, blind to which sample is current: that is what makes the ranks valid.
    """
    if folds < 2 or ridge <= 0:
        raise UserError(f"expected at least 2 folds and a positive ridge; got {folds} and {ridge}")
    evidence: dict[int, Evidence] = {}
    for places, pooled, sizes in batches_of_equal_sizes(pairs, permutations):
        splits = random_splits(len(places), permutations, sizes, generator)
        statistics = held_out_areas(pooled, splits, folds=folds, ridge=ridge, generator=generator)
        evidence |= zip(places, permutation_evidence(statistics), strict=True)
    return [evidence[place] for place in range(len(pairs))]


def held_out_areas(
    pooled: Tensor, splits: Tensor, *, folds: int, ridge: float, generator: torch.Generator
) -> Tensor:
    """Area under the curve of `held_out_scores` for every split, (classes, splits).

    In random order, folds know nothing of the samples.
    """
    order = torch.rand(pooled.shape[:2], generator=generator).argsort(dim=1)
    # An area does not ask which sample is which: nothing needs to be put back in order.
    inverse = _projected_inverse(pooled.take_along_dim(order[:, :, None], dim=1), ridge)

    def of_block(block: Tensor) -> Tensor:
        block = block.take_along_dim(order[:, None], dim=2)
        return areas_under_curve(_left_out_scores(inverse, block, folds), block)

    return by_blocks(of_block, splits)


def held_out_scores(
    pooled: Tensor, splits: Tensor, *, folds: int, ridge: float, order: Tensor | None = None
) -> Tensor:
    """Each sample's score by the classifier fitted to the other folds, (classes, splits, samples).

    Features come as (classes, samples, features) and splits as (classes, splits, samples). Neighbours in
    `order`, (samples,), share a fold; None: neighbours as they come. A score is ridge regression's
    prediction, less the mean label that it was fitted to: that mean gives away the labels left out.
    """
    if order is None:
        return _left_out_scores(_projected_inverse(pooled, ridge), splits, folds)
    inverse = _projected_inverse(pooled[:, order], ridge)
    return _left_out_scores(inverse, splits[:, :, order], folds)[:, :, order.argsort()]


def _projected_inverse(pooled: Tensor, ridge: float) -> Tensor:
    """Of (inner products + penalty), projected for the intercept, (classes, samples, samples).

    With M that inverse, the residuals of a fold f left out are M_ff^-1 (M y)_f. M does not depend
    on the labels y: one inverse serves all splits and folds, and more features than samples cost
    nothing.
    """
    samples = pooled.shape[1]
    standard = _standardised(pooled.double())
    products = standard @ standard.mT
    diagonal = products.diagonal(dim1=1, dim2=2)
    refuse_infinite(diagonal)
    penalty = ridge * diagonal.mean(dim=1, keepdim=True)
    penalty = torch.where(penalty > 0, penalty, 1.0)
    diagonal += penalty
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(products))
    inverse -= 1 / (samples * penalty[:, :, None])  # features being centred, this is the projection
    return inverse


def _left_out_scores(inverse: Tensor, splits: Tensor, folds: int) -> Tensor:
    """(classes, splits, samples), folds being contiguous."""
    samples = splits.shape[2]
    labels = splits.double()
    labels -= labels.mean(dim=2, keepdim=True)
    weights = labels @ inverse
    scores = torch.empty_like(labels)
    for fold in torch.arange(samples).tensor_split(min(folds, samples)):
        part = slice(int(fold[0]), int(fold[-1]) + 1)
        left_out = labels[:, :, part]
        residuals = torch.linalg.solve(inverse[:, part, part], weights[:, :, part], left=False)
        mean_label = -left_out.sum(dim=2, keepdim=True) / (samples - len(fold))
        scores[:, :, part] = left_out - residuals - mean_label
    # Samples that are equal must tie, whatever rounding made of their scores.
    return scores.mul_(_SCORE_STEPS).round_().div_(_SCORE_STEPS)


def areas_under_curve(scores: Tensor, splits: Tensor) -> Tensor:
    """How often a current sample scores above a reference sample, ties counting half, (classes, splits).

    Scores and splits are (classes, splits, samples), with as many current samples in all splits.
    """
    shape = *splits.shape[:2], -1
    current, reference = scores[splits].view(shape), scores[~splits].view(shape)
    reference = reference.sort(dim=2).values
    below = torch.searchsorted(reference, current)
    not_above = torch.searchsorted(reference, current, right=True)
    return (below + not_above).double().mean(dim=2) / (2 * reference.shape[2])


def _standardised(pooled: Tensor) -> Tensor:
    """Mean 0 and variance 1 in each feature over the samples; a constant feature becomes 0."""
    centred = pooled - pooled.mean(dim=1, keepdim=True)
    deviations = centred.square().mean(dim=1, keepdim=True).sqrt()
    is_rounding = deviations <= 1e-12 * pooled.abs().amax(dim=1, keepdim=True)
    return torch.where(is_rounding, 0.0, centred / deviations)
