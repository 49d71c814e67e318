"""Tasks and drift events placed by the paper's rules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from driftwise.errors import UserError
from driftwise.streams.event_spec import EventSpec
from driftwise.streams.schedule import SCOPES, Schedule
from driftwise.streams.script import make_script


def event_tasks(num_tasks: int, num_drifts: int) -> tuple[int, ...]:
    """The tasks (from 1) at which drift sets in, spread as in the published experiments.

    >>> event_tasks(5, 1), event_tasks(5, 2), event_tasks(10, 2), event_tasks(10, 4)
    ((3,), (2, 4), (4, 7), (3, 5, 7, 9))
    """
    if not 0 <= num_drifts <= num_tasks - 1:
        raise UserError(
            f"num_drifts must be 0 to {num_tasks - 1} for {num_tasks} tasks "
            f"(nothing has been learned before the first); got {num_drifts}"
        )
    if num_drifts == 0:
        return ()
    first = num_tasks // (num_drifts + 1)
    places = np.floor(np.linspace(first, num_tasks, num_drifts, endpoint=False)).astype(int)
    return tuple(int(place) + 1 for place in places)


def split_classes(classes: Sequence[int], num_tasks: int) -> tuple[tuple[int, ...], ...]:
    """Tasks as equal as can be, the first ones larger by a class, in the order given.

    >>> split_classes(range(7), 2)
    ((0, 1, 2, 3), (4, 5, 6))
    """
    if not 1 <= num_tasks <= len(classes):
        raise UserError(
            f"{len(classes)} classes cannot be split into {num_tasks} tasks; choose at least one "
            "task and at most one for each class, or name the classes of each task"
        )
    size, larger = divmod(len(classes), num_tasks)
    ends = [task * size + min(task, larger) for task in range(num_tasks + 1)]
    return tuple(tuple(classes[begin:end]) for begin, end in itertools.pairwise(ends))


def describe_sizes(tasks: Sequence[Sequence[int]]) -> str:
    """How many classes each task has, in words.

    >>> describe_sizes(((0, 1, 2, 3), (4, 5, 6)))
    '7 classes in 2 tasks: the first has 4 classes, the others 3'
    """
    sizes = [len(task) for task in tasks]
    larger = sizes.count(max(sizes))
    first = "the first has" if larger == 1 else f"the first {larger} have"
    return (
        f"{sum(sizes)} classes in {len(sizes)} tasks: {first} {max(sizes)} classes, "
        f"the others {min(sizes)}"
    )


def make_schedule(
    tasks: Sequence[Sequence[int]],
    *,
    num_drifts: int,
    transform: str,
    severity: int,
    seed: int,
    scope: str = "since-last-event",
    max_classes_per_drift: int | None = None,
    sequential: bool = False,
    unit: str = "pixel",
    recurring_in_training: bool = False,
    share: float = 1.0,
    over_tasks: int = 1,
    per_class: bool = False,
    drift_seed: int | None = None,
    domains: Sequence[str] = (),
    first_domain: str | None = None,
) -> Schedule:
    """A schedule by the paper's rules.

    At an event drift the classes learned since the previous one (`since-last-event`) or all classes
    seen (`all-seen`), of these at most the `max_classes_per_drift` most recent ones. `sequential`
    puts an event at every task from the second on, for the classes of the task just before it.
    Where `domains` are given drift is natural: each event takes the next of them, and no transform.
    """
    if scope not in SCOPES:
        raise UserError(f"scope must be one of {', '.join(SCOPES)}; got {scope!r}")
    if not 1 <= severity <= 5:
        raise UserError(f"severity must be 1 to 5; got {severity}")
    if max_classes_per_drift is not None and max_classes_per_drift < 1:
        raise UserError(f"max_classes_per_drift must be at least 1; got {max_classes_per_drift}")
    places = range(2, len(tasks) + 1) if sequential else event_tasks(len(tasks), num_drifts)
    events = []
    previous = 1
    for number, task in enumerate(places):
        begin = task - 1 if sequential else previous if scope == "since-last-event" else 1
        drifting = [label for classes in tasks[begin - 1 : task - 1] for label in classes]
        events.append(
            EventSpec(
                task=task,
                classes=tuple(drifting[-(max_classes_per_drift or len(drifting)) :]),
                transforms=() if domains else ((transform, severity),),
                domain=domains[number % len(domains)] if domains else None,
                unit=unit,
                share=share,
                over_tasks=over_tasks,
                per_class=per_class,
                seed=drift_seed,
            )
        )
        previous = task
    return make_script(
        tasks,
        events,
        seed=seed,
        recurring_in_training=recurring_in_training,
        first_domain=first_domain,
    )
