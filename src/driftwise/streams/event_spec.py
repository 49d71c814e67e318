"""Drift events as a person writes them.

events:
  - {task: 2, classes: [0, 1], transforms: [[rotation, 2]], name: turned}
  - {task: 3, classes: since-last-event, domain: cartoon, share: 0.5}
  - {task: 4, classes: [0], to: original}
  - {task: 4, classes: [1], transforms: [[permutation, 5], [gaussian-noise, 3]], over_tasks: 3}
  - {task: 5, classes: [0], to: turned}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftwise.errors import UserError, unknown_name
from driftwise.streams.transforms import SEVERITIES, TRANSFORMS, UNITS

MOST_TRANSFORMS = 20
"""of one event; every one of them keeps the pixels of its classes"""


@dataclass(frozen=True, kw_only=True)
class EventSpec:
    """One event of a script: which classes drift when, to what concept, how much, how fast."""

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
    """what later events call this concept"""
    share: float = 1.0
    """the fraction of each class that drifts; below 1 the old concept stays valid beside the new"""
    over_tasks: int = 1
    """over how many tasks the share rises; many: hard to see in each task"""
    over_steps: int | None = None
    """over how many steps of its first epoch the event's own task shows the share rise, where
    drifted classes return in training; None: all at once"""
    per_class: bool = False
    """every class drifts by a concept of its own instead of sharing one (script.own_transforms)"""
    unit: str = "pixel"
    """what a permutation moves: pixel, or row (of the image)"""
    seed: int | None = None
    """what its transforms draw from; None: the run's seed, anew for every event"""

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
            if name not in TRANSFORMS:
                raise unknown_name("transform", name, TRANSFORMS)
            if severity not in SEVERITIES:
                raise UserError(f"severity must be 1 to 5; got {severity}")
        if self.unit not in UNITS:
            raise unknown_name("unit", self.unit, UNITS)
        if self.per_class and not self.transforms:
            raise UserError(
                "per_class varies transforms, and the event has none; "
                "give every class an event and a domain of its own instead"
            )


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
"""What plain data may stand under each key of an event, and how to call it."""


def read_event(values: Mapping[str, Any], *, source: str) -> EventSpec:
    """An event from plain data; what does not fit is a user's error that names the source."""
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
            given["classes"] = tuple(_class_number(label) for label in given["classes"])
            if not given["classes"]:
                raise UserError("classes is empty, so that nothing would drift; name some")
        given["transforms"] = tuple(_transform(pair) for pair in given.get("transforms", ()))
        return EventSpec(**given)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def _transform(pair: Any) -> tuple[str, int]:
    match pair:
        case [str(name), int(severity)] if not isinstance(severity, bool):
            return name, severity
    raise UserError(f"a transform is written [name, severity]; got {pair!r}")


def _class_number(label: Any) -> int:
    if not isinstance(label, int) or isinstance(label, bool):
        raise UserError(f"classes must be a list of class numbers, or a scope; got {label!r} in it")
    return label
