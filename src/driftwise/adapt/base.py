"""The base class of adaptations, and the samples that they compare."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from driftwise.protocols import AdaptationContext, KeepsStatistics
from driftwise.stats.class_means import ClassMeans
from driftwise.types import AdaptationResult, Samples, Verdict

FEWEST = 5
"""samples of a class below which two sets of them are not compared"""


class Adaptation(ABC):
    """Reacts to drifted classes, whatever the method that learns.

    `adapt` must be implemented. `follow_up` may be, by an adaptation that continues after the tasks
    that follow. An adaptation that changes writes `state_dict` and `load_state_dict`, both or
    neither; a custom one without them is saved by its attributes (`part_state.py`).

    >>> class Forget(Adaptation):  # drops what is outdated, and asks for no label
    ...     def adapt(self, drifted, context):
    ...         for verdict in drifted:
    ...             context.buffer.drop(verdict.label)
    ...         return AdaptationResult()
    """

    @abstractmethod
    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Adapt the buffer now; the result holds what the coming task has to do.

        Args:
            drifted: the verdicts on the drifted classes, one per class; possibly none.
            context: the buffer, the source of labels and the learner.
        """

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        """Continue after a task's last step; the notes for the report."""
        del context
        return ()

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        if state:
            raise ValueError(f"expected no state for {type(self).__name__}; got {sorted(state)}")


class Wrapper(Adaptation):
    """An adaptation around another one, `inner`, which it lets follow up and saves with itself."""

    def __init__(self, inner: Adaptation) -> None:
        self._inner = inner

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        """Continue what `inner` has begun."""
        return self._inner.follow_up(context)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {"inner": self._inner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._inner.load_state_dict(state["inner"])


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


def class_means(context: AdaptationContext, drifted: Collection[int]) -> ClassMeans:
    """The classes in memory, in the features of `features_of`.

    Samples scatter as those of classes that have not drifted; class statistics know that of all.
    """
    if isinstance(context.buffer, KeepsStatistics):
        moments = {label: context.buffer.moments_of(label) for label in context.buffer.counts()}
        known = {label: (m.count, m.mean) for label, m in moments.items() if m is not None}
        scatter, freedom = context.buffer.pooled() or (None, 0.0)
        return ClassMeans(by_label=known, scatter=scatter, freedom=freedom)
    known, deviations = {}, []
    for label in context.buffer.counts():
        if len(held := context.buffer.samples_of(label)):
            features = features_of(held.images, context)
            known[label] = (float(len(held)), features.mean(dim=0))
            if label not in drifted:
                deviations.append(features - features.mean(dim=0))
    if not deviations:
        return ClassMeans(by_label=known)
    apart, freedom = torch.cat(deviations), sum(len(each) - 1 for each in deviations)
    return ClassMeans(by_label=known, scatter=apart.T @ apart, freedom=float(freedom))


def features_of(images: Tensor, context: AdaptationContext) -> Tensor:
    """The features in which classes in memory are described, float64 (samples, d)."""
    if isinstance(context.buffer, KeepsStatistics):
        return context.buffer.features(images).double()
    return context.encode(images).features.double()


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
