"""The one loop: check, adapt, learn, evaluate. It knows the interfaces of its components only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from driftwise.drift_handler import DriftHandler
from driftwise.protocols import AdaptationContext, Listener, Task
from driftwise.types import (
    AdaptationResult,
    Samples,
    StepReport,
    TaskRecord,
    TaskState,
    Verdict,
)

TaskT = TypeVar("TaskT", bound=Task)
ScoresT = TypeVar("ScoresT")


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
    for task in tasks:
        context = context_of(task)
        if task_state is None:
            listener.task_begins(task)
            verdicts, result = handler.check_and_adapt(task, context)
            ledger.book_labels("stream", task.new_labels())
        else:
            verdicts, result = task_state.verdicts, task_state.result

        own = task.train()
        # The samples of a class that returned may have been asked for as well: each counts once.
        samples = own if result.extra is None else Samples.concat([own, result.extra]).distinct()
        if task_state is None:
            listener.checked(task, verdicts, result, len(samples))
        else:
            listener.resumed(task, task_state, len(samples))

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
