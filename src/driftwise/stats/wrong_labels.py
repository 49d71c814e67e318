"""Which labels are probably wrong: those of samples that lie nearer to another class.

A label is right with probability 1 - q, else that of another class. Classes are normal distributions
with one covariance, shrunk. The means of freshly labelled classes are estimated from those samples
themselves, each weighted by its probability of belonging to the class, for a few rounds. No sample has a
part in the mean that it is compared with, or a small class would never lose one. A mean of n samples
is off by (trace of the covariance) / n in squared distance, which is taken off again: a class of few
samples does not seem farther away than it is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from driftwise.stats.class_means import ClassMeans, Whitening

__all__ = ["wrong_label_odds"]

ROUNDS = 5
"""after which memberships hardly change"""


def wrong_label_odds(
    features: Tensor, labels: Tensor, known: ClassMeans, *, wrong: float = 0.2
) -> Tensor:
    """Log odds that each label is wrong, (samples,): above 0, more likely wrong than right.

    Minus infinity where there is no other class.

    Args:
        features: of samples whose labels may be wrong, (samples, d).
        labels: theirs, (samples,).
        known: classes as they were; the means of those that are not among the labels are right.
        wrong: the probability that a label is wrong.

    >>> features = torch.tensor([[0.0], [0.1], [0.2], [5.1], [5.0], [5.2], [5.3]])
    >>> odds = wrong_label_odds(features, torch.tensor([0, 0, 0, 0, 1, 1, 1]), ClassMeans())
    >>> (odds > 0).tolist()
    [False, False, False, True, False, False, False]
    """
    features = features.detach().double()
    fresh, own = torch.unique(labels, return_inverse=True)
    trusted = known.without(fresh.tolist())
    samples, classes = len(labels), len(fresh) + len(trusted.by_label)
    if classes < 2:
        return torch.full((samples,), -math.inf, dtype=torch.float64)
    rows = torch.arange(samples)
    prior = torch.full((samples, classes), math.log(wrong / (classes - 1)), dtype=torch.float64)
    prior[rows, own] = math.log(1 - wrong)
    member = torch.nn.functional.one_hot(own, classes).double()
    for _ in range(ROUNDS):
        distances, trace = _distances(features, member, len(fresh), trusted)
        # The covariance may fit badly: how far samples are from their own class tells.
        misfit = max(1.0, float(distances[rows, own].nan_to_num(posinf=0).median()) / trace)
        scores = prior - 0.5 * distances / misfit
        member = scores.softmax(dim=1).nan_to_num()
    mine = scores[rows, own].clone()
    scores[rows, own] = -math.inf
    return scores.logsumexp(dim=1) - mine


def _distances(
    features: Tensor, member: Tensor, num_fresh: int, trusted: ClassMeans
) -> tuple[Tensor, float]:
    """Squared distances to the means of all classes, (samples, classes), in units of the covariance.

    Infinite where no other sample belongs to a class. Second: the covariance's trace in these units.
    """
    weights = member[:, :num_fresh]
    counts = weights.sum(dim=0)
    means = (weights.T @ features) / counts.clamp(min=1e-9)[:, None]
    likely, place = weights.max(dim=1)
    whiten = Whitening.of((features - means[place])[likely > 0.5], num_fresh, trusted)
    points, centres = whiten(features), whiten(means)
    columns = []
    for column in range(num_fresh):
        weight = weights[:, column]
        left = (counts[column] - weight).clamp(min=1e-9)
        without = (counts[column] * centres[column] - weight[:, None] * points) / left[:, None]
        squared = (points - without).square().sum(dim=1) - whiten.trace / left
        columns.append(squared.masked_fill(left < 0.5, math.inf))
    for count, mean in trusted.by_label.values():
        squared = (points - whiten(mean[None])).square().sum(dim=1)
        columns.append(squared - whiten.trace / max(count, 1.0))
    return torch.stack(columns, dim=1), whiten.trace
