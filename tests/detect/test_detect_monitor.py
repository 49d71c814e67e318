"""The laws of the monitor, for every detector of the catalogue: whom it checks, what it books."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from detect_builders import around

from driftwise.config.registry import CATALOGUE
from driftwise.detect import (
    Detector,
    HeldOutReference,
    LearnerEncoder,
    Monitor,
    Setting,
)
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.protocols import HasSamples
from driftwise.runs import checkpoint
from driftwise.types import Samples, Verdict

every_detector = pytest.mark.parametrize("name", sorted(CATALOGUE["detector"]))
WITHOUT_EYES = {"oracle", "always", "never"}


@dataclasses.dataclass(frozen=True)
class Scene:
    """A task as a monitor sees it: `count` samples of every known class, all of one concept."""

    number: int
    known_classes: tuple[int, ...]
    concept: int = 0
    count: int = 8

    def monitored(self) -> Samples:
        return Samples.concat([self._samples(label, "monitored") for label in self.known_classes])

    def reference(self, label: int) -> Samples:
        return self._samples(label, "reference")

    def _samples(self, label: int, part: str) -> Samples:
        count = self.count if part == "monitored" else self.count + label
        place = torch.arange(count) + (0 if part == "monitored" else 100)
        # Logits themselves: the second concept is surer of itself than the first.
        sure = (place % 7 + 1.0) * (1 + 9 * self.concept)
        return Samples(
            images=torch.stack([sure, torch.zeros(count)], dim=1),
            labels=torch.full((count,), label),
            ids=1000 * label + place,
            concepts=torch.full((count,), self.concept),
        )


NOTHING = Scene(1, (0,))._samples(0, "monitored")[:0]
"""Learned samples, where nobody asks for them."""


class Book:
    """Adds up what is booked."""

    def __init__(self) -> None:
        self.entries: list[int] = []

    def __call__(self, count: int) -> None:
        self.entries.append(count)


def detector_named(name: str) -> Detector:
    """The catalogue's detector with default options; classes 0 and 2 drift at task 3."""
    entry = CATALOGUE["detector"][name]
    setting = Setting(
        encoder=lambda: LearnerEncoder(around()),
        drifting=lambda task: (0, 2) if task == 3 else (),
    )
    made: Detector = entry.make().bind(setting)
    return made


def monitor_of(
    name: str, reference: HasSamples | HeldOutReference | None = None
) -> tuple[Monitor, Book]:
    book = Book()
    kept = HeldOutReference() if reference is None else reference
    return Monitor(detector_named(name), kept, book=book), book


# Contracts of every detector


@every_detector
def test_every_known_class_gets_one_verdict_in_order(name: str) -> None:
    monitor, _ = monitor_of(name)
    monitor.renew(Scene(2, (0,)), [0, 3, 1, 2], NOTHING)
    verdicts = monitor.check(Scene(3, (0, 3, 1, 2)))
    assert [(verdict.task, verdict.label) for verdict in verdicts] == [(3, c) for c in (0, 3, 1, 2)]


@every_detector
def test_before_anything_is_known_nothing_is_checked_and_nothing_booked(name: str) -> None:
    monitor, book = monitor_of(name)
    assert monitor.check(Scene(1, ())) == []
    assert book.entries == []


@every_detector
def test_labels_are_booked_exactly_and_only_by_those_who_look(name: str) -> None:
    monitor, book = monitor_of(name)
    monitor.renew(Scene(1, ()), [0, 1], NOTHING)
    renewals = [len(Scene(1, ()).reference(label)) for label in (0, 1)]
    assert renewals == [8, 9]
    assert book.entries == ([] if name in WITHOUT_EYES else renewals)
    monitor.check(Scene(2, (0, 1)))
    assert sum(book.entries) == (0 if name in WITHOUT_EYES else 8 + 9 + 2 * 8)


@every_detector
def test_a_state_saved_and_loaded_gives_the_same_verdicts(name: str) -> None:
    monitor, _ = monitor_of(name)
    monitor.renew(Scene(1, ()), [0, 1, 2], NOTHING)
    monitor.renew(Scene(2, (), concept=1), [1], NOTHING)
    other, _ = monitor_of(name)
    other.load_state_dict(checkpoint.unflatten(*checkpoint.flatten(monitor.state_dict())))
    scene = Scene(3, (0, 1, 2), concept=1)
    assert other.check(scene) == monitor.check(scene)


class Counts:
    """A detector of one's own that remembers how often it was asked, and fires the third time."""

    watches = True

    def __init__(self) -> None:
        self.asked = 0

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Any
    ) -> list[Verdict]:
        self.asked += 1
        return [Verdict(task=task, label=label, drifted=self.asked >= 3) for label in classes]

    def state_dict(self) -> dict[str, Any]:
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.asked = state["asked"]


def test_what_a_detector_of_ones_own_remembers_is_kept() -> None:
    monitor, other = (Monitor(Counts(), HeldOutReference(), book=lambda _: None) for _ in "ab")
    scene = Scene(2, (0,))
    for _ in range(2):
        assert drifted(monitor.check(scene)) == [False]
    other.load_state_dict(checkpoint.unflatten(*checkpoint.flatten(monitor.state_dict())))
    assert drifted(other.check(scene)) == [True]


# What the held-out reference says


def drifted(verdicts: Sequence[Verdict]) -> list[bool | None]:
    return [verdict.drifted for verdict in verdicts]


def test_a_class_is_compared_with_how_it_looked_when_it_was_last_learned() -> None:
    monitor, _ = monitor_of("ks")
    monitor.renew(Scene(1, ()), [0, 1], NOTHING)
    assert drifted(monitor.check(Scene(2, (0, 1)))) == [False, False]
    changed = Scene(3, (0, 1), concept=1, count=12)
    assert drifted(monitor.check(changed)) == [True, True]
    monitor.renew(changed, [1], NOTHING)  # class 1 is met with fresh samples, class 0 is not
    assert drifted(monitor.check(changed)) == [True, False]


def test_a_class_that_was_never_learned_is_not_testable() -> None:
    monitor, _ = monitor_of("ks")
    monitor.renew(Scene(1, ()), [0], NOTHING)
    known, unknown = monitor.check(Scene(2, (0, 5)))
    assert known.drifted is False
    assert unknown.drifted is None
    assert unknown.reason == "fewer than 5 distinct reference samples"


def test_loading_forgets_what_was_known_before() -> None:
    monitor, _ = monitor_of("ks")
    monitor.renew(Scene(1, ()), [0], NOTHING)
    empty, _ = monitor_of("ks")
    monitor.load_state_dict(empty.state_dict())
    assert drifted(monitor.check(Scene(2, (0,)))) == [None]


# A memory as reference


def test_a_memory_as_reference_is_read_as_it_stands_and_costs_no_labels() -> None:
    memory = ReplayBuffer(50, policy=POLICIES["reservoir"](), seed=0)
    monitor, book = monitor_of("ks", memory)

    def check(scene: Any) -> list[bool | None]:
        return drifted(monitor.check(scene))

    scene = Scene(2, (0,), count=12)
    assert check(scene) == [None]
    memory.offer(scene.reference(0))
    before = book.entries.copy()
    monitor.renew(scene, [0], NOTHING)
    assert book.entries == before
    assert check(scene) == [False]
    assert check(Scene(3, (0,), concept=1, count=12)) == [True]
    assert monitor.state_dict() == {}  # the memory saves itself
    monitor.load_state_dict({})
    assert check(scene) == [False]
