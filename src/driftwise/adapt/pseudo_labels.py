"""Pseudo-labels: confident predictions as labels of unlabelled samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from driftwise import rng
from driftwise.adapt.base import first_of_each, has_labels
from driftwise.protocols import AdaptationContext
from driftwise.types import Samples

CONFIDENCES = (0.8, 0.9, 0.95, 0.99)
"""thresholds on the predicted probability; the lowest that is precise enough is used"""


class PseudoLabels:
    """Unlabelled samples that the learner predicts to be of one of some classes.

    Labelled monitored samples, which are never trained on, give the precision of such predictions.
    Where the precision is too low or unknown, there are no pseudo-labels.

    >>> import driftwise as dw
    >>> guard = dw.adapt.PseudoLabels(precision=0.95)
    >>> adaptation = dw.adapt.Rehearsal(dw.adapt.Realign(), pseudo_labels=guard)
    """

    def __init__(self, *, precision: float = 0.9) -> None:
        """`precision`: the fraction of right pseudo-labels that is required."""
        self._precision = precision

    def samples(
        self, classes: Sequence[int], context: AdaptationContext, *, most: int, seed: int
    ) -> tuple[Samples | None, str]:
        """Samples with pseudo-labels, if they are precise enough, and a note on them.

        Args:
            classes: the classes to predict.
            context: the learner, the buffer and the unlabelled samples.
            most: unlabelled samples to predict at most, random ones.
            seed: of the random choice.
        """
        monitored = first_of_each(context.monitored())
        if not has_labels(monitored):
            return (
                None,
                "no pseudo-labels: there are no labelled samples to measure their precision",
            )
        known, known_confidence, positions = _predict(monitored, classes, context)
        is_right = known.labels == monitored.labels[positions]
        for confidence in CONFIDENCES:
            right = is_right[known_confidence >= confidence]
            if len(right) and float(right.float().mean()) >= self._precision:
                break
        else:
            required = f"{100 * self._precision:.0f} %"
            return None, f"no pseudo-labels: fewer than {required} of them would be right"
        unlabelled = _unlabelled(classes, context, most=most, seed=seed)
        predicted, predicted_confidence, _ = _predict(unlabelled, classes, context)
        samples = predicted[predicted_confidence >= confidence]
        if not len(samples):
            return None, "no pseudo-labels: no sample is predicted to be of the renewed classes"
        percent = 100 * float(right.float().mean())
        return samples, f"{len(samples)} pseudo-labels, {percent:.1f} % right on monitored samples"


def _unlabelled(
    classes: Sequence[int], context: AdaptationContext, *, most: int, seed: int
) -> Samples:
    """Unlabelled samples without those in the buffer, which are rehearsed with their labels."""
    samples = context.labels.unlabelled()
    held = torch.cat([context.buffer.samples_of(label).ids for label in classes])
    samples = samples[~torch.isin(samples.ids, held)]
    if len(samples) <= most:
        return samples
    chosen = torch.randperm(len(samples), generator=rng.fork(seed, "guesses"))[:most]
    return samples[chosen.sort().values]


def _predict(
    samples: Samples, classes: Sequence[int], context: AdaptationContext
) -> tuple[Samples, Tensor, Tensor]:
    """The samples predicted to be of the classes, so labelled; their confidences and positions."""
    confidence, labels = context.encode(samples.images).logits.softmax(dim=1).max(dim=1)
    (positions,) = torch.isin(labels, torch.tensor(classes)).nonzero(as_tuple=True)
    predicted = dataclasses.replace(samples, labels=labels)[positions]
    return predicted, confidence[positions], positions
