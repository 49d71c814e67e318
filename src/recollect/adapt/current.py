"""How a class looks now, as far as the rows that are watched show it."""

from __future__ import annotations

import torch

from recollect.shapes import Workbench
from recollect.types import Rows


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
