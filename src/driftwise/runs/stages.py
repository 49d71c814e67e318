"""What is being done to a data set right now: a bar on a terminal, a line each elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from driftwise.config.flags import as_flags


class Stages:
    """Downloading, unpacking, decoding, one after the other; each stage is named once it begins."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not self._live,
        )
        self._stage = ""
        self._sample = self._bar.add_task("", total=None, visible=False)
        self._shown = 0.0

    def __enter__(self) -> Stages:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def progress(self, stage: str, done: int, total: int | None) -> None:
        """Where things stand."""
        if stage != self._stage:
            self._stage = stage
            self._shown = 0.0
            self._bar.reset(self._sample, description=stage, total=total, visible=True)
            if not self._live:
                self.say(stage)
        now = time.monotonic()
        if now - self._shown >= 0.1 or done == total:
            self._shown = now
            self._bar.update(self._sample, completed=done, total=total)

    def say(self, line: str) -> None:
        """A line that stays."""
        say(self._console, line)

    def warn(self, line: str) -> None:
        """Something a person must know, also one who wants to hear nothing else."""
        warn(self._console, line)


def say(console: Console, line: str) -> None:
    """Print a line as it is, in the words of the command line."""
    console.print(as_flags(line), highlight=False, markup=False, soft_wrap=True)


def warn(console: Console, line: str) -> None:
    """The same of a warning, which a quiet console prints, too."""
    quiet, console.quiet = console.quiet, False
    say(console, f"warning: {line}")
    console.quiet = quiet
