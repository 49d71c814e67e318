"""First tasks that several runs of a sweep share: run once, and the runs go on from there.

Runs that differ in their drift and their adaptation alone are the same run until the first class
drifts (or is found drifted, in which case the shared run stops before that task). Those that do not
adapt learn the same to the end: one of them is trained, the others follow it.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftwise.config.presets import settled
from driftwise.config.registry import CATALOGUE
from driftwise.config.schema import RunConfig, changed
from driftwise.sweeps.plan import PlannedRun, run_id

UNTIL_DRIFT: Mapping[str, Any] = {
    "adaptation": "vanilla",
    "num_drifts": 0,
    "transform": None,
    "severity": None,
    "scope": "since-last-event",
    "max_classes_per_drift": None,
    "sequential": False,
    "permutation_unit": "pixel",
    "drift_share": 1.0,
    "drift_over_tasks": 1,
    "concept_per_class": False,
    "drift_seed": None,
}
"""Settings that make no difference before the first drift, and their values in shared tasks."""


@dataclass(frozen=True, kw_only=True)
class SharedTasks:
    """The first tasks of several runs."""

    id: str
    config: RunConfig
    """does not drift, does not adapt"""
    until: int
    """the last shared task"""
    parent: str | None
    """the id of shared tasks that these go on from"""
    runs: tuple[str, ...]
    """ids of the runs that go on from these, directly or not"""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The runs of a sweep in their order, and what they share."""

    groups: tuple[tuple[PlannedRun, ...], ...]
    """runs that differ in drift and adaptation alone; a seed after the other"""
    shared: Mapping[str, SharedTasks]
    """by id, parents first"""
    parent_of: Mapping[str, str]
    """id of a run -> id of the shared tasks that it goes on from"""
    leader_of: Mapping[str, str]
    """id of a run that does not adapt -> id of the run that is trained for it"""

    @property
    def runs(self) -> tuple[PlannedRun, ...]:
        """All runs, group by group."""
        return tuple(run for group in self.groups for run in group)

    @property
    def num_tasks(self) -> tuple[int, int]:
        """Tasks to run, with sharing and without."""
        whole = {run.id: tasks_of(run.config) for run in self.runs}
        begun = {run: self.shared[parent].until for run, parent in self.parent_of.items()}
        begun |= {run: whole[run] for run in self.leader_of}
        own = sum(tasks - begun.get(run, 0) for run, tasks in whole.items())
        shared = sum(
            each.until - (self.shared[each.parent].until if each.parent else 0)
            for each in self.shared.values()
        )
        return own + shared, sum(whole.values())


def tree_of(runs: Sequence[PlannedRun]) -> Tree:
    """What runs share; each set of shared tasks belongs to two runs at least."""
    groups: defaultdict[str, list[PlannedRun]] = defaultdict(list)
    for run in runs:
        groups[_key(run)].append(run)
    shared: dict[str, SharedTasks] = {}
    parent_of: dict[str, str] = {}
    leader_of: dict[str, str] = {}
    for members in groups.values():
        lasts = {run.id: _last_shared(run.config) for run in members}
        parent: str | None = None
        for until in sorted({last for last in lasts.values() if last}):
            below = tuple(name for name, last in lasts.items() if last >= until)
            if len(below) < 2:
                break
            config = _before_drift(members[0].config)
            made = SharedTasks(
                id=f"{run_id(config)}-t{until}",
                config=config,
                until=until,
                parent=parent,
                runs=below,
            )
            shared[made.id] = made
            parent = made.id
            parent_of |= dict.fromkeys(below, made.id)
        alike = [run.id for run in members if _trains_without_drift(run.config)]
        if alike:
            leader = max(alike, key=lambda name: lasts[name])
            leader_of |= {name: leader for name in alike if name != leader}
    seeds = list(dict.fromkeys(run.config.seed for run in runs))
    ordered = sorted(groups.values(), key=lambda group: seeds.index(group[0].config.seed))
    return Tree(
        groups=tuple(map(tuple, ordered)), shared=shared, parent_of=parent_of, leader_of=leader_of
    )


def tasks_of(config: RunConfig) -> int:
    """How many tasks a run has."""
    return len(config.tasks) if config.tasks is not None else settled(config.num_tasks)


def _before_drift(config: RunConfig) -> RunConfig:
    options = {part: given for part, given in config.options.items() if part != "adaptation"}
    return changed(config, **UNTIL_DRIFT, options=options)


def _key(run: PlannedRun) -> str:
    """The same for runs that are equal until the first drift."""
    return json.dumps(dataclasses.asdict(_before_drift(run.config)), default=str)


def _trains_without_drift(config: RunConfig) -> bool:
    """Whether drift reaches neither the training data of a run nor its learner."""
    return (
        config.adaptation == "vanilla"
        and not (config.events or config.recurring_in_training)
        and config.method in CATALOGUE["method"]
        and config.method != "joint"  # trains on all classes as they are now
    )


def _last_shared(config: RunConfig) -> int:
    """The task before the first drift; 0: the run shares nothing."""
    if config.events or config.adaptation not in CATALOGUE["adaptation"]:
        return 0  # written event by event; or an adaptation that may act at any time
    from driftwise.streams.drift_events import event_tasks  # late: it imports torch

    num_tasks = tasks_of(config)
    if config.sequential:
        return 1
    return min((num_tasks + 1, *event_tasks(num_tasks, settled(config.num_drifts)))) - 1
