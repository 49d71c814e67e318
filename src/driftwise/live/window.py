"""The samples that a live learner keeps of its stream. None that is monitored is trained on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise.live.settings import LiveSettings
from driftwise.types import Samples

MAX_CHECKED = 500
"""newest samples of a class in a check (or `check_rows`, if more): a test compares all pairs"""
FIRST_CHECK = 10
"""current samples that make the first check due of a class with a reference from the past"""


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
        return self._take(torch.isin(self.samples().ids, ids))

    def remove_classes(self, labels: Sequence[int]) -> Samples:
        """Remove and return the samples of these classes."""
        return self._take(torch.isin(self.samples().labels, _int64(labels)))

    def _take(self, chosen: Tensor) -> Samples:
        samples = self.samples()
        if bool(chosen.any()):
            self._set(samples[~chosen])
        return samples[chosen]

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


class MonitoredSamples:
    """Monitored samples of each class: first its reference, then its current samples."""

    def __init__(
        self,
        empty: Samples,
        *,
        reference_size: int,
        check_size: int,
        check_together: bool = False,
    ) -> None:
        """`check_together`: a check takes all classes at once and groups the samples itself."""
        self._reference_size = reference_size
        self._check_size = check_size
        self._check_together = check_together
        self._collected = SampleQueue(empty)
        """of classes whose reference is not complete"""
        self._current = SampleQueue(empty)
        self._reference_ids: dict[int, Tensor] = {}
        self._due_at: dict[int, int] = {}
        """current samples that make a check due, of classes with a reference from the past"""

    @property
    def classes(self) -> tuple[int, ...]:
        """The classes with a reference."""
        return tuple(sorted(self._reference_ids))

    @property
    def has_current(self) -> bool:
        """Whether samples have come since the last check."""
        return len(self._current) > 0

    def add(self, samples: Samples) -> None:
        """Samples complete the reference of their class first; the others are current."""
        if len(samples):
            collects = self._collects(samples.labels)
            self._collected.add(samples[collects])
            self._current.add(samples[~collects])

    def add_reference(self, samples: Samples) -> None:
        """Collect samples for references that are not complete."""
        if len(samples):
            self._collected.add(samples[self._collects(samples.labels)])

    def add_current(self, samples: Samples) -> None:
        """Add current samples of classes that have a reference."""
        self._current.add(samples[torch.isin(samples.labels, _int64(self.classes))])

    def _collects(self, labels: Tensor) -> Tensor:
        """bool (samples,): which samples belong to references that are not complete."""
        counts = self._collected.counts()
        missing = int(labels.max()) + 1 - len(counts)
        counts = torch.nn.functional.pad(counts, (0, max(0, missing)))
        numbers = counts[labels] + occurrences(labels)
        return ~torch.isin(labels, _int64(self.classes)) & (numbers < self._reference_size)

    def complete(self) -> list[int]:
        """Classes of which enough reference samples have been collected."""
        return _at_least(self._collected.counts(), self._reference_size)

    def take_reference(self, label: int) -> Samples:
        """The samples collected of a class, which are its reference from now on."""
        samples = self._collected.remove_classes([label])
        self._reference_ids[label] = samples.ids
        return samples

    def set_reference(self, label: int, samples: Samples) -> None:
        """Samples from the past are the reference of a class; its first check is due soon."""
        self.reset(label)
        self._reference_ids[label] = samples.ids
        self._due_at[label] = min(FIRST_CHECK, self._check_size)

    def due(self) -> tuple[int, ...]:
        """The classes to check now.

        A check that is due for one class takes along all that have at least half the samples: the
        fewer checks there are, the more of the significance level each of them may spend.
        """
        counts = self._current.counts().tolist()
        progress = {
            label: counts[label] / self._due_at.get(label, self._check_size)
            for label in self.classes
            if label < len(counts)
        }
        if max(progress.values(), default=0) < 1:
            return ()
        if self._check_together:
            return self.classes
        return tuple(label for label, part in progress.items() if part >= 0.5)

    def current(self, labels: Sequence[int]) -> Samples:
        """The newest current samples of these classes."""
        samples = self._current.samples()
        most = max(MAX_CHECKED, self._check_size)
        if len(samples) > most:
            samples = samples[occurrences(samples.labels.flip(0)).flip(0) < most]
        if self._check_together:
            return samples
        return samples[torch.isin(samples.labels, _int64(labels))]

    def first_current(self, label: int) -> int | None:
        """The id of the first current sample of a class; None: there is none."""
        samples = self._current.samples()
        ids = samples.ids[samples.labels == label]
        return int(ids.min()) if len(ids) else None

    def end_check(self, labels: Sequence[int]) -> None:
        """These classes were checked: their next check takes other samples."""
        if self._check_together:
            labels = [*self._reference_ids, *_at_least(self._current.counts(), 1)]
        self._current.remove_classes(labels)
        for label in labels:
            due = 2 * self._due_at.pop(label, self._check_size)
            if due < self._check_size:  # the second check takes twice as many, and so on
                self._due_at[label] = due

    def reset(self, label: int) -> None:
        """Forget all samples of a class and its reference."""
        self._collected.remove_classes([label])
        self._current.remove_classes([label])
        self._reference_ids.pop(label, None)
        self._due_at.pop(label, None)

    def remove(self, ids: Tensor) -> None:
        """Remove samples that are not part of a reference."""
        self._collected.remove(ids)
        self._current.remove(ids)

    @property
    def queues(self) -> tuple[SampleQueue, SampleQueue]:
        """The samples that are not part of a reference."""
        return self._collected, self._current

    @property
    def reference_ids(self) -> Tensor:
        """int64 (samples,): the samples that are part of a reference."""
        return torch.cat([_int64([]), *self._reference_ids.values()])

    def is_reference(self, ids: Tensor) -> Tensor:
        """bool (samples,): which samples are part of a reference."""
        return torch.isin(ids, self.reference_ids)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "collected": self._collected.state_dict(),
            "current": self._current.state_dict(),
            "references": dict(self._reference_ids),
            "due_at": dict(self._due_at),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self._collected.load_state_dict(state["collected"])
        self._current.load_state_dict(state["current"])
        self._reference_ids = dict(state["references"])
        self._due_at = dict(state.get("due_at", {}))  # older states have none


@dataclass(frozen=True, kw_only=True)
class LateLabels:
    """What labels that came after their samples were used for."""

    learn: Samples
    """samples to learn from"""
    requested: int
    """labels that had been requested"""
    unrequested: int
    """labels that came by themselves"""
    gone: int
    """labels of samples that are no longer kept"""
    outdated: int
    """labels of samples from before their class drifted: they are not used"""


class Window:
    """The samples of a live learner outside its replay buffer; their number is bounded."""

    def __init__(self, empty: Samples, settings: LiveSettings, *, trust_predictions: bool) -> None:
        """`trust_predictions`: unlabelled samples may become reference samples, too."""
        reference_size, check_size = settings.reference_size, settings.check_rows
        self._watch_every = settings.watch_every
        self._recent_rows = settings.recent_rows
        self._trust_predictions = trust_predictions
        self.labelled = MonitoredSamples(
            empty, reference_size=reference_size, check_size=check_size
        )
        """monitored samples that came with labels"""
        self.predicted = MonitoredSamples(
            empty, reference_size=reference_size, check_size=check_size, check_together=True
        )
        """monitored samples by predicted class"""
        self.learned = SampleQueue(empty, max_size=settings.recent_rows)
        """labelled samples that were trained on"""
        self.unlabelled = SampleQueue(empty, max_size=settings.recent_rows)
        """samples without a label"""
        self.requested = SampleQueue(empty, max_size=settings.recent_rows)
        """samples whose labels were requested and have not come"""
        self.unknown = SampleQueue(empty, max_size=settings.recent_rows)
        """samples whose requested labels nobody knew: a correction may give them"""
        self._class_counts = _int64([])
        """labelled samples of each class so far"""
        self._since: dict[int, int] = {}
        self._outdated_before: dict[int, int] = {}

    def ids(self) -> set[int]:
        """Of all samples here, and of the references."""
        queues = [self.learned, self.unlabelled, self.requested]
        queues += [each for kept in (self.labelled, self.predicted) for each in kept.queues]
        references = [set(kept.reference_ids.tolist()) for kept in (self.labelled, self.predicted)]
        return set().union(*(each.samples().ids.tolist() for each in queues), *references)

    def num_labelled(self, label: int) -> int:
        """Labelled samples of a class so far."""
        return int(self._class_counts[label]) if label < len(self._class_counts) else 0

    def split(self, labelled: Samples) -> tuple[Samples, Samples]:
        """Samples to learn from, and every `watch_every`-th sample of each class to monitor."""
        labels = labelled.labels
        added = labels.bincount(minlength=len(self._class_counts))
        missing = len(added) - len(self._class_counts)
        before = torch.nn.functional.pad(self._class_counts, (0, missing))
        self._class_counts = before + added
        numbers = before[labels] + occurrences(labels)
        monitored = numbers % self._watch_every == self._watch_every - 1
        return labelled[~monitored], labelled[monitored]

    def monitor(self, labelled: Samples) -> None:
        """Monitor labelled samples."""
        self.labelled.add(labelled)
        # Labelled samples are the best reference for unlabelled ones, too.
        self.predicted.add_reference(labelled)

    def monitor_predicted(self, unlabelled: Samples, predictions: Tensor) -> None:
        """Monitor unlabelled samples by their predicted classes, (samples,)."""
        samples = replace(unlabelled, labels=predictions)
        if self._trust_predictions:
            self.predicted.add(samples)
        else:
            self.predicted.add_current(samples)

    def fresh(self, label: int) -> Samples:
        """Samples of a class that were learned since its last check without drift."""
        samples = self.learned.samples()
        return samples[(samples.labels == label) & (samples.ids >= self.since(label))]

    def recent(self, count: int, generator: torch.Generator) -> Samples:
        """At most `count` of the samples learned lately, none from before its class drifted."""
        samples = self.learned.sample(count, generator)
        return samples[~self._is_outdated(samples)] if self._outdated_before else samples

    def unlabelled_since(self, sample: int) -> Samples:
        """Unlabelled samples from an id on; no reference samples."""
        samples = self.unlabelled.samples()
        return samples[(samples.ids >= sample) & ~self.predicted.is_reference(samples.ids)]

    def request(self, samples: Samples) -> int:
        """The labels of these are requested; returns how many older requests were dropped."""
        self.forget(samples.ids)  # they will be learned, so they must not be monitored
        wanted = len(self.requested) + len(samples)
        self.requested.add(samples)
        return wanted - len(self.requested)

    def pending_since(self, sample: int) -> Samples:
        """Samples from an id on whose labels were requested and are still expected.

        Once `recent_rows` newer samples have come, they are expected no longer.
        """
        samples, newer = self.requested.samples(), self.unlabelled.samples().ids
        oldest = int(newer[-1]) - self._recent_rows if len(newer) else 0
        return samples[samples.ids >= max(sample, oldest)]

    def cancel_request(self, ids: Tensor) -> None:
        """A request failed: the labels of these samples may be requested again."""
        self.unlabelled.add(self.requested.remove(ids))

    def apply_labels(self, ids: Tensor, labels: Tensor) -> LateLabels:
        """Labels came for samples: learn from them, or monitor them."""
        requested = with_labels(self.requested.remove(ids), ids, labels)
        others = with_labels(self.unlabelled.remove(ids), ids, labels)
        self.predicted.remove(torch.cat([requested.ids, others.ids]))
        valid = requested[~self._is_outdated(requested)]
        valid_others = others[~self._is_outdated(others)]
        is_reference = self.predicted.is_reference(valid_others.ids)
        learn, monitored = self.split(valid_others[~is_reference])
        self.monitor(Samples.concat([valid_others[is_reference], monitored]))
        return LateLabels(
            learn=Samples.concat([valid, learn]),
            requested=len(requested),
            unrequested=len(others),
            gone=len(set(ids.tolist())) - len(requested) - len(others),
            outdated=len(requested) + len(others) - len(valid) - len(valid_others),
        )

    def _is_outdated(self, samples: Samples) -> Tensor:
        """bool (samples,): which show a concept of their class from before its realignment."""
        firsts = [self._outdated_before.get(label, 0) for label in samples.labels.tolist()]
        return samples.ids < _int64(firsts)

    @property
    def current_from(self) -> dict[int, int]:
        """By realigned class, the id of the sample with which its current concept begins."""
        return dict(self._outdated_before)

    def is_realigned(self, labels: Tensor) -> Tensor:
        """bool (labels,): which classes have been realigned."""
        return torch.isin(labels, _int64([*self._outdated_before]))

    def since(self, label: int) -> int:
        """The id of the sample from which on a class may have drifted."""
        return self._since.get(label, 0)

    def unchanged_until(self, labels: Sequence[int], sample: int) -> None:
        """As far as is known, these classes have not drifted up to a sample."""
        self._since.update(dict.fromkeys(labels, sample))

    def reset(self, label: int, sample: int) -> None:
        """A class was realigned at a sample: collect a new reference of its new concept."""
        # Samples since the class may have drifted show the new concept: late labels count.
        self._outdated_before[label] = self.since(label)
        self._since[label] = sample
        self.labelled.reset(label)
        self.predicted.reset(label)

    def forget(self, ids: Tensor) -> None:
        """These unlabelled samples are used for training: they are monitored no longer."""
        self.unlabelled.remove(ids)
        self.predicted.remove(ids)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            **{key: getattr(self, name).state_dict() for name, key in _SAVED_AS.items()},
            "numbers": {"counts": self._class_counts},
            "since": dict(self._since),
            "outdated_before": dict(self._outdated_before),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        for name, key in _SAVED_AS.items():
            if key in state or name != "unknown":  # which older states do not have
                getattr(self, name).load_state_dict(state[key])
        counts = state["numbers"]["counts"]
        since, outdated = state["since"], state.get("outdated_before", {})  # older states: none
        numbers = [number for ids in (since, outdated) for pair in ids.items() for number in pair]
        if (counts.dtype, counts.ndim) != (torch.int64, 1) or {*map(type, numbers)} - {int}:
            raise ValueError("expected a count for each class, and sample ids by class")
        self._class_counts = counts.clone()
        self._since, self._outdated_before = dict(since), dict(outdated)


_SAVED_AS = {
    "labelled": "given",
    "predicted": "guessed",
    "learned": "learned",
    "unlabelled": "unlabelled",
    "requested": "asked",
    "unknown": "unknown",
}


def no_samples(shape: tuple[int, ...], dtype: torch.dtype) -> Samples:
    """Zero samples of a shape."""
    none = _int64([])
    return Samples(images=torch.empty(0, *shape, dtype=dtype), labels=none, ids=none, concepts=none)


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
    return replace(samples, labels=_int64([by_id[number] for number in samples.ids.tolist()]))


def _at_least(counts: Tensor, count: int) -> list[int]:
    """The classes that have reached a count."""
    found: list[int] = (counts >= count).nonzero().squeeze(1).tolist()
    return found


def _int64(numbers: Sequence[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)
