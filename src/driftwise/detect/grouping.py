"""Which samples are compared with which: class by class, or all with all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from driftwise.errors import UserError

KnownLabels = Literal["given", "predicted", "unknown"]
"""What is known of monitored samples: their classes; what the learner takes them for; nothing."""

WHOLE = -1
"""the one group of samples of which nothing is known: a mix of classes that changes is drift of it"""


def groups_among(classes: Sequence[int], known: KnownLabels) -> tuple[int, ...]:
    """The groups that samples of these classes fall into."""
    return (WHOLE,) if known == "unknown" else tuple(classes)


def group_of_samples(
    labels: Tensor, opinions: Tensor | None, classes: Sequence[int], known: KnownLabels
) -> Tensor:
    """The group of each sample, (samples,), by its label or by the learner's logits, `opinions`.

    Samples of a class that the learner mistakes for others are in the others' groups. As that happens
    to reference and current samples alike, it is no drift, if both are new to the learner. A class
    that has no output yet is never predicted.
    """
    if known == "given":
        return labels
    if known == "unknown":
        return torch.full_like(labels, WHOLE)
    if opinions is None:
        raise ValueError("samples cannot be grouped by predictions that were not made")
    columns = torch.tensor([label for label in classes if label < opinions.shape[1]])
    if not len(columns):
        raise UserError(
            f"the learner has {opinions.shape[1]} outputs, none of them for the classes "
            f"{', '.join(map(str, classes))}, so that nobody can predict them; give labels"
        )
    return columns[opinions[:, columns].argmax(dim=1)]
