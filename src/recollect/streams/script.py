"""Drift events as a person writes them, turned into a schedule.

events:
  - {task: 2, classes: [0, 1], transforms: [[rotation, 2]], name: turned}
  - {task: 3, classes: since-last-event, domain: cartoon, share: 0.5}
  - {task: 4, classes: [0], to: original}
  - {task: 4, classes: [1], transforms: [[permutation, 5], [gaussian-noise, 3]], over_tasks: 3}
  - {task: 5, classes: [0], to: turned}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from recollect import rng
from recollect.errors import UserError, unknown_name
from recollect.streams.schedule import ORIGINAL, SCOPES, Concept, DriftEvent, Schedule
from recollect.streams.transforms import SEVERITIES, TRANSFORMS


@dataclass(frozen=True, kw_only=True)
class EventSpec:
    """One event of a script: who drifts when, to what look, how much of it, how fast."""

    task: int
    """when it sets in, counted from 1"""
    classes: str | tuple[int, ...] = "since-last-event"
    """class numbers, or a scope: since-last-event, all-seen"""
    transforms: tuple[tuple[str, int], ...] = ()
    """(transform, severity), one after the other; several make a compound drift"""
    domain: str | None = None
    """natural drift: the classes come back as pictures of this domain"""
    to: str | None = None
    """back to an earlier event's look by its name, or to the original"""
    name: str | None = None
    """what later events call this look"""
    share: float = 1.0
    """how much of each class moves; below 1 the old look stays valid beside the new one"""
    over_tasks: int = 1
    """over how many tasks the share rises; many: concealed from a detector that looks at each"""
    per_class: bool = False
    """every class drifts by a concept of its own instead of sharing one"""
    unit: str = "pixel"
    """what a permutation moves: pixel or row"""
    seed: int | None = None
    """what its randomness is drawn from; None: the run's seed, anew for every event"""


def read_event(values: Mapping[str, Any], *, source: str) -> EventSpec:
    """An event from plain data; what does not fit is a user's error that names the source."""
    known = {field.name for field in fields(EventSpec)}
    for key in values:
        if key not in known:
            raise UserError(f"{source}: {unknown_name('key of an event', key, known)}")
    if not isinstance(values.get("task"), int):
        raise UserError(f"{source}: an event needs a task, a number; got {values.get('task')!r}")
    ready = dict(values)
    if not isinstance(ready.get("classes", ""), str):
        ready["classes"] = tuple(int(label) for label in ready["classes"])
    ready["transforms"] = tuple(_transform(pair, source) for pair in ready.get("transforms", ()))
    spec = EventSpec(**ready)
    looks = [bool(spec.transforms), spec.domain is not None, spec.to is not None]
    if sum(looks) == 0 or (spec.to is not None and sum(looks) > 1):
        raise UserError(
            f"{source}: an event takes transforms, a domain or both, or else `to` an earlier look"
        )
    return spec


def make_script(
    tasks: Sequence[Sequence[int]],
    events: Sequence[EventSpec],
    *,
    seed: int,
    recurring_in_training: bool = False,
    first_domain: str | None = None,
) -> Schedule:
    """The schedule that plays these events over these tasks."""
    writer = _Writer(tasks, seed)
    for number, spec in enumerate(sorted(events, key=lambda event: event.task), start=1):
        writer.add(number, spec)
    return Schedule(
        tasks=tuple(tuple(classes) for classes in tasks),
        events=tuple(writer.events),
        concepts=tuple(writer.concepts),
        recurring_in_training=recurring_in_training,
        first_domain=first_domain,
    )


class _Writer:
    """Writes concepts and events down, keeping in mind what every class shows."""

    def __init__(self, tasks: Sequence[Sequence[int]], seed: int) -> None:
        self.concepts: list[Concept] = []
        self.events: list[DriftEvent] = []
        self._tasks = tasks
        self._seed = seed
        self._shown: dict[int, int] = {}
        self._named: dict[str, dict[int, int]] = {}
        self._last_event = 1

    def add(self, number: int, spec: EventSpec) -> None:
        """One event more."""
        changes: dict[int, int] = {}
        shared: dict[int, int] = {}
        for label in self._classes(spec):
            if spec.to is not None:
                changes[label] = self._earlier(spec.to, label)
                continue
            parent = self._shown.get(label, ORIGINAL)
            # Classes that come from one look share the new one, unless each is to have its own.
            key = label if spec.per_class else parent
            if key not in shared:
                shared[key] = self._grow(number, spec, parent, label if spec.per_class else None)
            changes[label] = shared[key]
        self._last_event = spec.task
        if not changes:
            return
        self._shown.update(changes)
        if spec.name is not None:
            self._named[spec.name] = changes
        self.events.append(
            DriftEvent(
                task=spec.task, concepts=changes, share=spec.share, over_tasks=spec.over_tasks
            )
        )

    def _classes(self, spec: EventSpec) -> list[int]:
        if not isinstance(spec.classes, str):
            return list(spec.classes)
        if spec.classes not in SCOPES:
            raise unknown_name("scope of classes", spec.classes, SCOPES)
        begin = self._last_event if spec.classes == "since-last-event" else 1
        return [label for task in self._tasks[begin - 1 : spec.task - 1] for label in task]

    def _earlier(self, name: str, label: int) -> int:
        if name == "original":
            return ORIGINAL
        if name not in self._named:
            raise unknown_name("look", name, ["original", *self._named])
        if label not in self._named[name]:
            raise UserError(
                f"class {label} never took on the look {name!r}; it cannot return to it"
            )
        return self._named[name][label]

    def _grow(self, number: int, spec: EventSpec, parent: int, own: int | None) -> int:
        """A new concept, by way of as many as the event has transforms; its number."""
        path: list[str | int] = ["drift", number] if own is None else ["drift", number, "of", own]
        seed = rng.derive(self._seed, *path) if spec.seed is None else spec.seed
        for step, (transform, severity) in enumerate(spec.transforms or [("identity", 1)]):
            self.concepts.append(
                Concept(
                    transform=transform,
                    severity=severity,
                    seed=seed if step == 0 else rng.derive(seed, step),
                    parent=parent,
                    unit=spec.unit,
                    domain=spec.domain if step == 0 else None,
                )
            )
            parent = len(self.concepts)
        return parent


def _transform(pair: Any, source: str) -> tuple[str, int]:
    if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise UserError(f"{source}: a transform is written [name, severity]; got {pair!r}")
    name, severity = pair
    if name not in TRANSFORMS:
        raise unknown_name("transform", name, TRANSFORMS)
    if severity not in SEVERITIES:
        raise UserError(f"severity must be 1 to 5; got {severity!r}")
    return name, severity
