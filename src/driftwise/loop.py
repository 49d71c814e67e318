"""The one loop: check, adapt, learn, evaluate. It knows the interfaces of its components only.

`DriftHandler` is what a benchmark's loop and a live learner share; `run_tasks` is the loop itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from driftwise import rng
from driftwise.errors import UserError
from driftwise.protocols import (
    Adaptation,
    AdaptationContext,
    AdaptsLater,
    Learner,
    Ledger,
    Listener,
    Monitor,
    MonitoredTask,
    Task,
)
from driftwise.types import (
    AdaptationResult,
    Samples,
    StepReport,
    TaskRecord,
    TaskState,
    Verdict,
)

UNREPEATABLE = (
    "while a task was learned, something drew from a global random generator of torch or numpy: the "
    "run can be neither repeated nor resumed exactly; a component should draw from a generator that "
    "it keeps in an attribute, such as driftwise.rng.fork(seed, 'name')"
)

TaskT = TypeVar("TaskT", bound=Task)
ScoresT = TypeVar("ScoresT")


@dataclass(frozen=True, kw_only=True)
class DriftChecks:
    """Monitor and adaptation of one loop, whoever learns, with the ledger of their costs."""

    monitor: Monitor
    adaptation: Adaptation
    ledger: Ledger

    def check_and_adapt(
        self, monitored: MonitoredTask, context: AdaptationContext
    ) -> tuple[tuple[Verdict, ...], AdaptationResult]:
        """Check the known classes, and adapt to what has drifted."""
        verdicts = self.check(monitored)
        drifted = [verdict for verdict in verdicts if verdict.needs_adaptation]
        return verdicts, self.adapt(drifted, replace(context, tested=tested_in(verdicts)))

    def check(self, monitored: MonitoredTask) -> tuple[Verdict, ...]:
        """Verdicts on the known classes; nothing is adapted."""
        with self.ledger.phase("detect"):
            return tuple(self.monitor.check(monitored))

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Adapt to what is known to have drifted."""
        with self.ledger.phase("adapt"):
            return _checked(self.adaptation.adapt(drifted, context), self.adaptation)

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        """Go on with adaptations that take longer, between a task and the next."""
        if not isinstance(self.adaptation, AdaptsLater):
            return ()
        with self.ledger.phase("adapt"):
            notes = self.adaptation.follow_up(context)
        _check_notes(notes, f"what {type(self.adaptation).__name__}.follow_up returns")
        return notes

    def renew_reference(
        self, monitored: MonitoredTask, labels: Sequence[int], learned: Samples
    ) -> None:
        """These classes were learned in their current concept, which is their reference from now on."""
        with self.ledger.phase("detect"):
            self.monitor.renew(monitored, labels, learned)


@dataclass(frozen=True, kw_only=True)
class DriftHandler(DriftChecks):
    """The same with the learner of the loop."""

    learner: Learner

    def train_step(self, batch: Samples) -> StepReport:
        """One train step."""
        report = self.learner.observe(batch)
        self.ledger.add_step()
        return report


def tested_in(verdicts: Iterable[Verdict]) -> frozenset[int]:
    """The classes that could be tested."""
    return frozenset(each.label for each in verdicts if each.drifted is not None)


def run_tasks(
    tasks: Iterable[TaskT],
    *,
    handler: DriftHandler,
    context_of: Callable[[TaskT], AdaptationContext],
    evaluate: Callable[[TaskT], ScoresT],
    epochs: int,
    listener: Listener,
    keep: Callable[[TaskState], None] = lambda _: None,
    task_state: TaskState | None = None,
) -> Iterator[TaskRecord[ScoresT]]:
    """Check, adapt, learn and evaluate, task by task; yields when a task is complete.

    `keep` is called after every step with the state of the task. The first task resumes from
    `task_state`, if there is one; all components must be in the state of that moment.
    """
    learner, ledger = handler.learner, handler.ledger
    is_warned = False
    for task in tasks:
        context = context_of(task)
        if task_state is None:
            listener.task_begins(task)
            verdicts, result = handler.check_and_adapt(task, context)
            ledger.book_labels("stream", task.new_labels())
        else:
            verdicts, result = task_state.verdicts, task_state.result

        with ledger.phase("train"):
            own = task.train()
        # The samples of a class that returned may have been asked for as well: each counts once.
        samples = own if result.extra is None else Samples.concat([own, result.extra]).distinct()
        if task_state is None:
            listener.checked(task, verdicts, result, len(samples))
        else:
            listener.resumed(task, task_state, len(samples))

        drawn = rng.global_state()
        with ledger.phase("train"):
            if task_state is None:
                learner.begin_task(task.new_classes, from_scratch=result.from_scratch)
            first, done = (1, 0) if task_state is None else (task_state.epoch, task_state.steps)
            task_state = None
            for epoch in range(first, epochs + 1):
                learner.begin_epoch(epoch, epochs)
                for step, batch in enumerate(
                    task.batches(samples, epoch=epoch, skip=done), done + 1
                ):
                    listener.stepped(epoch, handler.train_step(batch))
                    keep(
                        TaskState(
                            task=task.number,
                            epoch=epoch,
                            steps=step,
                            verdicts=verdicts,
                            result=result,
                        )
                    )
                done = 0
        later_notes = handler.follow_up(context)
        with ledger.phase("train"):
            learner.end_task()
        if not is_warned and rng.global_state() != drawn:
            is_warned = True
            warnings.warn(UNREPEATABLE, stacklevel=2)
        renewed = tuple(dict.fromkeys((*result.renewed, *task.returning_classes)))
        learned = [own, *(some for some in (result.extra, result.refilled) if some is not None)]
        handler.renew_reference(task, (*renewed, *task.new_classes), Samples.concat(learned))

        with ledger.phase("evaluate"):
            scores = evaluate(task)
        record = TaskRecord(
            task=task.number,
            verdicts=verdicts,
            renewed=renewed,
            notes=(*result.notes, *later_notes),
            scores=scores,
            labels=dict(ledger.labels),
        )
        listener.task_ends(record)
        yield record


class Silent:
    """Does nothing; the base of listeners that need some events only."""

    def task_begins(self, task: Task) -> None:
        """Nothing."""

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """Nothing."""

    def resumed(self, task: Task, task_state: TaskState, samples: int) -> None:
        """Nothing."""

    def stepped(self, epoch: int, report: StepReport) -> None:
        """Nothing."""

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """Nothing."""


def _checked(result: object, adaptation: Adaptation) -> AdaptationResult:
    """What an adaptation has returned; UserError where it breaks the contract."""
    name = f"{type(adaptation).__name__}.adapt"
    if not isinstance(result, AdaptationResult):
        came = "None" if result is None else f"a {type(result).__name__}"
        raise UserError(f"{name} must return an AdaptationResult; it returned {came}")
    for field in ("extra", "refilled"):
        if not isinstance(samples := getattr(result, field), Samples | None):
            raise UserError(
                f"{name}: {field} must be Samples or None; got a {type(samples).__name__}"
            )
    if not isinstance(result.renewed, tuple) or not all(
        isinstance(label, int) for label in result.renewed
    ):
        raise UserError(f"{name}: renewed must be a tuple of class numbers; got {result.renewed!r}")
    _check_notes(result.notes, f"{name}: notes")
    return result


def _check_notes(notes: object, name: str) -> None:
    if not isinstance(notes, tuple) or not all(isinstance(note, str) for note in notes):
        raise UserError(f"{name} must be a tuple of texts; got {notes!r}")
