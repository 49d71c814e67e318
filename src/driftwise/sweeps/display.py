"""How a sweep goes: bars on a terminal, a line per run elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from driftwise.config.flags import as_flags
from driftwise.sweeps.job import Outcome


class Overview:
    """Done, running, failed, time left; one more bar for each run that tells how far it is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._all = self._bars.add_task("", total=None, detail="")
        self._rows: dict[str, TaskID] = {}
        self._total = self._done = self._failed = 0
        self._slots = 1
        self._spent: list[float] = []
        self._waited_for = 0

    def __enter__(self) -> Overview:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begins(self, total: int, done: int, slots: int) -> None:
        """So many runs, of which some are done already, so many at a time."""
        self._total, self._done, self._slots = total, done, slots
        self.say(f"{total} runs, {done} of them done before, {slots} at a time")
        self._draw()

    def started(self, run_id: str) -> None:
        """A run is under way."""
        self._rows[run_id] = self._bars.add_task(f"  {run_id}", total=None, detail="begins")
        self._draw()

    def progress(self, run_id: str, done: int, tasks: int) -> None:
        """How far a run is."""
        if run_id in self._rows:
            detail = f"task {done}/{tasks}"
            self._bars.update(self._rows[run_id], completed=done, total=tasks, detail=detail)

    def ended(self, outcome: Outcome, *, again: bool) -> None:
        """A line for it."""
        if outcome.id in self._rows:
            self._bars.remove_task(self._rows.pop(outcome.id))
        for warning in outcome.warnings:
            self.say(f"{outcome.id}: warning: {warning}")
        if outcome.state == "busy":
            return  # `waits` tells of it, if there is nothing else to do
        if outcome.state == "done":
            self._done += 1
            if outcome.seconds:
                self._spent.append(outcome.seconds)
            how = "by another process"
            if outcome.faa is not None:
                how = f"FAA {outcome.faa:.1f} in {outcome.seconds:.1f} s"
        else:
            self._failed += not again
            how = f"{'failed, tried again' if again else 'failed'}: {outcome.error}"
        self.say(f"{outcome.id}: {how} ({self._standing()})")
        self._draw()

    def waits(self, elsewhere: int) -> None:
        """Say it once for each number."""
        if elsewhere != self._waited_for:
            self._waited_for = elsewhere
            self.say(f"waiting for {elsewhere} runs that another process has")

    def warn(self, line: str) -> None:
        """Something a person must know, also one who wants to hear nothing else."""
        quiet, self._console.quiet = self._console.quiet, False
        self.say(f"warning: {line}")
        self._console.quiet = quiet

    def say(self, line: str) -> None:
        """A line that stays."""
        self._console.print(as_flags(line), highlight=False, markup=False, soft_wrap=True)

    def _draw(self) -> None:
        standing = self._standing()
        self._bars.update(
            self._all, description="runs", completed=self._done, total=self._total, detail=standing
        )

    def _standing(self) -> str:
        parts = [f"{self._done}/{self._total} done"]
        if self._rows:
            parts.append(f"{len(self._rows)} running")
        if self._failed:
            parts.append(f"{self._failed} failed")
        left = self._total - self._done - self._failed
        if left and self._spent:
            at_a_time = max(self._slots, len(self._rows))  # a cluster may have grown
            mean = sum(self._spent) / len(self._spent)
            parts.append(f"about {_duration(mean * max(1.0, left / at_a_time))} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    """A time that a person can plan by.

    >>> _duration(42), _duration(400), _duration(9000)
    ('42 s', '7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
