"""Performing the runs of a plan: finished runs are skipped, failed runs are tried again.

Several processes, on one machine or many, may work on the same folder: a run belongs to the process
that holds its folder's lock, which the kernel releases however that process ends.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from driftwise.errors import UserError
from driftwise.files import Manifest, folder_in, read_object, refuse_links, write_json
from driftwise.runs.store import is_busy, is_finished
from driftwise.sweeps.executors import Engine
from driftwise.sweeps.job import Job, Outcome, is_damaged, not_planned
from driftwise.sweeps.plan import FAILURES, RUNS, PlannedRun

POLL = 1.0
"""seconds between checks of runs that another process has"""


class SweepListener(Protocol):
    """What is notified of the progress of a sweep."""

    def begins(self, total: int, done: int, slots: int) -> None:
        """Runs in all, of which some are done already, and how many run at a time."""

    def started(self, run_id: str) -> None:
        """A run has started."""

    def ended(self, outcome: Outcome, *, again: bool) -> None:
        """A run has ended; `again`: it is tried or checked once more."""

    def waits(self, elsewhere: int) -> None:
        """Nothing is left but this many runs of other processes."""

    def warn(self, line: str) -> None:
        """Something is wrong with a file."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How a sweep ended."""

    total: int
    done: int
    failed: Mapping[str, str] = field(default_factory=dict)
    """id of a run -> what went wrong the last time"""


def carry_out(
    runs: Sequence[PlannedRun],
    out: Path,
    engine: Engine,
    listener: SweepListener,
    *,
    retries: int = 1,
) -> Summary:
    """Perform every run that is not done yet; each is tried at most 1 + `retries` times."""
    return _Sweep(runs, out.resolve(), engine, listener, retries).run()


class _Sweep:
    """The runs of one call by state: waiting, under way, elsewhere, done, failed."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        out: Path,
        engine: Engine,
        listener: SweepListener,
        retries: int,
    ) -> None:
        self._runs = {run.id: run for run in runs}
        self._out = out
        self._engine = engine
        self._listener = listener
        self._tries = 1 + retries
        self._attempts: Counter[str] = Counter()
        self._under_way: set[str] = set()
        self._elsewhere: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        self._waiting = deque(self._unfinished())

    def run(self) -> Summary:
        """Until nothing is left to do."""
        total = len(self._runs)
        self._listener.begins(total, total - len(self._waiting), self._engine.slots)
        while self._waiting or self._under_way or self._elsewhere:
            self._hand_out()
            if self._elsewhere and not self._under_way:
                self._listener.waits(len(self._elsewhere))
            outcome = self._engine.wait(POLL)
            if outcome is not None:
                self._under_way.discard(outcome.id)
                self._take(outcome)
            self._check_elsewhere()
        return Summary(total=total, done=total - len(self._failed), failed=self._failed)

    def _unfinished(self) -> Iterator[str]:
        for run_id in self._runs:
            folder = self._folder(run_id)
            if is_damaged(folder):
                self._listener.warn(f"{folder}: its result is damaged; it counts as not done")
            elif strange := self._strange(run_id):
                self._listener.warn(
                    f"{folder}: the result of another run ({strange}); it counts as not done; "
                    "remove the folder, or put the run's own there"
                )
            elif is_finished(folder):
                self._forget_failure(run_id)
                continue
            refuse_links(self._out, folder)
            refuse_links(self._out, self._failures(run_id).parent)
            yield run_id

    def _strange(self, run_id: str) -> str:
        """How a finished run differs from the planned one; empty: not at all, or no result."""
        folder = self._folder(run_id)
        return not_planned(folder, self._config(run_id)) if is_finished(folder) else ""

    def _config(self, run_id: str) -> dict[str, Any]:
        return self._runs[run_id].config.to_json()

    def _hand_out(self) -> None:
        while self._waiting and len(self._under_way) < self._engine.slots:
            run_id = self._waiting.popleft()
            if is_busy(self._folder(run_id)):
                self._elsewhere[run_id] = time.monotonic()
                continue
            if is_finished(self._folder(run_id)) and not (
                is_damaged(self._folder(run_id)) or self._strange(run_id)
            ):
                self._take(Outcome(id=run_id, state="done"))  # another process was faster
                continue
            self._under_way.add(run_id)
            self._listener.started(run_id)
            self._engine.submit(self._job(run_id))

    def _take(self, outcome: Outcome) -> None:
        """Sort a run by its outcome."""
        run_id = outcome.id
        again = outcome.state == "busy"
        if again:
            self._elsewhere[run_id] = time.monotonic()
        elif outcome.state == "done":
            self._forget_failure(run_id)
        else:
            self._attempts[run_id] += 1
            self._note_failure(outcome)
            again = outcome.state == "failed" and self._attempts[run_id] < self._tries
            if again:
                self._waiting.append(run_id)
            else:
                self._failed[run_id] = outcome.error
        self._listener.ended(outcome, again=again)

    def _check_elsewhere(self) -> None:
        """Take back the runs that another process has finished or released."""
        now = time.monotonic()
        for run_id, checked in list(self._elsewhere.items()):
            if now - checked < POLL:
                continue
            self._elsewhere[run_id] = now
            if not is_busy(self._folder(run_id)):
                del self._elsewhere[run_id]
                self._waiting.append(run_id)

    def _note_failure(self, outcome: Outcome) -> None:
        file = folder_in(self._out, FAILURES) / self._failures(outcome.id).name
        Manifest(self._out, FAILURES).add([file.name])
        earlier: list[Any] = []
        with contextlib.suppress(UserError):  # a damaged note must not end the sweep
            earlier = (read_object(file) or {}).get("attempts", [])
        attempt = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "error": outcome.error}
        write_json(file, {"attempts": [*earlier, attempt]})

    def _forget_failure(self, run_id: str) -> None:
        file = self._failures(run_id)
        if file.exists() and not file.parent.is_symlink():
            Manifest(self._out, FAILURES).remove([file.name])

    def _job(self, run_id: str) -> Job:
        return Job(id=run_id, folder=str(self._folder(run_id)), config=self._config(run_id))

    def _folder(self, run_id: str) -> Path:
        return self._out / RUNS / run_id

    def _failures(self, run_id: str) -> Path:
        return self._out / FAILURES / f"{run_id}.json"
