"""A script of drift events, turned into a schedule."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise import rng
from driftwise.errors import UserError, unknown_name
from driftwise.streams.event_spec import EventSpec
from driftwise.streams.schedule import ORIGINAL, SCOPES, Concept, DriftEvent, Schedule
from driftwise.streams.transforms import SEVERITIES, TRANSFORMS


def make_script(
    tasks: Sequence[Sequence[int]],
    events: Sequence[EventSpec],
    *,
    seed: int,
    recurring_in_training: bool = False,
    first_domain: str | None = None,
) -> Schedule:
    """The schedule of these events over these tasks."""
    writer = _Writer(tasks, seed)
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
    transforms: Sequence[tuple[str, int]], place: int
) -> tuple[tuple[str, int], ...]:
    """The transforms of the class at a place (from 0) among those that get a concept of their own.

    A permutation is drawn anew for every class, and that is enough. Other transforms differ too
    little between draws (a blur is a blur), so there the first class takes what the event names,
    every other the next transform of the table, and after a whole round the next severity: concepts
    repeat after 30 classes.

    >>> [own_transforms([("rotation", 5)], place) for place in (0, 1, 6)]
    [(('rotation', 5),), (('defocus-blur', 5),), (('rotation', 1),)]
    """
    if any(name == "permutation" for name, _ in transforms):
        return tuple(transforms)
    names = [name for name in TRANSFORMS if name != "identity"]
    return tuple(
        (name, severity)
        if name == "identity"
        else (
            names[(names.index(name) + place) % len(names)],
            (severity - 1 + place // len(names)) % len(SEVERITIES) + 1,
        )
        for name, severity in transforms
    )


class _Writer:
    """Collects concepts and events, and keeps track of the concept of every class."""

    def __init__(self, tasks: Sequence[Sequence[int]], seed: int) -> None:
        self.concepts: list[Concept] = []
        self.events: list[DriftEvent] = []
        self._tasks = tasks
        self._seed = seed
        self._shown: dict[int, int] = {}
        self._named: dict[str, dict[int, int]] = {}
        self._last_event = 1
        self._num_own = 0

    def add(self, number: int, spec: EventSpec) -> None:
        """One event more."""
        seed = rng.derive(self._seed, "drift", number) if spec.seed is None else spec.seed
        shared: dict[int, int] = {}
        changes = {
            label: self._taken_on(spec, label, seed, shared) for label in self._classes(spec)
        }
        self._last_event = spec.task
        if not changes:
            return
        self._shown.update(changes)
        if spec.name is not None:
            self._remember(spec.name, changes)
        self.events.append(
            DriftEvent(
                task=spec.task,
                concepts=changes,
                share=spec.share,
                over_tasks=spec.over_tasks,
                over_steps=spec.over_steps,
            )
        )

    def _remember(self, name: str, changes: dict[int, int]) -> None:
        if name == "original" or name in self._named:
            raise UserError(f"an event calls its concept {name!r}, but that name is taken")
        self._named[name] = changes

    def _classes(self, spec: EventSpec) -> list[int]:
        if not isinstance(spec.classes, str):
            return list(dict.fromkeys(spec.classes))
        if spec.classes not in SCOPES:
            raise unknown_name("scope of classes", spec.classes, SCOPES)
        begin = self._last_event if spec.classes == "since-last-event" else 1
        return [label for task in self._tasks[begin - 1 : spec.task - 1] for label in task]

    def _taken_on(self, spec: EventSpec, label: int, seed: int, shared: dict[int, int]) -> int:
        """The concept that a class takes on; `shared` holds the event's new ones by parent."""
        if spec.to is not None:
            return self._earlier(spec.to, label)
        # Another domain's images come as they are, whatever had been done to the ones before.
        parent = ORIGINAL if spec.domain is not None else self._shown.get(label, ORIGINAL)
        if spec.per_class:
            self._num_own += 1
            steps = own_transforms(spec.transforms, self._num_own - 1)
            return self._grow(spec, steps, parent, rng.derive(seed, "of", label))
        # Classes that have the same concept share the new one.
        if parent not in shared:
            shared[parent] = self._grow(spec, spec.transforms, parent, seed)
        return shared[parent]

    def _earlier(self, name: str, label: int) -> int:
        if name == "original":
            return ORIGINAL
        if name not in self._named:
            raise unknown_name("concept", name, ["original", *self._named])
        if label not in self._named[name]:
            raise UserError(f"class {label} never had the concept {name!r}; it cannot return to it")
        return self._named[name][label]

    def _grow(
        self, spec: EventSpec, steps: Sequence[tuple[str, int]], parent: int, seed: int
    ) -> int:
        """A new concept, by way of one for each transform; its number."""
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
