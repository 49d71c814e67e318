"""The monitor, with every detector of the catalogue: what it checks, books and refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from detect_builders import encoder_context
from run_tools import complaint

from driftwise.config.registry import CATALOGUE
from driftwise.detect import (
    Detector,
    DetectorContext,
    HeldOutReference,
    LearnerEncoder,
    Monitor,
)
from driftwise.detect.base import reads_monitored
from driftwise.errors import UserError
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.protocols import HasSamples
from driftwise.runs import checkpoint
from driftwise.types import Samples, Verdict

every_detector = pytest.mark.parametrize("name", sorted(CATALOGUE["detector"]))
WITHOUT_SAMPLES = {"oracle", "always", "never"}


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
"""Learned samples, where none are needed."""


def detector_named(name: str) -> Detector:
    """The catalogue's detector with default options; classes 0 and 2 drift at task 3."""
    entry = CATALOGUE["detector"][name]
    context = DetectorContext(
        encoder=lambda: LearnerEncoder(encoder_context()),
        drifting=lambda task: (0, 2) if task == 3 else (),
    )
    made: Detector = entry.make().bind(context)
    return made


def monitor_of(
    name: str, reference: HasSamples | HeldOutReference | None = None
) -> tuple[Monitor, list[int]]:
    booked: list[int] = []
    kept = HeldOutReference() if reference is None else reference
    return Monitor(detector_named(name), kept, book=booked.append), booked


@every_detector
def test_the_contract_of_every_detector(name: str) -> None:
    """One verdict per known class in order; labels booked exactly, by detectors that read them."""
    monitor, booked = monitor_of(name)
    assert monitor.check(Scene(1, ())) == []
    assert booked == [], "nothing is known, nothing is checked"
    monitor.renew(Scene(1, ()), [0, 1, 2, 3], NOTHING)
    renewals = [8, 9, 10, 11]
    assert booked == ([] if name in WITHOUT_SAMPLES else renewals)
    verdicts = monitor.check(Scene(3, (0, 3, 1, 2)))
    assert [(verdict.task, verdict.label) for verdict in verdicts] == [(3, c) for c in (0, 3, 1, 2)]
    assert booked == ([] if name in WITHOUT_SAMPLES else [*renewals, 4 * 8])
    monitor.renew(Scene(3, (), concept=1), [1], NOTHING)
    other, _ = monitor_of(name)
    other.load_state_dict(checkpoint.unflatten(*checkpoint.flatten(monitor.state_dict())))
    scene = Scene(4, (0, 1, 2), concept=1)
    assert other.check(scene) == monitor.check(scene), "saved and loaded, it continues"
    assert other.onset(1) == monitor.onset(1)


class Answers:
    """A detector of one's own that gives any answer, and records the labels it was shown."""

    def __init__(self, answer: Any = None, *, reads_monitored: bool = True) -> None:
        self.answer = answer
        self.reads_monitored = reads_monitored
        self.seen: list[int] = []

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Any
    ) -> list[Verdict]:
        self.seen += monitored.labels.tolist()
        if self.answer is not None:
            return self.answer  # type: ignore[no-any-return]
        return [Verdict(task=task, label=c, drifted=None, reason="not compared") for c in classes]


def test_the_former_name_of_reads_monitored_is_read_with_a_warning() -> None:
    class Former(Answers):
        def __init__(self) -> None:
            super().__init__()
            self.watches = self.__dict__.pop("reads_monitored")

    with pytest.warns(DeprecationWarning, match="Former.watches is deprecated; rename it"):
        assert reads_monitored(Former()) is True
    with pytest.raises(UserError, match="object must have an attribute reads_monitored"):
        reads_monitored(object())


def test_a_detector_sees_true_labels_only_where_they_are_booked() -> None:
    booked: list[int] = []
    scene = Scene(2, (0, 1), count=2)
    for labels, reads, seen, total in (
        ("given", True, [0, 0, 1, 1], 4),
        ("given", False, [-1] * 4, 4),
        ("predicted", True, [-1] * 4, 4),
    ):
        detector = Answers(reads_monitored=reads)
        Monitor(detector, HeldOutReference(), book=booked.append, labels=labels).check(scene)  # type: ignore[arg-type]
        assert (detector.seen, sum(booked)) == (seen, total)
    published = Answers()
    only = Monitor(published, HeldOutReference(), book=booked.append, just_drifted=lambda _: [1])
    assert [verdict.label for verdict in only.check(scene)] == [1]
    assert published.seen == [1, 1]


def verdict(label: int = 0, **given: Any) -> Verdict:
    return Verdict(**{"task": 2, "label": label, "drifted": True, **given})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("yes", "must return a list of Verdict, one for each class; got 'yes'"),
        ([verdict(), True], "must return a list of Verdict"),
        (
            [verdict()],
            "one verdict for each class it is asked about, [0, 1]; it gave verdicts for [0]",
        ),
        ([verdict(), verdict(1), verdict(7)], "it gave verdicts for [0, 1, 7]"),
        ([verdict(), verdict(1, task=5)], "was asked at task 2; its verdict is of 5"),
        ([verdict(), verdict(1, drifted="no")], "drifted must be True, False, or None"),
        ([verdict(), verdict(1, p_value=float("nan"))], "p_value of class 1 is nan"),
    ],
)
def test_answers_that_are_no_verdicts_on_the_classes_are_refused(answer: Any, words: str) -> None:
    monitor = Monitor(Answers(answer), HeldOutReference(), book=lambda _: None)
    assert words in complaint(lambda: monitor.check(Scene(2, (0, 1))))


def test_numbers_become_plain_and_harmless_drift_is_spared() -> None:
    answer = [
        verdict(0, p_value=torch.tensor(0.25), harm=np.float64(3.0)),
        verdict(1, harm=1.0, harm_unlabelled=9.0),
        verdict(2, harm_unlabelled=1.0),
        verdict(3, drifted=np.bool_(False), harm=1.0),
        verdict(4),
    ]
    monitor = Monitor(Answers(answer), HeldOutReference(), book=lambda _: None, min_harm=2.0)
    found = monitor.check(Scene(2, (0, 1, 2, 3, 4)))
    assert [each.spared for each in found] == [False, True, True, False, False]
    assert (found[0].p_value, type(found[0].harm), found[3].drifted) == (0.25, float, False)


class Counts:
    """A detector of one's own that remembers how often it was asked, and fires the third time."""

    reads_monitored = True

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


def drifted(verdicts: Sequence[Verdict]) -> list[bool | None]:
    return [verdict.drifted for verdict in verdicts]


def test_a_class_is_compared_with_its_concept_when_it_was_last_learned() -> None:
    monitor, _ = monitor_of("ks")
    monitor.renew(Scene(1, ()), [0, 1], NOTHING)
    assert drifted(monitor.check(Scene(2, (0, 1)))) == [False, False]
    changed = Scene(3, (0, 1), concept=1, count=12)
    assert drifted(monitor.check(changed)) == [True, True]
    monitor.renew(changed, [1], NOTHING)  # class 1 gets fresh samples, class 0 does not
    assert drifted(monitor.check(changed)) == [True, False]
    unknown = monitor.check(Scene(2, (0, 5)))[1]
    assert (unknown.drifted, unknown.reason) == (None, "fewer than 5 distinct reference samples")
    monitor.load_state_dict(monitor_of("ks")[0].state_dict())
    assert drifted(monitor.check(Scene(2, (0,)))) == [None], "loading replaces what was known"


def test_a_buffer_as_reference_is_read_as_it_stands_and_costs_no_labels() -> None:
    memory = ReplayBuffer(50, policy=POLICIES["reservoir"](), seed=0)
    monitor, booked = monitor_of("ks", memory)

    def check(scene: Any) -> list[bool | None]:
        return drifted(monitor.check(scene))

    scene = Scene(2, (0,), count=12)
    assert check(scene) == [None]
    memory.offer(scene.reference(0))
    before = booked.copy()
    monitor.renew(scene, [0], NOTHING)
    assert booked == before
    assert check(scene) == [False]
    assert check(Scene(3, (0,), concept=1, count=12)) == [True]
    assert monitor.state_dict() == {}  # the memory saves itself
    monitor.load_state_dict({})
    assert check(scene) == [False]
