from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from driftwise.loop import DriftHandler, run_tasks
from driftwise.protocols import Adaptation, AdaptationContext
from driftwise.runs.listeners import Listeners, Silent
from driftwise.types import AdaptationResult, Extras, Samples, StepReport, TaskRecord, Verdict


def samples(*ids: int) -> Samples:
    column = torch.tensor(ids, dtype=torch.int64)
    images = torch.zeros(len(ids), 1, 1, 1, dtype=torch.uint8)
    return Samples(images=images, labels=column % 3, ids=column, concepts=column * 0)


@dataclass(frozen=True)
class Context:
    """All that the loop needs of a context."""

    task: int
    tested: frozenset[int] = frozenset()


@dataclass
class Recorder:
    """Every component of the loop in one object that records its calls."""

    result: AdaptationResult = field(default_factory=AdaptationResult)
    verdict: Sequence[Verdict] = ()
    log: list[object] = field(default_factory=list)
    phase_now: str | None = None
    labels: Mapping[str, int] = field(default_factory=dict)

    def note(self, *what: object) -> None:
        self.log.append((self.phase_now, *what))

    # the task

    @dataclass
    class Task:
        recorder: Recorder
        number: int
        new_classes: tuple[int, ...]
        known_classes: tuple[int, ...] = ()
        returning_classes: tuple[int, ...] = ()

        def monitored(self) -> Samples:
            raise AssertionError("the loop itself must not monitor")

        def reference(self, label: int) -> Samples:
            raise AssertionError("the loop itself must not compare")

        def train(self) -> Samples:
            return samples(*(10 * self.number + i for i in range(3)))

        def new_labels(self) -> int:
            return 2

        def batches(self, given: Samples, *, epoch: int, skip: int = 0) -> Iterator[Samples]:
            self.recorder.note("epoch", epoch, given.ids.tolist())
            return (given[index] for index in torch.split(torch.arange(len(given)), 2)[skip:])

    # the monitor, the adaptation, the learner, the ledger

    def check(self, task: Any) -> list[Verdict]:
        self.note("check", task.number)
        return list(self.verdict)

    def renew(self, task: Any, labels: Sequence[int], learned: Samples) -> None:
        self.note("renew", task.number, tuple(labels))
        self.learned = learned

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        self.note("adapt", [verdict.label for verdict in drifted], context)
        return self.result

    buffer: Any = "the buffer"

    def begin_task(self, classes: Sequence[int], *, from_scratch: bool) -> None:
        self.note("begin", tuple(classes), *["afresh"] * from_scratch)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        self.note("begin epoch", epoch, epochs)

    def observe(self, batch: Samples) -> StepReport:
        self.note("observe", batch.ids.tolist())
        return StepReport(
            loss=float(batch.ids[0]), logits=torch.zeros(len(batch), 1), labels=batch.labels
        )

    def end_task(self) -> None:
        self.note("end")

    def annotate(self, given: Samples) -> Extras:
        return {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        assert self.phase_now is None, "phases do not nest"
        self.phase_now = name
        yield
        self.phase_now = None

    def book_labels(self, kind: str, count: int) -> None:
        self.note("book", kind, count)

    def add_step(self) -> None:
        self.note("step")

    def run_tasks(self, *, epochs: int = 1, listener: Any = None) -> Iterator[TaskRecord[str]]:
        tasks = [Recorder.Task(self, 1, (0, 1)), Recorder.Task(self, 2, (2,), (0, 1))]
        adaptation: Adaptation = self
        return run_tasks(
            tasks,
            handler=DriftHandler(monitor=self, adaptation=adaptation, learner=self, ledger=self),
            context_of=lambda task: Context(task.number),  # type: ignore[arg-type, return-value]
            evaluate=self.evaluate,
            epochs=epochs,
            listener=listener or Silent(),
        )

    def evaluate(self, task: Any) -> str:
        self.note("evaluate", task.number)
        return f"scores of {task.number}"


def test_a_task_is_checked_adapted_learned_renewed_and_scored_in_this_order() -> None:
    recorder = Recorder()
    next(recorder.run_tasks(epochs=2))
    assert recorder.log == [
        ("detect", "check", 1),
        ("adapt", "adapt", [], Context(1)),
        (None, "book", "stream", 2),
        ("train", "begin", (0, 1)),
        ("train", "begin epoch", 1, 2),
        ("train", "epoch", 1, [10, 11, 12]),
        ("train", "observe", [10, 11]),
        ("train", "step"),
        ("train", "observe", [12]),
        ("train", "step"),
        ("train", "begin epoch", 2, 2),
        ("train", "epoch", 2, [10, 11, 12]),
        ("train", "observe", [10, 11]),
        ("train", "step"),
        ("train", "observe", [12]),
        ("train", "step"),
        ("train", "end"),
        ("detect", "renew", 1, (0, 1)),
        ("evaluate", "evaluate", 1),
    ]


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), lambda: np.random.rand()])  # noqa: NPY002
def test_draws_from_a_global_generator_are_reported_once(draw: Callable[[], object]) -> None:
    class Drawing(Recorder):
        def observe(self, batch: Samples) -> StepReport:
            draw()
            return super().observe(batch)

    with pytest.warns(UserWarning, match="can be neither repeated nor resumed exactly") as caught:
        assert len(list(Drawing().run_tasks())) == 2
    assert len(caught) == 1


def test_only_classes_found_drifted_are_adapted() -> None:
    verdicts = [
        Verdict(task=2, label=0, drifted=False),
        Verdict(task=2, label=4, drifted=True),
        Verdict(task=2, label=1, drifted=None, reason="too few samples"),
        Verdict(task=2, label=3, drifted=True),
    ]
    recorder = Recorder(verdict=verdicts)
    record = next(recorder.run_tasks())
    assert ("adapt", "adapt", [4, 3], Context(1, tested=frozenset({0, 3, 4}))) in recorder.log
    assert record.verdicts == tuple(verdicts)


def test_extra_samples_are_trained_on_in_every_epoch_and_not_booked_as_the_streams() -> None:
    # Sample 11 came in the task, and was asked for as well: it is trained on once.
    result = AdaptationResult(
        extra=samples(11, 70, 71), refilled=samples(80), renewed=(5,), notes=("two samples",)
    )
    recorder = Recorder(result=result)
    record = next(recorder.run_tasks(epochs=2))
    assert recorder.learned.ids.tolist() == [10, 11, 12, 11, 70, 71, 80]
    epochs = [entry for entry in recorder.log if entry[1] == "epoch"]  # type: ignore[index]
    assert epochs == [("train", "epoch", n, [10, 11, 12, 70, 71]) for n in (1, 2)]
    booked = [entry for entry in recorder.log if entry[1] == "book"]  # type: ignore[index]
    assert booked == [(None, "book", "stream", 2)]
    assert (record.renewed, record.notes) == ((5,), ("two samples",))
    assert ("detect", "renew", 1, (5, 0, 1)) in recorder.log, (
        "what was relearned is known anew, too"
    )


def test_a_task_begins_afresh_only_if_asked() -> None:
    recorder = Recorder(result=AdaptationResult(from_scratch=True))
    next(recorder.run_tasks())
    assert ("train", "begin", (0, 1), "afresh") in recorder.log
    untouched = Recorder()
    list(untouched.run_tasks())
    begun = [entry[2:] for entry in untouched.log if entry[1] == "begin"]  # type: ignore[index]
    assert begun == [((0, 1),), ((2,),)]


def test_nothing_of_the_next_task_happens_before_it_is_requested() -> None:
    recorder = Recorder()
    running = recorder.run_tasks()
    first = next(running)
    assert (first.task, first.scores) == (1, "scores of 1")
    assert ("detect", "check", 2) not in recorder.log
    second = next(running)
    assert (second.task, second.scores) == (2, "scores of 2")
    with pytest.raises(StopIteration):
        next(running)


def test_listeners_are_notified_in_order_and_the_same() -> None:
    @dataclass
    class Recording(Silent):
        name: str
        calls: list[object]

        def task_begins(self, task: Any) -> None:
            self.calls.append((self.name, "begins", task.number))

        def checked(self, task: Any, verdicts: Any, result: AdaptationResult, samples: int) -> None:
            self.calls.append((self.name, "checked", len(verdicts), result.renewed, samples))

        def stepped(self, epoch: int, report: StepReport) -> None:
            self.calls.append((self.name, "stepped", epoch, report.loss, report.samples))

        def task_ends(self, record: TaskRecord[str]) -> None:
            self.calls.append((self.name, "ends", record.scores))

    calls: list[object] = []
    both = Listeners([Recording("a", calls), Recording("b", calls)])
    recorder = Recorder(result=AdaptationResult(extra=samples(70), renewed=(5,)))
    next(recorder.run_tasks(listener=both))
    expected = [
        ("begins", 1),
        ("checked", 0, (5,), 4),
        ("stepped", 1, 10.0, 2),
        ("stepped", 1, 12.0, 2),
        ("ends", "scores of 1"),
    ]
    assert calls == [(name, *what) for what in expected for name in ("a", "b")]
