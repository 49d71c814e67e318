"""Monitored samples, as adaptations use them."""

from __future__ import annotations

import torch

from driftwise.protocols import AdaptationContext
from driftwise.types import Samples

FEWEST = 5
"""samples of a class below which two sets of them are not compared"""


def current_samples(label: int, context: AdaptationContext) -> Samples:
    """The monitored samples of a class: by their labels, or else by the learner's predictions."""
    monitored = context.monitored()
    if not len(monitored):
        return monitored
    if bool((monitored.labels >= 0).any()):
        return monitored.of_class(label)
    return monitored[context.encode(monitored.images).logits.argmax(dim=1) == label]


def has_labels(samples: Samples) -> bool:
    """Whether all of these samples are labelled, and there are any."""
    return bool(torch.all(samples.labels >= 0)) and len(samples) > 0


def first_of_each(samples: Samples, most: int = 100) -> Samples:
    """The first samples of each class, `most` at most: enough to estimate its accuracy.

    >>> labels = torch.tensor([1, 1, 0, 1])
    >>> images, ids = torch.zeros(4, 2), torch.arange(4)
    >>> samples = Samples(images=images, labels=labels, ids=ids, concepts=labels)
    >>> first_of_each(samples, 2).ids.tolist()
    [0, 1, 2]
    """
    present = sorted(set(samples.labels.tolist()))
    of_each = [(samples.labels == label).nonzero().flatten()[:most] for label in present]
    return samples[torch.cat(of_each).sort().values] if of_each else samples
