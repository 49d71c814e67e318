"""Which classes arrive and drift when: pure data, saved with every run.

A *concept* is a look that a class can have. Concept 0 is the original; any other is a transform of
the concept it grew out of, so a class that drifts twice drifts from where the first drift left it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from recollect import rng
from recollect.errors import UserError

ORIGINAL = 0
"""The number of the concept that nothing has been done to."""

SCOPES = ("since-last-event", "all-seen")


@dataclass(frozen=True, kw_only=True)
class Concept:
    """One look: a transform of the pixels of the concept it grew out of."""

    transform: str
    severity: int
    seed: int
    """what the transform's randomness is drawn from"""
    parent: int = ORIGINAL
    """number of the concept whose pixels are transformed"""
    unit: str = "pixel"
    """what a permutation moves: single pixels or whole rows"""


@dataclass(frozen=True, kw_only=True)
class DriftEvent:
    """From this task on, each class shows the concept named beside it."""

    task: int
    """counted from 1; drift is in force when the task begins"""
    concepts: dict[int, int]
    """class -> number of the concept it takes on"""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The whole script of a stream."""

    tasks: tuple[tuple[int, ...], ...]
    """the new classes of each task, in order of arrival; a task may bring none"""
    events: tuple[DriftEvent, ...] = ()
    concepts: tuple[Concept, ...] = ()
    """concept number i + 1 is concepts[i]; number 0 is the original look"""
    recurring_in_training: bool = False
    """whether drifted classes come back, labelled, in the training data of the event's task"""

    def __post_init__(self) -> None:
        classes = [label for task in self.tasks for label in task]
        if len(set(classes)) != len(classes):
            raise UserError("a class may arrive only once; a task's list repeats one")
        for number, concept in enumerate(self.concepts, start=1):
            if not ORIGINAL <= concept.parent < number:
                raise UserError(
                    f"concept {number} must grow out of one before it; got parent {concept.parent}"
                )
        places = [event.task for event in self.events]
        if places != sorted(places):
            raise UserError(f"drift events must stand in the order of their tasks; got {places}")
        for event in self.events:
            self._check_event(event)

    def _check_event(self, event: DriftEvent) -> None:
        if not 2 <= event.task <= self.num_tasks:
            raise UserError(
                f"classes can drift at tasks 2 to {self.num_tasks}; an event names {event.task}"
            )
        unseen = sorted(set(event.concepts) - set(self.known(event.task)))
        if unseen:
            raise UserError(
                f"classes {unseen} cannot drift at task {event.task}: not learned before it"
            )
        nameless = sorted(set(event.concepts.values()) - set(range(len(self.concepts) + 1)))
        if nameless:
            raise UserError(
                f"there are concepts 0 to {len(self.concepts)}; an event names {nameless}"
            )

    @property
    def num_tasks(self) -> int:
        """How many tasks there are."""
        return len(self.tasks)

    def known(self, task: int) -> tuple[int, ...]:
        """The classes that arrived before `task` (counted from 1)."""
        return tuple(label for classes in self.tasks[: task - 1] for label in classes)

    def drifting(self, task: int) -> tuple[int, ...]:
        """The classes that change their look exactly at `task`."""
        return tuple(
            label for event in self.events if event.task == task for label in event.concepts
        )

    def concept_of(self, label: int, task: int) -> int:
        """Number of the concept that a class shows during `task`."""
        shown = ORIGINAL
        for event in self.events:
            if event.task <= task:
                shown = event.concepts.get(label, shown)
        return shown

    def lineage(self, concept: int) -> tuple[int, ...]:
        """The concepts on the way from the original (left out) to this one, itself last."""
        chain: list[int] = []
        while concept != ORIGINAL:
            chain.append(concept)
            concept = self.concepts[concept - 1].parent
        return tuple(reversed(chain))

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives the same schedule back."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Schedule:
        """The schedule that `to_json` described."""
        return Schedule(
            tasks=tuple(tuple(classes) for classes in data["tasks"]),
            events=tuple(
                DriftEvent(
                    task=event["task"],
                    concepts={int(label): c for label, c in event["concepts"].items()},
                )
                for event in data["events"]
            ),
            concepts=tuple(Concept(**concept) for concept in data["concepts"]),
            recurring_in_training=data["recurring_in_training"],
        )


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
    """Equal tasks, the classes taken in the order given."""
    if num_tasks < 1 or not classes or len(classes) % num_tasks:
        raise UserError(
            f"{len(classes)} classes cannot be split into {num_tasks} equal tasks; choose a number "
            f"of tasks that divides them, or name the classes of each task"
        )
    size = len(classes) // num_tasks
    return tuple(tuple(classes[i : i + size]) for i in range(0, len(classes), size))


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
) -> Schedule:
    """A schedule by the paper's rules.

    At an event drift the classes learned since the previous one (`since-last-event`) or all classes
    seen (`all-seen`), of these at most the `max_classes_per_drift` most recent ones. `sequential`
    puts an event at every task from the second on, for the classes of the task just before it.
    """
    if scope not in SCOPES:
        raise UserError(f"scope must be one of {', '.join(SCOPES)}; got {scope!r}")
    if not 1 <= severity <= 5:
        raise UserError(f"severity must be 1 to 5; got {severity}")
    if max_classes_per_drift is not None and max_classes_per_drift < 1:
        raise UserError(f"max_classes_per_drift must be at least 1; got {max_classes_per_drift}")
    places = range(2, len(tasks) + 1) if sequential else event_tasks(len(tasks), num_drifts)
    concepts: list[Concept] = []
    events: list[DriftEvent] = []
    shown: dict[int, int] = {}
    previous = 1
    for number, task in enumerate(places, start=1):
        begin = task - 1 if sequential else previous if scope == "since-last-event" else 1
        drifting = [label for classes in tasks[begin - 1 : task - 1] for label in classes]
        drifting = drifting[-max_classes_per_drift:] if max_classes_per_drift else drifting
        previous = task
        if not drifting:
            continue
        changes: dict[int, int] = {}
        made: dict[int, int] = {}
        for label in drifting:
            parent = shown.get(label, ORIGINAL)
            if parent not in made:
                concepts.append(
                    Concept(
                        transform=transform,
                        severity=severity,
                        seed=rng.derive(seed, "drift", number),
                        parent=parent,
                        unit=unit,
                    )
                )
                made[parent] = len(concepts)
            changes[label] = made[parent]
        shown.update(changes)
        events.append(DriftEvent(task=task, concepts=changes))
    return Schedule(
        tasks=tuple(tuple(classes) for classes in tasks),
        events=tuple(events),
        concepts=tuple(concepts),
        recurring_in_training=recurring_in_training,
    )
