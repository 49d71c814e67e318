"""What more labels of a class would bring: a learning curve of the fresh samples themselves.

The error of a class whose mean comes from n fresh samples beside its old ones falls as
e + a / n. Means of all fresh samples, each sample left out of its own, and means of random halves of
them are two points of that curve. Few samples give a noisy slope a, so that the slopes of classes are
drawn towards their mean, as far as they differ by chance alone (empirical Bayes): where nothing
tells classes apart, labels are spread evenly.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from driftwise import rng
from driftwise.stats.class_means import ClassMeans
from driftwise.stats.old_weight import TEMPERATURES, Fresh, old_weights

__all__ = ["label_slopes", "labels_by_gain"]

FEWEST = 4
"""fresh samples of a class below which its curve is not estimated"""
HALVES = 8
"""random halves that are averaged"""


def label_slopes(
    features: Tensor, labels: Tensor, known: ClassMeans, *, seed: int = 0
) -> dict[int, float]:
    """By class, the slope a of its error e + a / n: with m labels more, a / n - a / (n + m) is gained.

    0 where labels bring nothing, or nothing can be estimated.

    Args:
        features: of fresh samples, (samples, d).
        labels: theirs, (samples,).
        known: classes as they were.
        seed: of the halves.
    """
    if not len(labels):
        return {}
    fresh = Fresh.of(features, labels, known)
    weights = old_weights(features, labels, known).by_label
    weight = torch.tensor([weights[label] for label in fresh.classes], dtype=torch.float64)
    logits = fresh.logits(weight)
    # Probabilities at one temperature: errors of single samples are too coarse to be compared.
    best = min(TEMPERATURES, key=lambda t: float(cross_entropy(logits / t, fresh.own)))
    rows = torch.arange(len(labels))
    right = (logits / best).softmax(dim=1)[rows, fresh.own]
    with_half, times = torch.zeros_like(right), torch.zeros_like(right)
    draw = rng.fork(seed, "halves of fresh samples")
    for _ in range(HALVES):
        kept = _half(fresh.own, draw)
        others = (~kept).nonzero().flatten()
        found = (fresh.logits_of_others(kept, weight) / best).softmax(dim=1)
        with_half[others] += found[torch.arange(len(others)), fresh.own[others]]
        times[others] += 1
    lost = right - with_half / times.clamp(min=1)
    slopes, errors = [], []
    for place, count in enumerate(fresh.counts.tolist()):
        mine = lost[(fresh.own == place) & (times > 0)]
        if count < FEWEST or len(mine) < 2:
            slopes.append(float("nan"))
            errors.append(float("nan"))
            continue
        unit = 1 / (count // 2) - 1 / (count - 1)
        slopes.append(float(mine.mean()) / unit)
        errors.append(float(mine.var()) / len(mine) / unit**2)
    shrunk = _drawn_together(torch.tensor(slopes), torch.tensor(errors))
    return dict(zip(fresh.classes, shrunk.clamp(min=0).tolist(), strict=True))


def labels_by_gain(
    slopes: Mapping[int, float], counts: Mapping[int, int], total: int, *, most: Mapping[int, int]
) -> dict[int, int]:
    """Labels to ask for, one after the other where the next one gains most; none where none does.

    Args:
        slopes: of each class.
        counts: fresh samples that it has.
        total: labels to spend at most.
        most: fresh samples that it may come to have.

    >>> labels_by_gain({0: 1.0, 1: 1.0, 2: 0.0}, {0: 5, 1: 5, 2: 5}, 6, most={0: 9, 1: 9, 2: 9})
    {0: 3, 1: 3, 2: 0}
    >>> labels_by_gain({0: 4.0, 1: 1.0}, {0: 5, 1: 5}, 6, most={0: 20, 1: 20})
    {0: 6, 1: 0}
    """
    more = dict.fromkeys(slopes, 0)
    for _ in range(total):
        gains = {}
        for label, slope in slopes.items():
            n = counts[label] + more[label]
            if slope > 0 and n < most[label]:
                gains[label] = slope / (n * (n + 1))
        if not gains:
            break
        more[max(gains, key=gains.__getitem__)] += 1
    return more


def _half(own: Tensor, draw: torch.Generator) -> Tensor:
    """About half of the samples of each class, bool (samples,); of a single one, this one."""
    kept = torch.zeros(len(own), dtype=torch.bool)
    order = torch.randperm(len(own), generator=draw)
    for place in torch.unique(own).tolist():
        mine = order[own[order] == place]
        kept[mine[: max(1, len(mine) // 2)]] = True
    return kept


def _drawn_together(slopes: Tensor, errors: Tensor) -> Tensor:
    """Slopes (classes,) nearer to their mean, which unknown ones get: 0 if none is known."""
    known = ~slopes.isnan()
    if not known.any():
        return torch.zeros_like(slopes)
    mean = slopes[known].mean()
    apart = 0.0
    if int(known.sum()) > 2:
        apart = max(0.0, float(slopes[known].var() - errors[known].mean()))
    share = apart / (apart + errors).clamp(min=1e-12)
    return torch.where(known, mean + share * (slopes - mean), mean)
