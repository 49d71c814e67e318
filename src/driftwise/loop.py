"""The one loop. It knows the shapes of its parts and nothing of how they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from driftwise.drift_handler import Care
from driftwise.protocols import Listener, Task, Workbench
from driftwise.types import Midway, Samples, TaskRecord

TaskT = TypeVar("TaskT", bound=Task)
ScoresT = TypeVar("ScoresT")


def play(
    tasks: Iterable[TaskT],
    *,
    care: Care,
    bench: Callable[[TaskT], Workbench],
    evaluate: Callable[[TaskT], ScoresT],
    epochs: int,
    listener: Listener,
    keep: Callable[[Midway], None] = lambda _: None,
    midway: Midway | None = None,
) -> Iterator[TaskRecord[ScoresT]]:
    """Check, repair, learn and score one task after the other; yields when a task is complete.

    `keep` is told after every step where the task stands. The first task goes on from `midway`, if
    there is one, all parts being as they were then.
    """
    learner, ledger = care.learner, care.ledger
    for task in tasks:
        workbench = bench(task)
        if midway is None:
            listener.task_begins(task)
            verdicts, repair = care.attend(task, workbench)
            ledger.book_labels("stream", task.new_labels())
        else:
            verdicts, repair = midway.verdicts, midway.repair

        own = task.train()
        # A class that came back labelled may have been asked for as well: each sample counts once.
        samples = own if repair.extra is None else Samples.concat([own, repair.extra]).distinct()
        if midway is None:
            listener.checked(task, verdicts, repair, len(samples))
        else:
            listener.resumed(task, midway, len(samples))

        with ledger.phase("train"):
            if midway is None:
                learner.begin_task(task.new_classes, from_scratch=repair.from_scratch)
            first, done = (1, 0) if midway is None else (midway.epoch, midway.steps)
            midway = None
            for epoch in range(first, epochs + 1):
                learner.begin_epoch(epoch, epochs)
                for step, batch in enumerate(
                    task.batches(samples, epoch=epoch, skip=done), done + 1
                ):
                    listener.stepped(epoch, care.teach(batch))
                    keep(
                        Midway(
                            task=task.number,
                            epoch=epoch,
                            steps=step,
                            verdicts=verdicts,
                            repair=repair,
                        )
                    )
                done = 0
        later_notes = care.follow_up(workbench)
        with ledger.phase("train"):
            learner.end_task()
        renewed = tuple(dict.fromkeys((*repair.renewed, *task.returning_classes)))
        learned = [own, *(some for some in (repair.extra, repair.refilled) if some is not None)]
        care.settle(task, (*renewed, *task.new_classes), Samples.concat(learned))

        with ledger.phase("evaluate"):
            scores = evaluate(task)
        record = TaskRecord(
            task=task.number,
            verdicts=verdicts,
            renewed=renewed,
            notes=(*repair.notes, *later_notes),
            scores=scores,
        )
        listener.task_ends(record)
        yield record
