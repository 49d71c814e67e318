"""The live display: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from driftwise.config.schema import RunConfig
from driftwise.protocols import Task
from driftwise.runs import stages
from driftwise.runs.listeners import Silent
from driftwise.types import AdaptationResult, StepReport, TaskRecord, TaskState, Verdict

_SMOOTHING = 0.95
"""Share of the running loss and accuracy that a step leaves as they were."""


class Display:
    """Shows several runs one after the other; counts in tasks, since drift changes their length."""

    def __init__(self, console: Console, *, num_runs: int = 1) -> None:
        self._console = console
        self._num_runs = num_runs
        self._live = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not self._live,
        )
        self._sample = self._bar.add_task("", total=None, detail="")
        self._done = 0
        self._began = time.monotonic()

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def run(self, title: str, config: RunConfig, num_tasks: int) -> RunDisplay:
        """A listener for the next run."""
        return RunDisplay(self, title, config, num_tasks)

    def finished(self) -> None:
        """The current run is complete."""
        self._done += 1

    def say(self, line: str) -> None:
        """A line that stays."""
        stages.say(self._console, line)

    def warn(self, line: str) -> None:
        """Something a person must know, also one who wants to hear nothing else."""
        stages.warn(self._console, line)

    def update(self, description: str, detail: str, share_of_run: float) -> None:
        """Where the current run stands; `share_of_run` from 0 to 1."""
        if self._live:
            self._bar.update(
                self._sample,
                description=description,
                detail=detail,
                total=self._num_runs,
                completed=self._done + share_of_run,
            )

    def left(self, share_of_run: float) -> str:
        """Seconds left at the pace so far, in words."""
        share = (self._done + share_of_run) / self._num_runs
        elapsed = time.monotonic() - self._began
        return f"{elapsed * (1 - share) / share:.0f} s left" if share > 0 else ""


class RunDisplay(Silent):
    """Shows one run: task, epoch, step, loss, accuracy so far, time left."""

    def __init__(self, display: Display, title: str, config: RunConfig, num_tasks: int) -> None:
        assert config.epochs is not None, "the config has not been resolved"
        assert config.batch_size is not None, "the config has not been resolved"
        self._display = display
        self._title = title
        self._epochs = config.epochs
        self._batch_size = config.batch_size
        self._num_tasks = num_tasks
        self._task = 1
        self._step = 0
        self._steps = 1
        self._loss = 0.0
        self._accuracy: float | None = None
        self._shown = 0.0

    def task_begins(self, task: Task) -> None:
        """A new running mean; before the first step there is no loss to show."""
        self._task, self._step, self._steps = task.number, 0, 1
        self._accuracy = None
        self._draw("checking")

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """Say what drifted, and whatever a person should be told."""
        self._steps = max(1, math.ceil(samples / self._batch_size) * self._epochs)
        drifted = [str(verdict.label) for verdict in verdicts if verdict.drifted]
        untestable = [str(verdict.label) for verdict in verdicts if verdict.drifted is None]
        spared = [str(verdict.label) for verdict in verdicts if verdict.spared]
        lines = [f"drifted: {', '.join(drifted)}"] if drifted else []
        lines += [f"harmless, so left alone: {', '.join(spared)}"] if spared else []
        lines += [f"not testable: {', '.join(untestable)}"] if untestable else []
        for line in (*lines, *result.notes):
            self._display.say(f"{self._title}: task {task.number}/{self._num_tasks}: {line}")

    def resumed(self, task: Task, task_state: TaskState, samples: int) -> None:
        """Say where it goes on."""
        an_epoch = math.ceil(samples / self._batch_size)
        self._task, self._steps = task.number, max(1, an_epoch * self._epochs)
        self._step = (task_state.epoch - 1) * an_epoch + task_state.steps
        self._display.say(
            f"{self._title}: task {task.number}/{self._num_tasks} goes on after step "
            f"{self._step} of {self._steps}"
        )

    def stepped(self, epoch: int, report: StepReport) -> None:
        """Move the bar, at most ten times a second."""
        keep = _SMOOTHING if self._step else 0.0
        self._loss = keep * self._loss + (1 - keep) * report.loss
        self._step += 1
        now = time.monotonic()
        if now - self._shown >= 0.1:
            self._shown = now
            # Only of steps that are shown: nobody sees the others' accuracy, and it takes time.
            share = report.correct / max(1, report.samples)
            before = share if self._accuracy is None else self._accuracy
            self._accuracy = _SMOOTHING * before + (1 - _SMOOTHING) * share
            self._draw(
                f"epoch {epoch}/{self._epochs} step {self._step}/{self._steps} "
                f"loss {self._loss:.3f} acc {100 * self._accuracy:.0f} %"
            )

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """A line with the accuracy on all tasks so far."""
        accuracies = [value for value in record.scores.accuracy if value is not None]
        mean = f"{sum(accuracies) / len(accuracies):.1f} %" if accuracies else "unknown"
        self._display.say(
            f"{self._title}: task {record.task}/{self._num_tasks} done, "
            f"accuracy so far {mean}, loss {self._loss:.3f}, "
            f"{self._display.left(record.task / self._num_tasks)}"
        )
        if record.task == self._num_tasks:
            self._display.finished()

    def _draw(self, detail: str) -> None:
        self._display.update(
            f"{self._title} task {self._task}/{self._num_tasks}",
            detail,
            (self._task - 1 + self._step / self._steps) / self._num_tasks,
        )
