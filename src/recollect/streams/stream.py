"""The stream: what each task brings to train on, to watch and to be scored on.

Drifted pixels are computed once per concept, for every row of the classes that ever show it, and
kept: two reads are equal, and it does not matter in which order or portions rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect import rng
from recollect.errors import UserError, unknown_name
from recollect.streams import transforms
from recollect.streams.schedule import ORIGINAL, Schedule
from recollect.types import Dataset, Parts, Rows

_ANY = -1
"""Stands for all domains."""


@dataclass(frozen=True, kw_only=True)
class _Drifted:
    """The pixels of one concept, and where each data-set row stands among them."""

    images: Tensor
    position: Tensor


class Stream:
    """A data set, cut into parts, played by a schedule."""

    def __init__(
        self, dataset: Dataset, parts: Parts, schedule: Schedule, *, batch_size: int, seed: int
    ) -> None:
        _check_labels(dataset)
        self.schedule = schedule
        self.class_names = dataset.class_names
        self.batch_size = batch_size
        self.seed = seed
        self._images = torch.from_numpy(dataset.images)
        self._labels = torch.from_numpy(dataset.labels)
        self._parts = {
            name: torch.from_numpy(getattr(parts, name))
            for name in ("train", "monitored", "reference", "test")
        }
        self._drifted: dict[int, _Drifted] = {}
        self._lots: dict[int, Tensor] = {}
        self._domains, self._domain_of_concept = _domains(dataset, schedule)

    def __len__(self) -> int:
        return self.schedule.num_tasks

    @property
    def num_classes(self) -> int:
        """Classes of the whole stream: the size of a network's head."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(height, width, channels) of every picture."""
        return tuple(self._images.shape[1:])

    def task(self, number: int) -> Task:
        """A task by its number, counted from 1."""
        if not 1 <= number <= len(self):
            raise UserError(f"there are tasks 1 to {len(self)}; got {number}")
        return Task(self, number)

    def tasks(self, *, after: int = 0) -> Iterator[Task]:
        """The tasks in order, those up to number `after` left out."""
        return (Task(self, number) for number in range(after + 1, len(self) + 1))

    def rows(self, part: str, classes: Sequence[int], task: int) -> Rows:
        """A part's rows of some classes, as they look during a task, in data-set order."""
        ids = self._parts[part]
        ids = ids[torch.isin(self._labels[ids], torch.tensor(classes, dtype=torch.int64))]
        concepts = self._concepts(ids, task)
        if self._domains is not None:
            # A picture is there as long as the concept it would show is one of its own domain.
            there = self._domains[ids] == self._domain_of_concept[concepts]
            there |= self._domain_of_concept[concepts] == _ANY
            ids, concepts = ids[there], concepts[there]
        images = self._images.index_select(0, ids)
        for concept in torch.unique(concepts).tolist():
            if concept != ORIGINAL:
                shows = (concepts == concept).nonzero().squeeze(1)
                images.index_copy_(0, shows, self._look(concept, ids[shows]))
        return Rows(images=images, labels=self._labels[ids], ids=ids, concepts=concepts)

    def _concepts(self, ids: Tensor, task: int) -> Tensor:
        """Which concept each row shows during a task: that of the last event that has moved it."""
        concepts = torch.full_like(ids, ORIGINAL)
        for number, event in enumerate(self.schedule.events):
            share = event.share_at(task)
            for label, concept in event.concepts.items() if share > 0 else ():
                of_class = (self._labels[ids] == label).nonzero().squeeze(1)
                moved = of_class if share == 1 else self._first(share, of_class, ids, number)
                concepts[moved] = concept
        return concepts

    def _first(self, share: float, positions: Tensor, ids: Tensor, event: int) -> Tensor:
        """The share of rows that an event moves first; a larger share holds every smaller one."""
        if event not in self._lots:
            draw = rng.fork(self.seed, "who-moves-first", event)
            self._lots[event] = torch.rand(len(self._labels), generator=draw)
        rows = ids[positions]
        domains = torch.zeros_like(rows) if self._domains is None else self._domains[rows]
        moved = []
        for domain in torch.unique(domains).tolist():
            among = positions[domains == domain]
            order = self._lots[event][ids[among]].argsort()
            moved.append(among[order[: round(share * len(among))]])
        return torch.cat(moved) if moved else positions

    def _look(self, concept: int, ids: Tensor) -> Tensor:
        """The pixels of rows under a concept."""
        if concept == ORIGINAL:
            return self._images.index_select(0, ids)
        spec = self.schedule.concepts[concept - 1]
        if spec.transform == "identity":
            return self._look(spec.parent, ids)
        if concept not in self._drifted:
            self._drifted[concept] = self._drift(concept)
        drifted = self._drifted[concept]
        return drifted.images.index_select(0, drifted.position[ids])

    def _drift(self, concept: int) -> _Drifted:
        spec = self.schedule.concepts[concept - 1]
        classes = [
            label
            for event in self.schedule.events
            for label, taken_on in event.concepts.items()
            # also classes that reach it on their way to a concept that grew out of it
            if concept in self.schedule.lineage(taken_on)
        ]
        ids = torch.isin(self._labels, torch.tensor(classes)).nonzero().squeeze(1)
        position = torch.full((len(self._labels),), -1, dtype=torch.int64)
        position[ids] = torch.arange(len(ids))
        images = transforms.apply(
            self._look(spec.parent, ids),
            spec.transform,
            spec.severity,
            seed=spec.seed,
            unit=spec.unit,
        )
        return _Drifted(images=images, position=position)


class Task:
    """One task of a stream: the classes it brings and everything that can be read during it."""

    def __init__(self, stream: Stream, number: int) -> None:
        self.number = number
        self.new_classes = stream.schedule.tasks[number - 1]
        self.known_classes = stream.schedule.known(number)
        self._stream = stream

    @property
    def returning_classes(self) -> tuple[int, ...]:
        """Known classes that come back in the task's own training data, labelled."""
        schedule = self._stream.schedule
        return schedule.drifting(self.number) if schedule.recurring_in_training else ()

    def train(self) -> Rows:
        """The labelled rows that the task brings by itself."""
        classes = (*self.new_classes, *self.returning_classes)
        return self._stream.rows("train", classes, self.number)

    def batches(self, rows: Rows, *, epoch: int) -> Iterator[Rows]:
        """The rows once over in an order of the epoch's own, `batch_size` at a time."""
        if not len(rows):  # torch would split nothing into one empty batch
            return iter(())
        shuffle = rng.fork(self._stream.seed, "shuffle", self.number, epoch)
        order = torch.randperm(len(rows), generator=shuffle)
        return (rows[index] for index in torch.split(order, self._stream.batch_size))

    def monitored(self) -> Rows:
        """The rows that a detector may watch: every class known so far, as it looks now."""
        return self._stream.rows("monitored", self.known_classes, self.number)

    def reference(self, label: int) -> Rows:
        """Rows of a class as it looks now, which nobody trains on."""
        return self._stream.rows("reference", [label], self.number)

    def incoming(self, label: int) -> Rows:
        """Rows of a class as it looks now, whose labels can be asked for."""
        return self._stream.rows("train", [label], self.number)

    def classes_by_task(self) -> list[tuple[int, ...]]:
        """The classes that each task up to this one brought."""
        return list(self._stream.schedule.tasks[: self.number])

    def tests(self) -> Rows:
        """The scoring rows of every class seen, this task's included, as they look now."""
        return self._stream.rows("test", (*self.known_classes, *self.new_classes), self.number)


def _check_labels(dataset: Dataset) -> None:
    """Refuse a data set whose labels and class names do not fit."""
    labels, last = dataset.labels, len(dataset.class_names) - 1
    if len(labels) and not (labels.min() >= 0 and labels.max() <= last):
        raise UserError(f"labels must be 0 to {last}; got {labels.min()} to {labels.max()}")


def _domains(dataset: Dataset, schedule: Schedule) -> tuple[Tensor | None, Tensor]:
    """The domain of every row, and the domain that shows each concept, original first."""
    wanted = [schedule.domain_of(concept) for concept in range(len(schedule.concepts) + 1)]
    numbers: dict[str | None, int] = {None: _ANY}
    numbers |= {name: number for number, name in enumerate(dataset.domain_names)}
    for name in wanted:
        if name not in numbers:
            raise unknown_name("domain", name, dataset.domain_names)
    of_rows = None if dataset.domains is None else torch.from_numpy(dataset.domains)
    return of_rows, torch.tensor([numbers[name] for name in wanted])
