"""The progress of a sweep: bars on a terminal, a line per run elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from driftwise.config.flags import as_flags
from driftwise.sweeps.job import Outcome


class Overview:
    """Runs done, running and failed, time left; one more bar for each run that reports progress."""

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
        self._bar_of: dict[str, TaskID] = {}
        self._total = self._done = self._failed = 0
        self._slots = 1
        self._spent: list[float] = []
        self._waited_for = 0

    def __enter__(self) -> Overview:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begins(self, total: int, done: int, slots: int) -> None:
        """Runs in all, of which some are done already, and how many run at a time."""
        self._total, self._done, self._slots = total, done, slots
        self.log(f"{total} runs, {done} of them done before, {slots} at a time")
        self._update()

    def started(self, run_id: str) -> None:
        """A run has started."""
        self._bar_of[run_id] = self._bars.add_task(f"  {run_id}", total=None, detail="begins")
        self._update()

    def progress(self, run_id: str, done: int, tasks: int) -> None:
        """A run has finished some of its tasks."""
        if run_id in self._bar_of:
            detail = f"task {done}/{tasks}"
            self._bars.update(self._bar_of[run_id], completed=done, total=tasks, detail=detail)

    def ended(self, outcome: Outcome, *, again: bool) -> None:
        """A run has ended; `again`: it is tried or checked once more."""
        if outcome.id in self._bar_of:
            self._bars.remove_task(self._bar_of.pop(outcome.id))
        for warning in outcome.warnings:
            self.log(f"{outcome.id}: warning: {warning}")
        if outcome.state == "busy":
            return  # `waits` reports it, if there is nothing else to do
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
        self.log(f"{outcome.id}: {how} ({self._status()})")
        self._update()

    def waits(self, elsewhere: int) -> None:
        """Only runs of other processes are left; logged once for each number."""
        if elsewhere != self._waited_for:
            self._waited_for = elsewhere
            self.log(f"waiting for {elsewhere} runs that another process has")

    def warn(self, line: str) -> None:
        """Print a warning, also where everything else is quiet."""
        quiet, self._console.quiet = self._console.quiet, False
        self.log(f"warning: {line}")
        self._console.quiet = quiet

    def log(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(as_flags(line), highlight=False, markup=False, soft_wrap=True)

    def _update(self) -> None:
        status = self._status()
        self._bars.update(
            self._all, description="runs", completed=self._done, total=self._total, detail=status
        )

    def _status(self) -> str:
        parts = [f"{self._done}/{self._total} done"]
        if self._bar_of:
            parts.append(f"{len(self._bar_of)} running")
        if self._failed:
            parts.append(f"{self._failed} failed")
        left = self._total - self._done - self._failed
        if left and self._spent:
            at_a_time = max(self._slots, len(self._bar_of))  # a cluster may have grown
            mean = sum(self._spent) / len(self._spent)
            parts.append(f"about {_duration(mean * max(1.0, left / at_a_time))} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    """A rounded time.

    >>> _duration(42), _duration(400), _duration(9000)
    ('42 s', '7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
