"""Class mix: samples grouped by predictions are compared under the same class frequencies.

Among the samples predicted to be of a class there are samples of other classes, in proportion to how
frequent those are. With other class frequencies in the reference than in the stream, a group would
differ without any drift.

Reference:
    M. Saerens, P. Latinne, C. Decaestecker. Adjusting the outputs of a classifier to new a priori
    probabilities. Neural Computation, 14(1), 2002 (the EM iteration of `shares_in_stream`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

_ROUNDS = 200
_USUAL_ROWS = 10
"""samples that the prior counts for: predictions may indicate little about a class"""

MOST_UNSEEN = 0.1
"""of a group: the largest fraction of classes without a reference sample in it"""


def shares_in_stream(
    labels: Tensor,
    groups: Tensor,
    current_groups: Tensor,
    usual: Callable[[int], float] = lambda _: 1.0,
) -> dict[int, float]:
    """The fraction of each class in the stream that best explains the current predictions, by EM.

    Args:
        labels: classes of the reference samples, (reference samples,).
        groups: their predicted classes, (reference samples,).
        current_groups: predicted classes of the current samples, (current samples,).
        usual: how often a class has come so far, the prior.
    """
    if not len(labels):
        return {}
    classes, samples = np.unique(labels.numpy(), return_inverse=True)
    everyone = torch.cat([groups, current_groups]).numpy()
    names, columns = np.unique(everyone, return_inverse=True)
    counts = np.zeros((len(classes), len(names)))
    np.add.at(counts, (samples, columns[: len(samples)]), 1)
    # As if one more sample of each class were spread over all predictions: none is impossible.
    taken_for = (counts + 1 / len(names)) / (counts.sum(axis=1, keepdims=True) + 1)
    predicted = np.bincount(columns[len(samples) :], minlength=len(names))
    # One more, lest a class that has never come could never come again.
    before = np.array([usual(label) + 1 for label in classes.tolist()])
    shares = before = before / before.sum()
    for _ in range(_ROUNDS):
        joint = shares[:, None] * taken_for
        samples_of = (joint / joint.sum(axis=0) * predicted).sum(axis=1)
        shares = (samples_of + _USUAL_ROWS * before) / (len(current_groups) + _USUAL_ROWS)
    return dict(zip(classes.tolist(), shares.tolist(), strict=True))


def in_that_mix(labels: Tensor, groups: Tensor, shares: dict[int, float]) -> Tensor:
    """The largest subset of reference samples whose groups have the stream's class mix, a mask.

    Of a class that is too frequent in its group, samples are left out at regular distances. A group
    is left out altogether if frequent classes without a reference sample in it probably belong there.
    The mask is bool (samples,).
    """
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    names = np.unique(groups.numpy()).tolist()
    weights = {
        label: shares[label] / count
        for label, count in zip(classes.tolist(), counts.tolist(), strict=True)
    }
    stays = torch.zeros(len(labels), dtype=torch.bool)
    for group in names:
        there = groups == group
        present, numbers = np.unique(labels[there].numpy(), return_counts=True)
        seen = sum(weights[c] * n for c, n in zip(present.tolist(), numbers.tolist(), strict=True))
        unseen = sum(weights[c] for c in set(weights).difference(present.tolist())) / len(names)
        if unseen > MOST_UNSEEN * (seen + unseen):
            continue
        most = max(weights[label] for label in present.tolist())
        for label in present.tolist():
            samples = (there & (labels == label)).nonzero().squeeze(1)
            share = weights[label] / most if most else 1.0
            kept = (torch.arange(len(samples) + 1) * share + 0.5).floor()
            stays[samples[kept[1:] > kept[:-1]]] = True
    return stays


def other_mix(
    counts: Mapping[int, float],
    usual: Mapping[int, float],
    *,
    known_from: float = float("inf"),
    level: float = 0.005,
) -> dict[str, float]:
    """The evidence that classes come in other proportions than usual; empty: there is none.

    Args:
        counts: current samples by class.
        usual: how often each class comes as a rule, in any unit.
        known_from: samples from which that is known; infinite: it is known exactly.
        level: of the test.
    """
    weights = torch.tensor([float(usual[c]) for c in usual], dtype=torch.float64)
    came = torch.tensor([float(counts.get(c, 0)) for c in usual], dtype=torch.float64)
    if not len(weights) or float(weights.sum()) <= 0 or not known_from:
        return {}
    share = weights / weights.sum()
    return other_mix_of_counts(came, share, level, multinomial(share) / known_from)


def other_mix_of_counts(
    counts: Tensor, usual: Tensor, level: float, error: Tensor
) -> dict[str, float]:
    """The evidence that classes come in other proportions; empty: there is none.

    The statistic is the squared deviation from what is expected, in units of its covariance: that of
    the counts, and that with which the usual proportions themselves are known. Without the latter it
    is Pearson's.

    Args:
        counts: current samples by class, (classes,).
        usual: the proportions as a rule, (classes,).
        level: of the test.
        error: covariance with which these are known, (classes, classes).
    """
    total = counts.sum()
    expected = total * usual
    likely = expected >= 5
    if int(likely.sum()) < 2:
        return {}
    covariance = (total * multinomial(usual) + total.square() * error)[likely][:, likely]
    values, directions = torch.linalg.eigh(covariance)
    # Of proportions that add up to 1, one direction does not vary.
    varies = values > 1e-9 * values.max()
    along = ((counts - expected)[likely] @ directions)[varies]
    statistic = float((along.square() / values[varies]).sum())
    p_value = float(chi2.sf(statistic, int(varies.sum())))
    if p_value > level:
        return {}
    ratios = (counts / expected.clamp(min=1e-9))[likely]
    return {"p_value": p_value, "largest_ratio": float(ratios.max())}


def multinomial(share: Tensor) -> Tensor:
    """The covariance of one draw with these probabilities, (..., classes) -> (..., classes, classes)."""
    return torch.diag_embed(share) - share[..., :, None] * share[..., None, :]
