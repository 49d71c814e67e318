"""Classes come as often as they like: samples told apart by predictions are compared in one mix.

Among samples that are taken for a class there are samples of others, more of them the more often those
come. A reference that holds classes in other shares than the stream would look like another class.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

_ROUNDS = 200
_USUAL_ROWS = 10
"""of the stream, that what is usual counts for: predictions may say next to nothing of a class"""

MOST_UNSEEN = 0.1
"""of a group, the share that classes may have of which no reference sample got into it"""


def shares_in_stream(
    labels: Tensor,
    groups: Tensor,
    current_groups: Tensor,
    usual: Callable[[int], float] = lambda _: 1.0,
) -> dict[int, float]:
    """By class, the share of the stream that makes current predictions what they are.

    `labels` and `groups` are the classes of reference samples and what they are taken for, (samples,),
    `current_groups` what current samples are; `usual` says how often a class has come so far. The
    likeliest shares are found by repeating: how much of each prediction belongs to each class, and
    so how much of the stream does.
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
    """bool (samples,): the most reference samples by which every group is mixed as the stream is.

    Of a class that comes too often for its group, samples are left out evenly, wherever they stand. A
    group that frequent classes may well get into, although no reference sample of theirs did, is left
    out as a whole: nobody knows what it should look like.
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
