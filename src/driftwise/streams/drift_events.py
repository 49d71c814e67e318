"""Drift events: as a person writes them, or placed by the paper's rules, and their schedule.

events:
  - {task: 2, classes: [0, 1], transforms: [[rotation, 2]], name: turned}
  - {task: 3, classes: since-last-event, domain: cartoon, share: 0.5}
  - {task: 4, classes: [0], to: original}
  - {task: 4, classes: [1], transforms: [[permutation, 5], [gaussian-noise, 3]], over_tasks: 3}
  - {task: 5, classes: [0], to: turned}
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftwise import rng
from driftwise.errors import UserError, unknown_name
from driftwise.streams.schedule import ORIGINAL, RULES, SCOPES, Concept, DriftEvent, Schedule
from driftwise.streams.transforms import SEVERITIES, TRANSFORMS, UNITS
from driftwise.streams.vector_transforms import VECTOR_TRANSFORMS

ALL_TRANSFORMS = tuple(dict.fromkeys((*TRANSFORMS, *VECTOR_TRANSFORMS)))
"""of images, of vectors or of both"""

MOST_TRANSFORMS = 20
"""of one event; every one of them keeps the pixels of its classes"""


@dataclass(frozen=True, kw_only=True)
class EventSpec:
    """One event of a script: which classes drift when, to what concept, how much, how fast.

    >>> spec = EventSpec(task=3, classes=(0, 1), transforms=(("rotation", 3),))
    >>> make_script([(0, 1), (2, 3), (4, 5)], [spec], seed=0).events[0].task
    3
    """

    task: int
    """when it sets in, counted from 1"""
    classes: str | tuple[int, ...] = "since-last-event"
    """class numbers, or a scope: since-last-event, all-seen"""
    transforms: tuple[tuple[str, int], ...] = ()
    """(transform, severity), one after the other, upon the last concept of a class; several
    make a compound drift"""
    domain: str | None = None
    """natural drift: the classes return as images of this domain"""
    to: str | None = None
    """back to an earlier event's concept by its name, or to the original"""
    name: str | None = None
    """the name of this concept in later events"""
    share: float = 1.0
    """the fraction of each class that drifts; below 1 the old concept stays valid beside the new"""
    over_tasks: int = 1
    """over how many tasks the share rises; many: hard to see in each task"""
    over_steps: int | None = None
    """over how many steps of its first epoch the event's own task shows the share rise, where
    drifted classes return in training; None: all at once"""
    per_class: bool = False
    """every class drifts by a concept of its own instead of sharing one (`own_transforms`)"""
    unit: str = "pixel"
    """what a permutation moves: pixel, or row (of the image)"""
    seed: int | None = None
    """what its transforms draw from; None: the run's seed, different for every event"""

    def __post_init__(self) -> None:
        is_new = bool(self.transforms) or self.domain is not None
        if is_new == (self.to is not None):
            raise UserError(
                "an event takes transforms, a domain or both, or else `to` an earlier concept"
            )
        if len(self.transforms) > MOST_TRANSFORMS:
            raise UserError(
                f"an event takes at most {MOST_TRANSFORMS} transforms, one upon the other; got "
                f"{len(self.transforms):,}"
            )
        for name, severity in self.transforms:
            if name not in ALL_TRANSFORMS:
                raise unknown_name("transform", name, ALL_TRANSFORMS)
            if severity not in SEVERITIES:
                raise UserError(f"severity must be 1 to 5; got {severity}")
        if self.unit not in UNITS:
            raise unknown_name("unit", self.unit, UNITS)
        if self.per_class and not self.transforms:
            raise UserError(
                "per_class varies transforms, and the event has none; "
                "give every class an event and a domain of its own instead"
            )


# Events in plain data


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "task": ((int,), "a number"),
    "classes": ((str, list, tuple), "a list of class numbers, or a scope"),
    "transforms": ((list, tuple), "a list of [name, severity]"),
    "domain": ((str,), "a name"),
    "to": ((str,), "a name"),
    "name": ((str,), "a name"),
    "share": ((int, float), "a number"),
    "over_tasks": ((int,), "a number"),
    "over_steps": ((int,), "a number"),
    "per_class": ((bool,), "true or false"),
    "unit": ((str,), "a name"),
    "seed": ((int,), "a number"),
}
"""The types of plain data under each key of an event, and their name in messages."""


def read_event(values: Mapping[str, Any], *, source: str) -> EventSpec:
    """An event from plain data; UserError that names the source where it does not fit.

    >>> read_event({"task": 3, "transforms": [["rotation", 2]]}, source="events").task
    3
    """
    try:
        given = {key: value for key, value in values.items() if value is not None}
        for key, value in given.items():
            if key not in _KINDS:
                raise unknown_name("key of an event", key, _KINDS)
            types, words = _KINDS[key]
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                raise UserError(f"{key} must be {words}; got {value!r}")
        if "task" not in given:
            raise UserError("an event needs a task, a number; got none")
        if not isinstance(given.get("classes", ""), str):
            for label in given["classes"]:
                if type(label) is not int:
                    raise UserError(
                        f"classes must be {_KINDS['classes'][1]}; got {label!r} in the list"
                    )
            if not given["classes"]:
                raise UserError("classes is empty, so that nothing would drift; name some")
            given["classes"] = tuple(given["classes"])
        for pair in given.get("transforms", ()):
            match pair:
                case [str(), int(severity)] if not isinstance(severity, bool):
                    continue
            raise UserError(f"a transform is written [name, severity]; got {pair!r}")
        given["transforms"] = tuple(tuple(pair) for pair in given.get("transforms", ()))
        return EventSpec(**given)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


# Events placed by the paper's rules


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
    vectors: bool = False,
    present: Mapping[str, Collection[int]] | None = None,
) -> Schedule:
    """A schedule by the paper's rules.

    At an event drift the classes learned since the previous one (`since-last-event`) or all classes
    seen (`all-seen`), of these at most the `max_classes_per_drift` most recent ones. `sequential`
    puts an event at every task from the second on, for the classes of the task just before it.
    Where `domains` are given drift is natural: each event takes the next of them, and no transform.
    `vectors`: transforms are those of feature vectors.
    `all-present` is `all-seen` less the classes that are not `present` in the event's domain: they
    stay as they were.

    >>> tasks = [(0, 1), (2, 3), (4, 5)]
    >>> found = make_schedule(tasks, num_drifts=1, transform="permutation", severity=5, seed=0)
    >>> [sorted(event.concepts) for event in found.events]
    [[0, 1]]
    """
    if scope not in RULES:
        raise UserError(f"scope must be one of {', '.join(RULES)}; got {scope!r}")
    if scope == "all-present" and not (domains and present is not None):
        raise UserError("scope all-present needs data with domains, and the domains to drift to")
    if severity not in SEVERITIES:
        raise UserError(f"severity must be 1 to 5; got {severity}")
    if max_classes_per_drift is not None and max_classes_per_drift < 1:
        raise UserError(f"max_classes_per_drift must be at least 1; got {max_classes_per_drift}")
    places = range(2, len(tasks) + 1) if sequential else event_tasks(len(tasks), num_drifts)
    events = []
    previous = 1
    for number, task in enumerate(places):
        begin = task - 1 if sequential else previous if scope == "since-last-event" else 1
        drifting = [label for classes in tasks[begin - 1 : task - 1] for label in classes]
        if scope == "all-present" and present is not None:
            here = present.get(domains[number % len(domains)], ())
            drifting = [label for label in drifting if label in here]
            if not drifting:
                continue
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
        vectors=vectors,
    )


# From events to a schedule


def make_script(
    tasks: Sequence[Sequence[int]],
    events: Sequence[EventSpec],
    *,
    seed: int,
    recurring_in_training: bool = False,
    first_domain: str | None = None,
    vectors: bool = False,
) -> Schedule:
    """The schedule of these events over these tasks; `vectors`: of feature vectors.

    >>> spec = EventSpec(task=2, transforms=(("rotation", 3),))
    >>> len(make_script([(0, 1), (2, 3)], [spec], seed=0).events)
    1
    """
    writer = _Writer(tasks, seed, VECTOR_TRANSFORMS if vectors else TRANSFORMS)
    for number, spec in enumerate(sorted(events, key=lambda event: event.task), start=1):
        writer.add(number, spec)
    return Schedule(
        tasks=tuple(tuple(classes) for classes in tasks),
        events=tuple(writer.events),
        concepts=tuple(writer.concepts),
        recurring_in_training=recurring_in_training,
        first_domain=first_domain,
        seed=seed,
    )


def own_transforms(
    transforms: Sequence[tuple[str, int]], place: int, table: Sequence[str] = TRANSFORMS
) -> tuple[tuple[str, int], ...]:
    """The transforms of the class at a place (from 0) among those that get a concept of their own.

    A permutation is drawn for every class, and that is enough. Other transforms differ too little
    between draws (a blur is a blur), so there the first class takes what the event names, every
    other the next transform of the table, and after a whole round the next severity: concepts
    repeat after 30 classes.

    >>> [own_transforms([("rotation", 5)], place) for place in (0, 1, 6)]
    [(('rotation', 5),), (('defocus-blur', 5),), (('rotation', 1),)]
    """
    if any(name == "permutation" for name, _ in transforms):
        return tuple(transforms)
    names = [name for name in table if name != "identity"]
    return tuple(
        (name, severity)
        if name not in names  # no change, or one that these samples cannot show
        else (
            names[(names.index(name) + place) % len(names)],
            (severity - 1 + place // len(names)) % len(SEVERITIES) + 1,
        )
        for name, severity in transforms
    )


class _Writer:
    """Collects concepts and events, and keeps track of the concept of every class."""

    def __init__(
        self, tasks: Sequence[Sequence[int]], seed: int, transforms: Sequence[str]
    ) -> None:
        self.concepts: list[Concept] = []
        self.events: list[DriftEvent] = []
        self._tasks = tasks
        self._seed = seed
        self._transforms = transforms
        self._concept_of: dict[int, int] = {}
        self._named: dict[str, dict[int, int]] = {}
        self._last_event = 1
        self._num_own = 0

    def add(self, number: int, spec: EventSpec) -> None:
        """Add the next event."""
        seed = rng.derive(self._seed, "drift", number) if spec.seed is None else spec.seed
        shared: dict[int, int] = {}
        changes = {
            label: self._new_concept(spec, label, seed, shared) for label in self._classes(spec)
        }
        self._last_event = spec.task
        if not changes:
            return
        self._concept_of.update(changes)
        if spec.name is not None:
            if spec.name == "original" or spec.name in self._named:
                raise UserError(f"an event calls its concept {spec.name!r}, but that name is taken")
            self._named[spec.name] = changes
        self.events.append(
            DriftEvent(
                task=spec.task,
                concepts=changes,
                share=spec.share,
                over_tasks=spec.over_tasks,
                over_steps=spec.over_steps,
            )
        )

    def _classes(self, spec: EventSpec) -> list[int]:
        if not isinstance(spec.classes, str):
            return list(dict.fromkeys(spec.classes))
        if spec.classes not in SCOPES:
            raise unknown_name("scope of classes", spec.classes, SCOPES)
        begin = self._last_event if spec.classes == "since-last-event" else 1
        return [label for task in self._tasks[begin - 1 : spec.task - 1] for label in task]

    def _new_concept(self, spec: EventSpec, label: int, seed: int, shared: dict[int, int]) -> int:
        """The concept that a class changes to; `shared` holds the event's new ones by parent."""
        if spec.to == "original":
            return ORIGINAL
        if spec.to is not None:
            if spec.to not in self._named:
                raise unknown_name("concept", spec.to, ["original", *self._named])
            if label not in self._named[spec.to]:
                raise UserError(
                    f"class {label} never had the concept {spec.to!r}; it cannot return to it"
                )
            return self._named[spec.to][label]
        # Another domain's images come as they are, whatever had been done to the ones before.
        parent = ORIGINAL if spec.domain is not None else self._concept_of.get(label, ORIGINAL)
        if spec.per_class:
            self._num_own += 1
            steps = own_transforms(spec.transforms, self._num_own - 1, self._transforms)
            return self._append(spec, steps, parent, rng.derive(seed, "of", label))
        # Classes that have the same concept share the new one.
        if parent not in shared:
            shared[parent] = self._append(spec, spec.transforms, parent, seed)
        return shared[parent]

    def _append(
        self, spec: EventSpec, steps: Sequence[tuple[str, int]], parent: int, seed: int
    ) -> int:
        """The number of a new concept, by way of one for each transform."""
        for number, (transform, severity) in enumerate(steps or [("identity", 1)]):
            self.concepts.append(
                Concept(
                    transform=transform,
                    severity=severity,
                    seed=seed if number == 0 else rng.derive(seed, number),
                    parent=parent,
                    unit=spec.unit,
                    domain=spec.domain if number == 0 else None,
                )
            )
            parent = len(self.concepts)
        return parent
