"""Who is there during a task: the samples of each part, and which concept each of them shows.

All of it follows from the data set, its parts and the schedule: a saved schedule brings the same
samples back under the same concepts, whatever else differs between two runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError, unknown_name
from driftwise.streams.schedule import ORIGINAL, DriftEvent, Schedule
from driftwise.types import Dataset, Parts

_STAYS = -1
"""What an event gives the classes that it does not name, instead of a concept."""


class Roster:
    """Samples and their concepts, by part, class and task.

    Every event draws lots once and moves the samples of a class in that order, so a larger share holds
    every smaller one: a sample that has drifted stays drifted.

    Natural drift shows other images: a sample is there while its concept belongs to its own domain.
    A class that shows several domains side by side gets equally many samples from each, as many as the
    poorest has; only then are the shares those of the schedule.
    """

    def __init__(self, dataset: Dataset, parts: Parts, schedule: Schedule) -> None:
        self._schedule = schedule
        self._labels = torch.from_numpy(dataset.labels)
        self._parts = {
            name: torch.from_numpy(getattr(parts, name))
            for name in ("train", "monitored", "reference", "test")
        }
        self._drawn: dict[tuple[str, int], Tensor] = {}
        self._taken_on = [_by_label(event, len(dataset.class_names)) for event in schedule.events]
        numbers, domains = _domains(dataset, schedule)
        self._num_domains = len(numbers)
        self._domains = torch.from_numpy(domains)
        self._domain_of_concept = torch.tensor(
            [numbers[schedule.domain_of(c)] for c in range(len(schedule.concepts) + 1)]
        )
        if schedule.first_domain is not None:
            for part in self._parts:
                self._settle_domains(part, numbers, dataset.class_names)

    def members(self, part: str, classes: Sequence[int], task: int) -> tuple[Tensor, Tensor]:
        """A part's samples of some classes during a task, and the concept of each; both (samples,)."""
        ids = self._parts[part]
        ids = ids[torch.isin(self._labels[ids], torch.tensor(classes, dtype=torch.int64))]
        concepts = torch.full_like(ids, ORIGINAL)
        for number, event in enumerate(self._schedule.events):
            if share := event.share_at(task):
                taken_on = self._taken_on[number][self._labels[ids]]
                drifted = (taken_on != _STAYS) & self._first(share, ids, number)
                concepts = torch.where(drifted, taken_on, concepts)
        there = self._domains[ids] == self._domain_of_concept[concepts]
        return ids[there], concepts[there]

    def sets_in_by_steps(self, task: int) -> bool:
        """Whether an event of the task makes samples wait at all."""
        return any(
            event.task == task and event.over_steps is not None for event in self._schedule.events
        )

    def waits(self, ids: Tensor, task: int) -> Tensor:
        """How long samples trained on in a task wait before they drift, in steps: (samples,).

        Step number s, counted from 0, shows a sample drifted where s is above what is given here; a
        sample that has nothing to wait for is given -1.
        """
        steps = torch.full((len(ids),), -1.0)
        for number, event in enumerate(self._schedule.events):
            if event.task == task and event.over_steps is not None:
                turn = self._lots("when-in-the-task", number)[ids] / len(self._labels)
                drifts = self._taken_on[number][self._labels[ids]] != _STAYS
                steps = torch.where(drifts, turn * event.over_steps, steps)
        return steps

    def _first(self, share: float, ids: Tensor, event: int) -> Tensor:
        """Which samples are among the share of their class that an event moves first, bool (samples,)."""
        if share == 1:
            return torch.ones_like(ids, dtype=torch.bool)
        rank, size = self._places(ids, self._lots("who-moves-first", event))
        return rank < (share * size.double()).round()

    def _lots(self, purpose: str, number: int) -> Tensor:
        """A random order of all samples of the data set, always the same one: (samples,)."""
        if (purpose, number) not in self._drawn:
            draw = rng.fork(self._schedule.seed, purpose, number)
            self._drawn[purpose, number] = torch.randperm(len(self._labels), generator=draw)
        return self._drawn[purpose, number]

    def _places(self, ids: Tensor, lots: Tensor) -> tuple[Tensor, Tensor]:
        """The rank of samples by lot, from 0, among those of their class and domain; and how many
        these are: both (samples,)."""
        groups = self._labels[ids] * self._num_domains + self._domains[ids]
        _, group, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
        by_lot = lots[ids].argsort()
        order = by_lot[group[by_lot].argsort(stable=True)]
        rank = torch.empty_like(ids)
        rank[order] = torch.arange(len(ids)) - (sizes.cumsum(0) - sizes)[group[order]]
        return rank, sizes[group]

    def _settle_domains(
        self, part: str, numbers: dict[str | None, int], class_names: Sequence[str]
    ) -> None:
        """Refuse a class that lacks images, and even the domains out where they are mixed."""
        ids = self._parts[part]
        if not len(ids):  # nobody asks for such samples
            return
        pairs = self._labels[ids] * self._num_domains + self._domains[ids]
        counts = torch.bincount(pairs, minlength=len(class_names) * self._num_domains)
        most = torch.full((len(class_names),), len(ids))
        for label in (label for classes in self._schedule.tasks for label in classes):
            names = self._schedule.domains_of(label)
            here = [int(counts[label * self._num_domains + numbers[name]]) for name in names]
            if 0 in here:
                raise UserError(
                    f"class {class_names[label]!r} has no {part} images of domain "
                    f"{names[here.index(0)]!r}, which it is to show; "
                    f"add some or leave the class out"
                )
            if self._schedule.mixes_domains(label):
                most[label] = min(here)
        rank, _ = self._places(ids, self._lots("who-stays", 0))
        self._parts[part] = ids[rank < most[self._labels[ids]]]


def _by_label(event: DriftEvent, num_classes: int) -> Tensor:
    """The concept that an event gives each class, (classes,)."""
    taken_on = torch.full((num_classes,), _STAYS)
    for label, concept in event.concepts.items():
        taken_on[label] = concept
    return taken_on


def _domains(dataset: Dataset, schedule: Schedule) -> tuple[dict[str | None, int], np.ndarray]:
    """The number of each domain by name, and the domain of every sample.

    A schedule that names none knows but one, and takes all samples for its own.
    """
    if schedule.first_domain is None:
        return {None: 0}, np.zeros_like(dataset.labels)
    if dataset.domains is None:
        raise UserError(
            f"the schedule names the domain {schedule.first_domain!r}; the data set has no domains"
        )
    wanted = [schedule.domain_of(concept) for concept in range(len(schedule.concepts) + 1)]
    for name in wanted:
        if name not in dataset.domain_names:
            raise unknown_name("domain", name, dataset.domain_names)
    return {name: number for number, name in enumerate(dataset.domain_names)}, dataset.domains
