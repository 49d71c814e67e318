"""Progress of commands and runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from driftwise.config.flags import as_flags
from driftwise.config.schema import RunConfig
from driftwise.protocols import Task
from driftwise.runs.listeners import Silent
from driftwise.types import AdaptationResult, StepReport, TaskRecord, TaskState, Verdict

_SMOOTHING = 0.95
"""Weight of the running loss and accuracy against those of a step."""
_PERIOD = 0.1
"""Seconds between two updates of the bar."""


class Display:
    """Shows stages of work on data, and runs one after the other, counted in tasks."""

    def __init__(self, console: Console, *, num_runs: int = 1) -> None:
        self._console = console
        self._num_runs = num_runs
        self._live = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not self._live,
        )
        self._id = self._bar.add_task("", total=None, detail="", visible=False)
        self._stage = ""
        self._shown = 0.0
        self._done = 0
        self._began = time.monotonic()

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def progress(self, stage: str, done: int, total: int | None) -> None:
        """How far a stage (downloading, unpacking, decoding) is; it is named once it begins."""
        if stage != self._stage:
            self._stage = stage
            self._shown = 0.0
            self._bar.reset(self._id, description=stage, total=total, detail="", visible=True)
            if not self._live:
                self.say(stage)
        if self.is_due() or done == total:
            self._bar.update(self._id, completed=done, total=total)

    def run(self, title: str, config: RunConfig, num_tasks: int) -> RunDisplay:
        """A listener for the next run."""
        if not self._done:
            self._began = time.monotonic()
        return RunDisplay(self, title, config, num_tasks)

    def finished(self) -> None:
        """The current run is complete."""
        self._done += 1

    def say(self, line: str) -> None:
        """Print a line that stays, with flags instead of Python arguments."""
        self._console.print(as_flags(line), highlight=False, markup=False, soft_wrap=True)

    def warn(self, line: str) -> None:
        """Print a warning, also on a quiet console."""
        quiet, self._console.quiet = self._console.quiet, False
        self.say(f"warning: {line}")
        self._console.quiet = quiet

    def update(self, description: str, detail: str, share_of_run: float) -> None:
        """Show how far the current run is; `share_of_run` from 0 to 1."""
        self._bar.update(
            self._id,
            description=description,
            detail=detail,
            total=self._num_runs,
            completed=self._done + share_of_run,
            visible=True,
        )

    def left(self, share_of_run: float) -> str:
        """Seconds left at the pace so far, in words."""
        share = (self._done + share_of_run) / self._num_runs
        elapsed = time.monotonic() - self._began
        return f"{elapsed * (1 - share) / share:.0f} s left" if share > 0 else ""

    def is_due(self) -> bool:
        """Whether the bar is to be drawn again."""
        now = time.monotonic()
        if now - self._shown < _PERIOD:
            return False
        self._shown = now
        return True


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

    def task_begins(self, task: Task) -> None:
        """A new running mean; before the first step there is no loss to show."""
        self._task, self._step, self._steps = task.number, 0, 1
        self._accuracy = None
        self._draw("checking")

    def checked(
        self, task: Task, verdicts: Sequence[Verdict], result: AdaptationResult, samples: int
    ) -> None:
        """Print what drifted, and the adaptation's notes."""
        self._steps = max(1, math.ceil(samples / self._batch_size) * self._epochs)
        classes = {
            "drifted": [verdict for verdict in verdicts if verdict.drifted],
            "harmless, so left alone": [verdict for verdict in verdicts if verdict.spared],
            "not testable": [verdict for verdict in verdicts if verdict.drifted is None],
        }
        lines = [
            f"{what}: {', '.join(map(_named, some))}" for what, some in classes.items() if some
        ]
        for line in (*lines, *result.notes):
            self._say(f"{task.number}/{self._num_tasks}: {line}")

    def resumed(self, task: Task, task_state: TaskState, samples: int) -> None:
        """Print where it resumes."""
        an_epoch = math.ceil(samples / self._batch_size)
        self._task, self._steps = task.number, max(1, an_epoch * self._epochs)
        self._step = (task_state.epoch - 1) * an_epoch + task_state.steps
        self._say(
            f"{task.number}/{self._num_tasks} goes on after step {self._step} of {self._steps}"
        )

    def stepped(self, epoch: int, report: StepReport) -> None:
        """Advance the bar, at most ten times a second."""
        keep = _SMOOTHING if self._step else 0.0
        self._loss = keep * self._loss + (1 - keep) * report.loss
        self._step += 1
        if self._display.is_due():
            # Of the steps that are shown only: computing the accuracy takes time.
            share = report.correct / max(1, report.samples)
            before = share if self._accuracy is None else self._accuracy
            self._accuracy = _SMOOTHING * before + (1 - _SMOOTHING) * share
            self._draw(
                f"epoch {epoch}/{self._epochs} step {self._step}/{self._steps} "
                f"loss {self._loss:.3f} acc {100 * self._accuracy:.0f} %"
            )

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """Print the mean accuracy over the tasks so far."""
        accuracies = [value for value in record.scores.accuracy if value is not None]
        mean = f"{sum(accuracies) / len(accuracies):.1f} %" if accuracies else "unknown"
        self._say(
            f"{record.task}/{self._num_tasks} done, accuracy so far {mean}, loss "
            f"{self._loss:.3f}, {self._display.left(record.task / self._num_tasks)}"
        )
        if record.task == self._num_tasks:
            self._display.finished()

    def _say(self, line: str) -> None:
        self._display.say(f"{self._title}: task {line}")

    def _draw(self, detail: str) -> None:
        self._display.update(
            f"{self._title} task {self._task}/{self._num_tasks}",
            detail,
            (self._task - 1 + self._step / self._steps) / self._num_tasks,
        )


def _named(verdict: Verdict) -> str:
    """The class, with the kind of its change where that is not plain drift."""
    plain = not verdict.drifted or verdict.spared or verdict.kind in (None, "drift")
    return str(verdict.label) if plain else f"{verdict.label} ({verdict.kind})"
