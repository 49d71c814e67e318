"""A time budget: how long runs take by those that are done, and what will fit."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from driftwise.config.schema import RunConfig
from driftwise.sweeps.shared import Tree, tasks_of

MOST_NAMES = 6
"""of groups in a sentence"""


class Budget:
    """Seconds until a sweep has to end, and the seconds that tasks of its runs have taken."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = clock() + seconds
        self._measured: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)
        self.num_measured = 0

    @property
    def left(self) -> float:
        """Seconds; below 0 once time is up."""
        return self._end - self._clock()

    def add(self, config: RunConfig, tasks: int, seconds: float) -> None:
        """So many tasks of a run have taken so long."""
        if tasks > 0:
            self.num_measured += 1
            for key in _like(config):
                self._measured[key].append(seconds / tasks)

    def estimate(self, config: RunConfig, tasks: int) -> float | None:
        """Seconds of so many tasks, by the runs most like it; None: nothing was measured yet."""
        for key in _like(config):
            if known := self._measured.get(key):
                return tasks * sum(known) / len(known)
        return None

    def fits(self, config: RunConfig, tasks: int) -> bool:
        """Whether so many tasks end in time, as far as is known."""
        return (self.estimate(config, tasks) or 0.0) <= self.left

    def forecast(self, tree: Tree, done: Callable[[str], bool], slots: int) -> str:
        """In a sentence, how much of what is left will be done in time, and which groups."""
        hours = f"{self.seconds / 3600:.3g} h"
        needed, groups, runs = 0.0, 0, 0
        for group in tree.groups:
            waiting = [run for run in group if not done(run.id)]
            for config, tasks in _work(tree, {run.id for run in waiting}):
                if (seconds := self.estimate(config, tasks)) is None:
                    return f"what fits into {hours} is not known before the first runs are done"
                needed += seconds / slots
            if needed > self.left:
                break
            groups, runs = groups + 1, runs + len(group)
        whole = len(tree.groups)
        names = [name for name in group_names(tree)[:groups] if name]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        return (
            f"about {groups} of {whole} groups ({runs} of {len(tree.runs)} runs) will be complete "
            f"after {hours}, by {self.num_measured} runs that were measured"
            + (f": {'; '.join(names[:MOST_NAMES])}{more}" if names else "")
        )


def group_names(tree: Tree) -> list[str]:
    """What each group has to itself: settings that differ between groups and not within one."""
    places = [
        {
            key: value
            for key, value in group[0].place.items()
            if all(run.place.get(key) == value for run in group)
        }
        for group in tree.groups
    ]
    common = set.intersection(*(set(place) for place in places))
    varying = [
        key for key in places[0] if key in common and len({place[key] for place in places}) > 1
    ]
    return [
        ", ".join(f"{key.replace('_', ' ')} {place[key]}" for key in varying) for place in places
    ]


def own_tasks(tree: Tree, run_id: str, config: RunConfig) -> int:
    """Tasks of a run that are trained for it alone."""
    if run_id in tree.leader_of:
        return 0
    parent = tree.parent_of.get(run_id)
    return tasks_of(config) - (0 if parent is None else tree.shared[parent].until)


def _work(tree: Tree, waiting: set[str]) -> Iterator[tuple[RunConfig, int]]:
    """Configs and numbers of tasks: of waiting runs, and of what they share."""
    for shared in tree.shared.values():
        if len(waiting & set(shared.runs)) > 1:
            before = 0 if shared.parent is None else tree.shared[shared.parent].until
            yield shared.config, shared.until - before
    for run in tree.runs:
        if run.id in waiting:
            yield run.config, own_tasks(tree, run.id, run.config)


def _like(config: RunConfig) -> Sequence[tuple[object, ...]]:
    """Keys of runs that take equally long, the most alike first."""
    method = (config.benchmark, config.method)
    return (
        (*method, config.buffer_size, config.adaptation, config.num_drifts),
        (*method, config.adaptation),
        method,
        method[:1],
        (),
    )
