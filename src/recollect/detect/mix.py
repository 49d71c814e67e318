"""Classes come as often as they like: rows told apart by predictions are compared in one mix.

Among rows that are taken for a class there are rows of others, more of them the more often those
come. A reference that holds classes in other shares than the stream would look like another class.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_ROUNDS = 200


def shares_in_stream(labels: Tensor, groups: Tensor, current_groups: Tensor) -> dict[int, float]:
    """By class, the share of the stream that makes current predictions what they are.

    `labels` and `groups` are the classes of reference rows and what they are taken for, (rows,),
    `current_groups` what current rows are. The likeliest shares are found by repeating: how much of
    each prediction belongs to each class, and so how much of the stream does.
    """
    if not len(labels):
        return {}
    classes, rows = np.unique(labels.numpy(), return_inverse=True)
    everyone = torch.cat([groups, current_groups]).numpy()
    names, columns = np.unique(everyone, return_inverse=True)
    counts = np.zeros((len(classes), len(names)))
    np.add.at(counts, (rows, columns[: len(rows)]), 1)
    # As if one more row of each class were spread over all predictions: none is impossible.
    taken_for = (counts + 1 / len(names)) / (counts.sum(axis=1, keepdims=True) + 1)
    predicted = np.bincount(columns[len(rows) :], minlength=len(names))
    predicted = predicted / max(1, predicted.sum())
    shares = np.full(len(classes), 1 / len(classes))
    for _ in range(_ROUNDS if len(current_groups) else 0):
        joint = shares[:, None] * taken_for
        shares = (joint / joint.sum(axis=0) * predicted).sum(axis=1)
    return dict(zip(classes.tolist(), shares.tolist(), strict=True))


def in_that_mix(labels: Tensor, groups: Tensor, shares: dict[int, float]) -> Tensor:
    """bool (rows,): the most reference rows by which every group is mixed as the stream is.

    Of a class that comes too often for its group, rows are left out evenly, wherever they stand.
    """
    classes, counts = np.unique(labels.numpy(), return_counts=True)
    weights = {
        label: shares[label] / count
        for label, count in zip(classes.tolist(), counts.tolist(), strict=True)
    }
    stays = torch.zeros(len(labels), dtype=torch.bool)
    for group in np.unique(groups.numpy()).tolist():
        there = groups == group
        present = np.unique(labels[there].numpy()).tolist()
        most = max(weights[label] for label in present)
        for label in present:
            rows = (there & (labels == label)).nonzero().squeeze(1)
            share = weights[label] / most if most else 1.0
            kept = (torch.arange(len(rows) + 1) * share + 0.5).floor()
            stays[rows[kept[1:] > kept[:-1]]] = True
    return stays
