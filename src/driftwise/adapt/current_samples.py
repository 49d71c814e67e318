"""How a class looks now, as far as the rows that are watched show it."""

from __future__ import annotations

import torch

from driftwise.protocols import Workbench
from driftwise.types import Rows


def current_rows(label: int, bench: Workbench) -> Rows:
    """Watched rows of a class: by their labels, or by what the learner takes them for."""
    watched = bench.watched()
    if not len(watched):
        return watched
    if bool((watched.labels >= 0).any()):
        return watched.of_class(label)
    return watched[bench.encode(watched.images).logits.argmax(dim=1) == label]


def has_labels(rows: Rows) -> bool:
    """Whether labels of these rows have been paid for."""
    return bool(torch.all(rows.labels >= 0)) and len(rows) > 0


def a_few_of_each(rows: Rows, most: int = 100) -> Rows:
    """The first of each class: enough to see how it fares, at a fraction of the forwards.

    >>> import torch
    >>> labels = torch.tensor([1, 1, 0, 1])
    >>> rows = Rows(images=torch.zeros(4, 2), labels=labels, ids=torch.arange(4), concepts=labels)
    >>> a_few_of_each(rows, 2).ids.tolist()
    [0, 1, 2]
    """
    present = sorted(set(rows.labels.tolist()))
    of_each = [(rows.labels == label).nonzero().flatten()[:most] for label in present]
    return rows[torch.cat(of_each).sort().values] if of_each else rows
