"""What a drift cost a class, and how long it took to come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

WITHIN = 2.0
"""points below its former accuracy at which a class still counts as recovered"""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """One class after one event, as the tests at the ends of tasks show it."""

    task: int
    """of the event, counted from 1"""
    label: int
    before: float
    """percent, at the end of the task before"""
    after: tuple[float, ...]
    """percent, at the end of the event's task and of every later one, up to its next event"""
    tasks: int | None
    """how many of these ends it took to come back; None: it has not"""
    area: float
    """points of accuracy lost, summed over these ends"""


def recoveries(
    per_class: Sequence[Mapping[int, float]], events: Iterable[tuple[int, Iterable[int]]]
) -> list[Recovery]:
    """Of every event and class that it changed; a class that was not tested before has none.

    `per_class` holds the accuracies by class at the end of each task, `events` the task and the
    classes of each.

    >>> ends = [{0: 90.0}, {0: 50.0}, {0: 89.0}]
    >>> recoveries(ends, [(2, [0])])[0].tasks, recoveries(ends, [(2, [0])])[0].area
    (2, 41.0)
    """
    changed = [(task, label) for task, labels in events for label in sorted(labels)]
    found = []
    for task, label in sorted(changed):
        next_event = min(
            (later for later, other in changed if other == label and later > task),
            default=len(per_class) + 1,
        )
        before = per_class[task - 2].get(label) if 1 < task <= len(per_class) else None
        if before is None:
            continue
        ends = [scores[label] for scores in per_class[task - 1 : next_event - 1]]
        is_back = [now >= before - WITHIN for now in ends]
        found.append(
            Recovery(
                task=task,
                label=label,
                before=before,
                after=tuple(ends),
                tasks=is_back.index(True) + 1 if any(is_back) else None,
                area=sum(max(0.0, before - now) for now in ends),
            )
        )
    return found
