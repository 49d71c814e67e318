"""Containers for samples of a stream: a bounded queue, and counts by class."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise.types import Samples


def no_samples(shape: tuple[int, ...], dtype: torch.dtype) -> Samples:
    """Zero samples of a shape."""
    none = torch.empty(0, dtype=torch.int64)
    return Samples(images=torch.empty(0, *shape, dtype=dtype), labels=none, ids=none, concepts=none)


class SampleQueue:
    """Samples in the order in which they came; at most the newest `max_size` of them.

    Batches are joined only when they are read: a join per batch would copy the whole queue.
    """

    def __init__(self, empty: Samples, *, max_size: int | None = None) -> None:
        self._empty = empty
        self._max_size = max_size
        self._batches: list[Samples] = []
        self._count = 0
        """samples in `_batches`; the first batch may hold some that are too old"""

    def __len__(self) -> int:
        return self._count if self._max_size is None else min(self._count, self._max_size)

    def add(self, samples: Samples) -> None:
        """Append samples."""
        if not len(samples):
            return
        if self._max_size is not None and len(samples) > self._max_size:
            # By index, not as a slice: a slice would keep the memory of the others.
            samples = samples[torch.arange(len(samples) - self._max_size, len(samples))]
        self._batches.append(samples)
        self._count += len(samples)
        while self._max_size is not None and self._count - len(self._batches[0]) >= self._max_size:
            self._count -= len(self._batches.pop(0))

    def samples(self) -> Samples:
        """All of them, the oldest first."""
        if len(self._batches) != 1 or self._count != len(self):
            joined = Samples.concat([self._empty, *self._batches])
            self._set(joined[self._count - len(self) :])
        return self._batches[0] if self._batches else self._empty

    def sample(self, count: int, generator: torch.Generator) -> Samples:
        """At most `count` of them at random, in their order; the others are not copied."""
        places = torch.randperm(len(self), generator=generator)[:count].sort().values
        places += self._count - len(self)
        ends = list(itertools.accumulate(len(batch) for batch in self._batches))
        owners = np.searchsorted(ends, places.numpy(), side="right")
        drawn = [self._empty]
        for owner in np.unique(owners).tolist():
            batch = self._batches[owner]
            drawn.append(batch[places[owners == owner] - (ends[owner] - len(batch))])
        return Samples.concat(drawn)

    def remove(self, ids: Tensor) -> Samples:
        """Remove and return the samples with these ids."""
        if not self._count or not len(ids):
            return self._empty
        samples = self.samples()
        goes = torch.isin(samples.ids, ids)
        if bool(goes.any()):
            self._set(samples[~goes])
        return samples[goes]

    def remove_classes(self, labels: list[int]) -> Samples:
        """Remove and return the samples of these classes."""
        samples = self.samples()
        goes = torch.isin(samples.labels, torch.tensor(labels, dtype=torch.int64))
        self._set(samples[~goes])
        return samples[goes]

    def counts(self) -> Tensor:
        """(classes,): the samples of each class, up to the largest label."""
        labels = [self._empty.labels, *(batch.labels for batch in self._batches)]
        return torch.cat(labels)[self._count - len(self) :].bincount()

    def _set(self, samples: Samples) -> None:
        self._batches = [samples] if len(samples) else []
        self._count = len(samples)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return dict(vars(self.samples()))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._set(Samples.restored(state, like=self._empty))


class ClassCounts:
    """A count for each class."""

    def __init__(self) -> None:
        self._counts = torch.zeros(0, dtype=torch.int64)

    def add(self, labels: Tensor) -> None:
        """Count samples."""
        self.at(labels)
        self._counts.index_add_(0, labels, torch.ones_like(labels))

    def at(self, labels: Tensor) -> Tensor:
        """(samples,): the count of each sample's class."""
        missing = (int(labels.max()) + 1 if len(labels) else 0) - len(self._counts)
        if missing > 0:
            self._counts = torch.cat([self._counts, torch.zeros(missing, dtype=torch.int64)])
        return self._counts[labels]

    def of(self, label: int) -> int:
        """The count of one class."""
        return int(self._counts[label]) if label < len(self._counts) else 0

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {"counts": self._counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        counts = state["counts"].clone()
        if counts.dtype != torch.int64 or counts.ndim != 1:
            raise ValueError("expected a count for each class")
        self._counts = counts


def occurrences(labels: Tensor) -> Tensor:
    """(samples,): how many samples before each one have its label.

    >>> occurrences(torch.tensor([4, 4, 0, 4, 0])).tolist()
    [0, 1, 0, 2, 1]
    """
    ordered, order = labels.sort(stable=True)
    places = torch.arange(len(labels))
    begins = torch.ones(len(labels), dtype=torch.bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    first = torch.where(begins, places, 0).cummax(dim=0).values
    return torch.empty_like(places).scatter_(0, order, places - first)


def with_labels(samples: Samples, ids: Tensor, labels: Tensor) -> Samples:
    """Samples with the labels that are given by id; of two labels for one id the last counts."""
    by_id = dict(zip(ids.tolist(), labels.tolist(), strict=True))
    found = [by_id[number] for number in samples.ids.tolist()]
    return replace(samples, labels=torch.tensor(found, dtype=torch.int64))
