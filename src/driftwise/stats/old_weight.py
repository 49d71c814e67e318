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
    features = features.detach().double()
    fresh, own = torch.unique(labels, return_inverse=True)
    counts = torch.bincount(own).double()
    sums = torch.zeros(len(fresh), features.shape[1], dtype=torch.float64)
    sums.index_add_(0, own, features)
    old_counts = torch.tensor(
        [known.by_label[label][0] if label in known.by_label else 0.0 for label in fresh.tolist()]
    ).double()
    means = sums / counts[:, None]
    whiten = Whitening.of(features - means[own], len(fresh), known)
    points, total = whiten(features), whiten(sums)
    old = torch.stack(
        [
            whiten(known.by_label[label][1][None])[0] if label in known.by_label else total[place]
            for place, label in enumerate(fresh.tolist())
        ]
    )
    others = known.without(fresh.tolist()).by_label.values()
    rest = torch.stack([whiten(mean[None])[0] for _, mean in others]) if others else points[:0]
    losses, errors, tried = [], [], []
    for weight in WEIGHTS:
        most = counts * (weight / (1 - weight) if weight < 1 else math.inf)
        tried.append(torch.minimum(old_counts, most))
        logits = _left_out(points, own, old, total, rest, counts, tried[-1])
        losses.append(_log_loss(logits, own))
        errors.append(float((logits.argmax(dim=1) != own).double().mean()))
    likelihood = torch.tensor(losses).neg().softmax(dim=0).double()
    averaged = sum(p * w / (w + counts) for p, w in zip(likelihood, tried, strict=True))
    assert isinstance(averaged, Tensor)
    weights = torch.minimum(old_counts, counts * averaged / (1 - averaged).clamp(min=1e-9))
    logits = _left_out(points, own, old, total, rest, 0 * counts, old_counts)
    before = float((logits.argmax(dim=1) != own).double().mean())
    after = float((likelihood * torch.tensor(errors).double()).sum())
    by_label = dict(zip(fresh.tolist(), weights.tolist(), strict=True))
    return OldWeight(by_label=by_label, gain=before - after)


def _left_out(
    points: Tensor, own: Tensor, old: Tensor, total: Tensor, rest: Tensor, counts: Tensor, w: Tensor
) -> Tensor:
    """Logits of whitened samples, (samples, classes), each left out of its own class's mean.

    Fresh classes have `w` old samples at `old` and `counts` fresh ones that add up to `total`; no fresh
    ones: the old mean. Other classes are at `rest`.
    """
    uses_fresh = bool(counts.any())
    sums = w[:, None] * old + (total if uses_fresh else 0)
    distances = torch.cdist(points, sums / (w + counts).clamp(min=1e-9)[:, None]).square()
    if uses_fresh:
        left = (w + counts - 1)[own]
        mine = (points - (sums[own] - points) / left.clamp(min=1e-9)[:, None]).square().sum(dim=1)
        distances[torch.arange(len(own)), own] = mine.masked_fill(left < 1e-6, 1e12)
    return -0.5 * torch.cat([distances, torch.cdist(points, rest).square()], dim=1)


def _log_loss(logits: Tensor, labels: Tensor) -> float:
    """Summed over samples, at the best temperature."""
    return min(float(cross_entropy(logits / t, labels, reduction="sum")) for t in TEMPERATURES)
