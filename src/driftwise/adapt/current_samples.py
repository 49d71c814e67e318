"""How a class looks now, as far as the samples that are watched show it."""

from __future__ import annotations

import torch

from driftwise.protocols import AdaptationContext
from driftwise.types import Samples


def current_samples(label: int, context: AdaptationContext) -> Samples:
    """Watched samples of a class: by their labels, or by what the learner takes them for."""
    monitored = context.monitored()
    if not len(monitored):
        return monitored
    if bool((monitored.labels >= 0).any()):
        return monitored.of_class(label)
    return monitored[context.encode(monitored.images).logits.argmax(dim=1) == label]


def has_labels(samples: Samples) -> bool:
    """Whether labels of these samples have been paid for."""
    return bool(torch.all(samples.labels >= 0)) and len(samples) > 0


def a_few_of_each(samples: Samples, most: int = 100) -> Samples:
    """The first of each class: enough to see how it fares, at a fraction of the forwards.

    >>> import torch
    >>> labels = torch.tensor([1, 1, 0, 1])
    >>> samples = Samples(images=torch.zeros(4, 2), labels=labels, ids=torch.arange(4), concepts=labels)
    >>> a_few_of_each(samples, 2).ids.tolist()
    [0, 1, 2]
    """
    present = sorted(set(samples.labels.tolist()))
    of_each = [(samples.labels == label).nonzero().flatten()[:most] for label in present]
    return samples[torch.cat(of_each).sort().values] if of_each else samples
