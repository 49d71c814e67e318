"""The samples of each part during a task, and the concept of each of them.

All of it follows from the data set, its parts and the schedule: a saved schedule gives the same
samples under the same concepts, whatever else differs between two runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError, unknown_name
from driftwise.streams.schedule import ORIGINAL, Schedule
from driftwise.types import Dataset, Parts

_UNCHANGED = -1
"""Stands for the concept of a class that an event does not name."""


class Roster:
    """Samples and their concepts, by part, class and task.

    Every event draws one random order of all samples and drifts the samples of a class in that
    order, so a larger share holds every smaller one: a sample that has drifted stays drifted.

    Natural drift shows other images: a sample is present while its concept belongs to its own
    domain. A class that shows several domains side by side gets equally many samples from each, as
    many as the smallest has; only then are the shares those of the schedule.
    """

    def __init__(self, dataset: Dataset, parts: Parts, schedule: Schedule) -> None:
        self._schedule = schedule
        self._labels = torch.from_numpy(dataset.labels)
        self._parts = {
            name: torch.from_numpy(getattr(parts, name))
            for name in ("train", "monitored", "reference", "test")
        }
        self._orders: dict[tuple[str, int], Tensor] = {}
        self._new_concepts = torch.full(
            (len(schedule.events), len(dataset.class_names)), _UNCHANGED
        )
        for number, event in enumerate(schedule.events):
            for label, concept in event.concepts.items():
                self._new_concepts[number, label] = concept
        numbers, domains = _domains(dataset, schedule)
        self._num_domains = len(numbers)
        self._domains = torch.from_numpy(domains)
        self._domain_of_concept = torch.tensor(
            [numbers[schedule.domain_of(c)] for c in range(len(schedule.concepts) + 1)]
        )
        if schedule.first_domain is not None:
            for part in self._parts:
                self._balance_domains(part, numbers, dataset.class_names)

    def members(self, part: str, classes: Sequence[int], task: int) -> tuple[Tensor, Tensor]:
        """Ids of a part's samples of some classes during a task, and their concepts: (samples,)."""
        ids = self._parts[part]
        ids = ids[torch.isin(self._labels[ids], torch.tensor(classes, dtype=torch.int64))]
        concepts = torch.full_like(ids, ORIGINAL)
        for number, event in enumerate(self._schedule.events):
            if share := event.share_at(task):
                new = self._new_concepts[number][self._labels[ids]]
                drifted = new != _UNCHANGED
                if share < 1:
                    rank, size = self._ranks(ids, self._order("who-moves-first", number))
                    drifted &= rank < (share * size.double()).round()
                concepts = torch.where(drifted, new, concepts)
        present = self._domains[ids] == self._domain_of_concept[concepts]
        return ids[present], concepts[present]

    def sets_in_by_steps(self, task: int) -> bool:
        """Whether an event of the task drifts samples step by step."""
        return any(
            event.task == task and event.over_steps is not None for event in self._schedule.events
        )

    def last_steps_before_drift(self, ids: Tensor, task: int) -> Tensor:
        """The last step of a task at which each training sample has not drifted: (samples,).

        Steps count from 0; a sample that no event of the task drifts step by step gets -1.
        """
        steps = torch.full((len(ids),), -1.0)
        for number, event in enumerate(self._schedule.events):
            if event.task == task and event.over_steps is not None:
                place = self._order("when-in-the-task", number)[ids] / len(self._labels)
                drifts = self._new_concepts[number][self._labels[ids]] != _UNCHANGED
                steps = torch.where(drifts, place * event.over_steps, steps)
        return steps

    def _order(self, purpose: str, number: int) -> Tensor:
        """A random order of all samples of the data set, always the same one: (samples,)."""
        if (purpose, number) not in self._orders:
            draw = rng.fork(self._schedule.seed, purpose, number)
            self._orders[purpose, number] = torch.randperm(len(self._labels), generator=draw)
        return self._orders[purpose, number]

    def _ranks(self, ids: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """Ranks of samples in a random order among their class and domain, and its size: (samples,)."""
        groups = self._labels[ids] * self._num_domains + self._domains[ids]
        _, group, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
        by_order = order[ids].argsort()
        grouped = by_order[group[by_order].argsort(stable=True)]
        rank = torch.empty_like(ids)
        rank[grouped] = torch.arange(len(ids)) - (sizes.cumsum(0) - sizes)[group[grouped]]
        return rank, sizes[group]

    def _balance_domains(
        self, part: str, numbers: dict[str | None, int], class_names: Sequence[str]
    ) -> None:
        """Refuse a class without images of a domain, and balance domains where they are mixed."""
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
                missing = names[here.index(0)]
                remedy = "add some, or leave the class out"
                if missing != self._schedule.first_domain:
                    remedy = (
                        "add some, leave the class out, or let only classes drift that have samples "
                        "there: scope all-present"
                    )
                raise UserError(
                    f"class {class_names[label]!r} has no {part} samples of domain {missing!r}, which "
                    f"it is to show; {remedy}"
                )
            if self._schedule.mixes_domains(label):
                most[label] = min(here)
        rank, _ = self._ranks(ids, self._order("who-stays", 0))
        self._parts[part] = ids[rank < most[self._labels[ids]]]


def _domains(dataset: Dataset, schedule: Schedule) -> tuple[dict[str | None, int], np.ndarray]:
    """The number of each domain by name, and the domain of every sample.

    A schedule that names none has only one, which all samples belong to.
    """
    if schedule.first_domain is None:
        return {None: 0}, np.zeros_like(dataset.labels)
    if dataset.domains is None:
        raise UserError(
            f"the schedule names the domain {schedule.first_domain!r}; the data set has no domains"
        )
    for concept in range(len(schedule.concepts) + 1):
        if (name := schedule.domain_of(concept)) not in dataset.domain_names:
            raise unknown_name("domain", name, dataset.domain_names)
    return {name: number for number, name in enumerate(dataset.domain_names)}, dataset.domains
