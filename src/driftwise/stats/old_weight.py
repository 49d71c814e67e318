"""How much old samples of a class still count beside fresh ones: the fresh labels decide.

A class mean is w times the old mean and 1 - w times that of the fresh samples. Each w of a grid is
judged by the labels of the fresh samples: their log loss under a linear discriminant, each sample left
out of its class's mean. Weights are then averaged, in proportion to the likelihood that they give the
fresh labels, so that a few labels do not decide more than they can. w = 0 drops the old samples; the
largest w counts them all.

What all classes share (a change of light) moves no boundary: old means then do as well as new ones,
and the labels show it, where a distance between old and new samples would call for replacing them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from driftwise.stats.class_means import ClassMeans, Whitening

__all__ = ["OldWeight", "old_weights"]

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
"""of the old mean, each held to what all old samples weigh"""
TEMPERATURES = tuple(2.0**power for power in range(9))
"""log losses are compared at the best of these: how sure a discriminant is says nothing here"""


@dataclass(frozen=True, kw_only=True)
class OldWeight:
    """What fresh labels say of the old samples of all classes that they belong to."""

    by_label: Mapping[int, float]
    """of each class, the samples that the old ones count as: 0, to as many as they were"""
    gain: float
    """what the weights take off the error on fresh samples, 0 to 1, against old means alone; may be
    negative"""


def old_weights(features: Tensor, labels: Tensor, known: ClassMeans) -> OldWeight:
    """The weights of old samples beside fresh ones.

    Args:
        features: of fresh samples, (samples, d), at least one.
        labels: theirs, (samples,); a class that is not known has no old samples.
        known: classes as they were.
    """
    fresh = Fresh.of(features, labels, known)
    counts = fresh.counts
    losses, errors, tried = [], [], []
    for weight in WEIGHTS:
        most = counts * (weight / (1 - weight) if weight < 1 else math.inf)
        tried.append(torch.minimum(fresh.old_counts, most))
        logits = fresh.logits(tried[-1])
        losses.append(_log_loss(logits, fresh.own))
        errors.append(float((logits.argmax(dim=1) != fresh.own).double().mean()))
    likelihood = torch.tensor(losses).neg().softmax(dim=0).double()
    averaged = sum(p * w / (w + counts) for p, w in zip(likelihood, tried, strict=True))
    assert isinstance(averaged, Tensor)
    weights = torch.minimum(fresh.old_counts, counts * averaged / (1 - averaged).clamp(min=1e-9))
    before = float((fresh.old_logits().argmax(dim=1) != fresh.own).double().mean())
    after = float((likelihood * torch.tensor(errors).double()).sum())
    by_label = dict(zip(fresh.classes, weights.tolist(), strict=True))
    return OldWeight(by_label=by_label, gain=before - after)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fresh:
    """Fresh samples of some classes beside what is known of all, in whitened space."""

    classes: list[int]
    """those with fresh samples"""
    own: Tensor
    """the place of each sample's class among them, (samples,)"""
    points: Tensor
    """whitened, (samples, d)"""
    counts: Tensor
    """fresh samples of each of these classes, (classes,)"""
    total: Tensor
    """their sums, whitened, (classes, d)"""
    old: Tensor
    """the old means of these classes, whitened, (classes, d)"""
    old_counts: Tensor
    """samples that were known of them, (classes,)"""
    rest: Tensor
    """the means of all other classes, whitened, (others, d)"""

    @staticmethod
    def of(features: Tensor, labels: Tensor, known: ClassMeans) -> Fresh:
        """From fresh samples, (samples, d) and (samples,)."""
        features = features.detach().double()
        fresh, own = torch.unique(labels, return_inverse=True)
        classes = fresh.tolist()
        counts = torch.bincount(own).double()
        sums = torch.zeros(len(classes), features.shape[1], dtype=torch.float64)
        sums.index_add_(0, own, features)
        old_counts = [known.by_label[c][0] if c in known.by_label else 0.0 for c in classes]
        whiten = Whitening.of(features - (sums / counts[:, None])[own], len(classes), known)
        points, total = whiten(features), whiten(sums)
        old = [
            whiten(known.by_label[c][1][None])[0] if c in known.by_label else total[place]
            for place, c in enumerate(classes)
        ]
        others = known.without(classes).by_label.values()
        return Fresh(
            classes=classes,
            own=own,
            points=points,
            counts=counts,
            total=total,
            old=torch.stack(old),
            old_counts=torch.tensor(old_counts, dtype=torch.float64),
            rest=torch.stack([whiten(mean[None])[0] for _, mean in others])
            if others
            else points[:0],
        )

    def old_logits(self) -> Tensor:
        """Logits of the samples by old means alone, (samples, classes)."""
        means = self.old_counts[:, None] * self.old / self.old_counts.clamp(min=1e-9)[:, None]
        return self._from_squared(torch.cdist(self.points, means).square(), self.points)

    def logits(self, old_weight: Tensor) -> Tensor:
        """Logits of the samples, (samples, classes), each left out of its own class's mean.

        The old mean of a class counts as so many samples, (classes,).
        """
        sums = old_weight[:, None] * self.old + self.total
        means = sums / (old_weight + self.counts).clamp(min=1e-9)[:, None]
        distances = torch.cdist(self.points, means).square()
        own = self.own
        left = (old_weight + self.counts - 1)[own]
        without = (sums[own] - self.points) / left.clamp(min=1e-9)[:, None]
        mine = (self.points - without).square().sum(dim=1)
        distances[torch.arange(len(own)), own] = mine.masked_fill(left < 1e-6, 1e12)
        return self._from_squared(distances, self.points)

    def logits_of_others(self, kept: Tensor, old_weight: Tensor) -> Tensor:
        """Logits of the samples that are not kept, if the kept ones alone were there."""
        counts = torch.bincount(self.own[kept], minlength=len(self.classes)).double()
        sums = old_weight[:, None] * self.old
        sums = sums.index_add(0, self.own[kept], self.points[kept])
        means = sums / (old_weight + counts).clamp(min=1e-9)[:, None]
        others = self.points[~kept]
        return self._from_squared(torch.cdist(others, means).square(), others)

    def _from_squared(self, distances: Tensor, points: Tensor) -> Tensor:
        return -0.5 * torch.cat([distances, torch.cdist(points, self.rest).square()], dim=1)


def _log_loss(logits: Tensor, labels: Tensor) -> float:
    """Summed over samples, at the best temperature."""
    return min(float(cross_entropy(logits / t, labels, reduction="sum")) for t in TEMPERATURES)
