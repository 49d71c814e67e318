"""Harm: the accuracy that a change costs the learner, in percentage points.

With labels of the current samples it is counted. Without, it is inferred from the learner's logits
under a known class mix, by default that of the reference: current samples are assigned to the classes
of the mix at the least total cost, 1 - p(class) per sample (optimal transport). An unnoticed change of
the mix counts as harm; estimating the mix from the predictions would take confident errors for one.

Confidence alone misses confident errors, which most strong drifts cause:
`benchmarks/detect_harm_share.py` compares two estimators based on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from driftwise.errors import UserError

_MAX_ASSIGNED = 1000
"""samples assigned at once: the time grows with the square, and more samples add little"""


@dataclass(frozen=True, kw_only=True)
class Harm:
    """What a change does to the accuracy on some samples; a gain is negative. All in points, 0-100."""

    before: float
    """accuracy on the reference samples"""
    with_labels: float | None
    """accuracy lost, counted by the labels of the current samples; None: they have none"""
    error: float | None
    """standard error of `with_labels`; never 0, as no sample proves perfection"""
    without_labels: float
    """accuracy lost, inferred from the logits alone; its error is mostly the assumption's"""


def estimate_harm_by_class(
    reference_logits: Tensor,
    current_logits: Tensor,
    reference_labels: Tensor,
    current_labels: Tensor | None = None,
    *,
    mix: Mapping[int, float] | None = None,
) -> dict[int, Harm]:
    """Accuracy lost on each class of the reference, by label, from all samples of a stream together.

    Logits are the learner's as it is now, (samples, outputs), the reference samples being ones it never
    trained on; labels are (samples,). A label that has no output yet is never given.

    Without labels, current samples are assigned to classes, also those that the learner takes for
    another. `mix` is how often each class comes among the current samples, in any unit; None: as
    often as in the reference. A class that does not come is left out; one without reference samples
    takes its share of the current samples, and has no result.

    >>> sure, torn = torch.tensor([[4.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    >>> harm = estimate_harm_by_class(sure.expand(9, 2), torn.expand(9, 2), torch.zeros(9).long())
    >>> harm[0].before, round(harm[0].without_labels)
    (100.0, 48)
    """
    reference = _checked(reference_logits, reference_labels)
    current = _checked(current_logits, current_labels)
    if not len(reference.logits) or not len(current.logits):
        return {}
    widths = reference.logits.shape[1], current.logits.shape[1]
    if widths[0] != widths[1]:
        raise UserError(
            f"the reference's logits have {widths[0]} outputs, the current ones {widths[1]}; "
            "use the learner as it is now for both"
        )
    counts = torch.bincount(reference.labels).double()
    before = _assigned(reference.logits, counts)
    after = _assigned(current.logits, counts if mix is None else _weights(mix))
    harms = {}
    for label in counts.nonzero().squeeze(1).tolist():
        mine = before.labels == label
        theirs = after.labels == label
        if not theirs.any():
            continue
        is_right = None
        if current_labels is not None and (current.labels == label).any():
            is_right = current.is_right[current.labels == label]
        harms[label] = _harm(
            reference.is_right[reference.labels == label],
            is_right,
            float(after.costs[theirs].mean() - before.costs[mine].mean()),
        )
    return harms


class _Side(NamedTuple):
    logits: Tensor
    labels: Tensor
    """(samples,); none at all where they are unknown"""

    @property
    def is_right(self) -> Tensor:
        """Whether the learner gives each sample its label, (samples,)."""
        return self.logits.argmax(dim=1) == self.labels


def _harm(was_right: Tensor, is_right: Tensor | None, inferred: float) -> Harm:
    """In points, what is inferred being held to accuracies that exist."""
    before = float(was_right.double().mean())
    counted = error = None
    if is_right is not None:
        counted = 100 * (before - float(is_right.double().mean()))
        error = 100 * math.sqrt(_variance(was_right) + _variance(is_right))
    return Harm(
        before=100 * before,
        with_labels=counted,
        error=error,
        without_labels=100 * min(max(inferred, before - 1), before),
    )


def _variance(is_right: Tensor) -> float:
    """Of a share, as Agresti and Caffo take it: one more sample right and one more wrong."""
    samples = len(is_right) + 2
    share = (float(is_right.sum()) + 1) / samples
    return share * (1 - share) / samples


class _Assigned(NamedTuple):
    labels: Tensor
    """(samples,): the class that each sample was assigned to"""
    costs: Tensor
    """(samples,): 1 minus the probability of that class, 0 to 1"""


def _assigned(logits: Tensor, weights: Tensor) -> _Assigned:
    """Samples assigned to classes in proportion to `weights` (classes,), at the least total cost."""
    costs_of = 1 - logits.double().softmax(dim=1)
    missing = len(weights) - costs_of.shape[1]
    if missing > 0:  # a class without an output has no probability
        costs_of = torch.cat(
            [costs_of, torch.ones(len(costs_of), missing, dtype=torch.float64)], dim=1
        )
    labels = torch.empty(len(costs_of), dtype=torch.int64)
    parts = -(-len(costs_of) // _MAX_ASSIGNED)
    # Every part gets its share of each prediction and confidence, in whatever order samples came.
    order = costs_of.amin(dim=1).argsort(stable=True)
    order = order[costs_of.argmin(dim=1)[order].argsort(stable=True)]
    for start in range(parts):
        part = order[start::parts]
        ends = (weights.cumsum(0) / weights.sum() * len(part)).round().long()
        places = ends.diff(prepend=torch.zeros(1, dtype=torch.int64))
        offered = torch.arange(len(weights)).repeat_interleave(places)
        # Samples come back in their order, each with its place among those offered.
        _, chosen = linear_sum_assignment(costs_of[part][:, offered].numpy())
        labels[part] = offered[torch.from_numpy(chosen)]
    return _Assigned(labels, costs_of.gather(1, labels[:, None]).squeeze(1))


def _weights(mix: Mapping[int, float]) -> Tensor:
    """The mix by label, (classes,)."""
    usable = all(math.isfinite(share) and share >= 0 for share in mix.values())
    if not usable or not sum(mix.values()) or min(mix) < 0:
        raise UserError(
            f"expected a mix of weights, not all 0, by label from 0 up; got {dict(mix)}"
        )
    return torch.tensor([mix.get(each, 0.0) for each in range(max(mix) + 1)], dtype=torch.float64)


def _checked(logits: Tensor, labels: Tensor | None) -> _Side:
    if logits.ndim != 2 or (len(logits) and not logits.shape[1]):
        raise UserError(f"expected logits (samples, outputs); got {tuple(logits.shape)}")
    if not logits.isfinite().all():
        raise UserError(
            "logits hold NaN or infinity: leave such samples out, or lower the learning rate"
        )
    if labels is None:
        return _Side(logits.detach(), torch.empty(0, dtype=torch.int64))
    if labels.shape != logits.shape[:1] or labels.is_floating_point() or (labels < 0).any():
        raise UserError(
            f"expected one label from 0 up for each of {len(logits)} samples of logits; got "
            f"{str(labels.dtype).removeprefix('torch.')} {tuple(labels.shape)}"
        )
    return _Side(logits.detach(), labels.long())
