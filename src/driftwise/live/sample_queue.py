"""Samples that wait, in the order in which they came, and how many of each class there are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise.types import Samples


def no_samples(shape: tuple[int, ...], dtype: torch.dtype) -> Samples:
    """Samples of a shape, none of them."""
    none = torch.empty(0, dtype=torch.int64)
    return Samples(images=torch.empty(0, *shape, dtype=dtype), labels=none, ids=none, concepts=none)


class SampleQueue:
    """Samples as they came; the newest ones, where only so many are kept."""

    def __init__(self, nothing: Samples, *, most: int | None = None) -> None:
        self._nothing = nothing
        self._most = most
        self._parts: list[Samples] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count if self._most is None else min(self._count, self._most)

    def add(self, samples: Samples) -> None:
        """Put samples on top."""
        if not len(samples):
            return
        if self._most is not None and len(samples) > self._most:
            # By their numbers, not as a slice: that would keep the others' memory, too.
            samples = samples[torch.arange(len(samples) - self._most, len(samples))]
        self._parts.append(samples)
        self._count += len(samples)
        while self._most is not None and self._count - len(self._parts[0]) >= self._most:
            self._count -= len(self._parts.pop(0))

    def samples(self) -> Samples:
        """All of them, the oldest first."""
        if len(self._parts) != 1 or self._count != len(self):
            everything = Samples.concat([self._nothing, *self._parts])
            self._set(everything[self._count - len(self) :])
        return self._parts[0] if self._parts else self._nothing

    def sample(self, count: int, generator: torch.Generator) -> Samples:
        """So many of them at random, or all; the others are not copied."""
        # Of the first part the oldest samples may be too many.
        places = torch.randperm(len(self), generator=generator)[:count].sort().values
        places += self._count - len(self)
        ends = list(itertools.accumulate(len(part) for part in self._parts))
        owners = np.searchsorted(ends, places.numpy(), side="right")
        return Samples.concat(
            [self._nothing]
            + [
                self._parts[owner][
                    places[owners == owner] - (ends[owner] - len(self._parts[owner]))
                ]
                for owner in np.unique(owners).tolist()
            ]
        )

    def remove(self, ids: Tensor) -> Samples:
        """Take out the samples with these numbers; they are returned."""
        if not self._count or not len(ids):
            return self._nothing
        samples = self.samples()
        goes = torch.isin(samples.ids, ids)
        taken = samples[goes]
        if len(taken):
            self._set(samples[~goes])
        return taken

    def remove_classes(self, labels: list[int]) -> Samples:
        """Take out the samples of these classes; they are returned."""
        samples = self.samples()
        goes = torch.isin(samples.labels, torch.tensor(labels, dtype=torch.int64))
        self._set(samples[~goes])
        return samples[goes]

    def _set(self, samples: Samples) -> None:
        self._parts = [samples] if len(samples) else []
        self._count = len(samples)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return dict(vars(self.samples()))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._set(Samples.restored(state, like=self._nothing))


class ClassCounts:
    """How many samples there have been of each class."""

    def __init__(self) -> None:
        self._counts = torch.zeros(0, dtype=torch.int64)

    def number(self, labels: Tensor) -> Tensor:
        """(samples,): how many samples of its class have come before each; they count from now on."""
        numbers = self.at(labels) + occurrences(labels)
        self._counts.index_add_(0, labels, torch.ones_like(labels))
        return numbers

    def add(self, labels: Tensor, *, sign: int = 1) -> None:
        """Count samples in, or out."""
        self.at(labels)
        self._counts.index_add_(0, labels, torch.full_like(labels, sign))

    def at(self, labels: Tensor) -> Tensor:
        """(samples,): the count of each sample's class."""
        missing = (int(labels.max()) + 1 if len(labels) else 0) - len(self._counts)
        if missing > 0:
            self._counts = torch.cat([self._counts, torch.zeros(missing, dtype=torch.int64)])
        return self._counts[labels]

    def of(self, label: int) -> int:
        """The count of one class."""
        return int(self._counts[label]) if label < len(self._counts) else 0

    def reaching(self, count: int) -> list[int]:
        """The classes with at least so many."""
        found: list[int] = (self._counts >= count).nonzero().squeeze(1).tolist()
        return found

    def clear(self, label: int) -> None:
        """Begin anew with a class."""
        if label < len(self._counts):
            self._counts[label] = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {"counts": self._counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
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
    """The samples with the labels that stand beside their numbers; the last one counts."""
    known = dict(zip(ids.tolist(), labels.tolist(), strict=True))
    theirs = [known[number] for number in samples.ids.tolist()]
    return replace(samples, labels=torch.tensor(theirs, dtype=torch.int64))
