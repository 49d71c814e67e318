"""Performing the runs of a plan: finished runs are skipped, failed runs are tried again, and what
several runs share is run once.

Several processes, on one machine or many, may work on the same folder: a run belongs to the process
that holds its folder's lock, which the kernel releases however that process ends.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from driftwise.config.schema import RunConfig
from driftwise.errors import UserError
from driftwise.files import Manifest, folder_in, read_object, refuse_links, write_json
from driftwise.runs.store import (
    is_begun,
    is_busy,
    is_finished,
    read_result,
    remove_shared,
    shared_tasks,
    trail_file,
)
from driftwise.sweeps.budget import Budget, own_tasks
from driftwise.sweeps.executors import Engine
from driftwise.sweeps.job import Job, Outcome, is_damaged, not_planned
from driftwise.sweeps.plan import FAILURES, RUNS, SHARED, PlannedRun
from driftwise.sweeps.shared import Tree, tasks_of, tree_of

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

    def log(self, line: str) -> None:
        """A line that stays."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How a sweep ended."""

    total: int
    done: int
    failed: Mapping[str, str] = field(default_factory=dict)
    """id of a run -> what went wrong the last time"""
    left: int = 0
    """runs that were not done in time"""


def carry_out(
    runs: Sequence[PlannedRun],
    out: Path,
    engine: Engine,
    listener: SweepListener,
    *,
    retries: int = 1,
    budget: Budget | None = None,
) -> Summary:
    """Perform every run that is not done yet; each is tried at most 1 + `retries` times.

    With a `budget` of time, no run is begun that would end too late as far as is known, and what is
    still going on when time is up is saved and ended (by the engine, when it is closed).
    """
    return _Sweep(runs, out.resolve(), engine, listener, retries, budget).run()


def measure(budget: Budget, done: Sequence[PlannedRun], out: Path) -> None:
    """Note how long finished runs of a folder took; one that cannot be read does not count."""
    for run in done:
        with contextlib.suppress(UserError, TypeError):
            seconds = read_result(out / RUNS / run.id).get("seconds") or {}
            budget.add(run.config, tasks_of(run.config), sum(seconds.values()))


class _Sweep:
    """The runs of one call by state: waiting, under way, elsewhere, done, failed."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        out: Path,
        engine: Engine,
        listener: SweepListener,
        retries: int,
        budget: Budget | None,
    ) -> None:
        self._budget = budget
        self._tree = tree_of(runs)
        self._runs = {run.id: run for run in self._tree.runs}
        self._out = out
        self._engine = engine
        self._listener = listener
        self._tries = 1 + retries
        self._attempts: Counter[str] = Counter()
        self._under_way: set[str] = set()
        self._elsewhere: dict[str, float] = {}
        self._failed: dict[str, str] = {}
        self._waiting = deque(self._unfinished())
        self._tree = self._with_leaders_to_come()
        self._unused: set[str] = set()
        """shared tasks that are not run: runs that would go on from them begin at their first task"""
        for shared in self._tree.shared.values():
            refuse_links(out, self._folder(shared.id))
            later = [run_id for run_id in self._waiting if run_id in shared.runs]
            if sum(not is_begun(self._folder(run_id)) for run_id in later) < 2:
                self._unused.add(shared.id)

    def run(self) -> Summary:
        """Until nothing is left to do."""
        total = len(self._runs)
        self._listener.begins(total, total - len(self._waiting), self._engine.slots)
        self._forecast()
        while self._waiting or self._under_way or self._elsewhere:
            self._hand_out()
            if self._is_late():
                break
            if self._elsewhere and not self._under_way:
                self._listener.waits(len(self._elsewhere))
            outcome = self._engine.wait(POLL)
            if outcome is not None:
                self._under_way.discard(outcome.id)
                self._take(outcome)
            self._check_elsewhere()
        left = {*self._waiting, *self._under_way, *self._elsewhere} & self._runs.keys()
        done = total - len(self._failed) - len(left)
        return Summary(total=total, done=done, failed=self._failed, left=len(left))

    def _is_late(self) -> bool:
        """Whether time is up, or nothing goes on because nothing would end in time."""
        if self._budget is None:
            return False
        return self._budget.left <= 0 or not (self._under_way or self._elsewhere)

    def _fits(self, name: str) -> bool:
        return self._budget is None or self._budget.fits(*self._work(name))

    def _work(self, name: str) -> tuple[RunConfig, int]:
        """A config and the tasks that are its own."""
        if (shared := self._tree.shared.get(name)) is None:
            config = self._runs[name].config
            return config, own_tasks(self._tree, name, config)
        return shared.config, shared.until

    def _forecast(self) -> None:
        """Report what will be done in time, by runs that are done."""
        if self._budget is None:
            return
        waiting = {*self._waiting}
        done = [run for run_id, run in self._runs.items() if run_id not in waiting]
        measure(self._budget, done, self._out)
        self._report_forecast()

    def _report_forecast(self) -> None:
        assert self._budget is not None
        done = self._runs.keys() - {*self._waiting, *self._under_way, *self._elsewhere}
        slots = self._engine.slots
        self._listener.log(self._budget.forecast(self._tree, done.__contains__, slots))

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
        for run_id in list(self._waiting):
            if len(self._under_way) >= self._engine.slots:
                return
            if self._waits_for_leader(run_id):
                continue
            if (missing := self._missing(run_id)) is not None:
                self._hand_out_shared(missing)
                continue  # what shares nothing with it need not wait
            if not self._fits(run_id):
                continue
            self._waiting.remove(run_id)
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

    def _with_leaders_to_come(self) -> Tree:
        """The tree, where a run that has left nothing to take over is not followed.

        A leader that another sweep has finished leaves no trail: one of those that wait leads then.
        """
        leader_of = dict(self._tree.leader_of)
        for leader in dict.fromkeys(leader_of.values()):
            last = trail_file(self._trail(leader), tasks_of(self._runs[leader].config))
            if leader in self._waiting or last.exists():
                continue
            alike = [
                name
                for name in self._followers(leader)
                if name in self._waiting and not is_begun(self._folder(name))
            ]
            if alike:
                shared, parents = self._tree.shared, self._tree.parent_of
                lasts = {n: shared[parents[n]].until if n in parents else 0 for n in alike}
                leads = max(alike, key=lambda name: lasts[name])
                leader_of |= dict.fromkeys(alike, leads)
                del leader_of[leads]
        return replace(self._tree, leader_of=leader_of)

    def _waits_for_leader(self, run_id: str) -> bool:
        """Whether a run that is trained for this one is still to come."""
        leader = self._tree.leader_of.get(run_id)
        if leader is None or is_begun(self._folder(run_id)):
            return False
        return leader in self._waiting or leader in self._under_way or leader in self._elsewhere

    def _missing(self, run_id: str) -> str | None:
        """The first shared tasks that a run, or other shared tasks, have to wait for."""
        if is_begun(self._folder(run_id)):
            return None
        parent = self._parent(run_id)
        if parent is None or shared_tasks(self._folder(parent)) is not None:
            return None
        return self._missing(parent) or parent

    def _parent(self, name: str) -> str | None:
        """The shared tasks to go on from; None: there are none, or they cannot be had."""
        shared = self._tree.shared.get(name)
        parent = self._tree.parent_of.get(name) if shared is None else shared.parent
        while parent in self._unused:
            parent = self._tree.shared[parent].parent
        return parent

    def _hand_out_shared(self, name: str) -> None:
        if name in self._under_way or name in self._elsewhere or not self._fits(name):
            return
        if is_busy(self._folder(name)):
            self._elsewhere[name] = time.monotonic()
            return
        self._under_way.add(name)
        self._engine.submit(self._job(name))

    def _take_shared(self, outcome: Outcome) -> None:
        """Let the runs go on that wait for it, from it or from their first task."""
        if outcome.state == "busy":
            self._elsewhere[outcome.id] = time.monotonic()
        elif outcome.state != "done":
            self._attempts[outcome.id] += 1
            if outcome.state == "hopeless" or self._attempts[outcome.id] >= self._tries:
                self._unused.add(outcome.id)  # each of its runs reports what is wrong, if it is

    def _take(self, outcome: Outcome) -> None:
        """Sort a run by its outcome."""
        if outcome.id in self._tree.shared:
            self._take_shared(outcome)
            return
        run_id = outcome.id
        again = outcome.state == "busy"
        if again:
            self._elsewhere[run_id] = time.monotonic()
        elif outcome.state == "done":
            self._forget_failure(run_id)
            self._remove_used(run_id)
            self._measure(outcome)
        else:
            self._attempts[run_id] += 1
            self._note_failure(outcome)
            again = outcome.state == "failed" and self._attempts[run_id] < self._tries
            if again:
                self._waiting.append(run_id)
            else:
                self._failed[run_id] = outcome.error
        self._listener.ended(outcome, again=again)

    def _measure(self, outcome: Outcome) -> None:
        """Note how long a run took; where nothing was known before, say what will fit."""
        if self._budget is not None and outcome.seconds:
            is_first = not self._budget.num_measured
            self._budget.add(*self._work(outcome.id), outcome.seconds)
            if is_first:
                self._report_forecast()

    def _check_elsewhere(self) -> None:
        """Take back the runs that another process has finished or released."""
        now = time.monotonic()
        for run_id, checked in list(self._elsewhere.items()):
            if now - checked < POLL:
                continue
            self._elsewhere[run_id] = now
            if not is_busy(self._folder(run_id)):
                del self._elsewhere[run_id]
                if run_id in self._runs:
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

    def _remove_used(self, done: str) -> None:
        """Remove shared tasks once all runs that go on from them are done."""
        for shared in self._tree.shared.values():
            if done in shared.runs and all(is_finished(self._folder(run)) for run in shared.runs):
                remove_shared(self._folder(shared.id))
        leader = self._tree.leader_of.get(done)
        if leader is not None and all(map(is_finished, map(self._folder, self._followers(leader)))):
            shutil.rmtree(self._trail(leader), ignore_errors=True)

    def _followers(self, leader: str) -> list[str]:
        return [name for name, other in self._tree.leader_of.items() if other == leader]

    def _trail(self, leader: str) -> Path:
        return self._out / SHARED / f"{leader}-trail"

    def _trail_of(self, name: str) -> str | None:
        """Where a run, or shared tasks, leave what they learn; None: nobody follows."""
        shared = self._tree.shared.get(name)
        for run_id, leader in self._tree.leader_of.items():
            is_led = name == leader or (shared is not None and leader in shared.runs)
            if is_led and not is_begun(self._folder(run_id)):
                return str(self._trail(leader))
        return None

    def _job(self, name: str) -> Job:
        parent, shared = self._parent(name), self._tree.shared.get(name)
        leader = self._tree.leader_of.get(name)
        return Job(
            id=name,
            folder=str(self._folder(name)),
            config=self._config(name) if shared is None else shared.config.to_json(),
            begins_from=None if parent is None else str(self._folder(parent)),
            until=None if shared is None else shared.until,
            trail=self._trail_of(name),
            follows=None if leader is None else str(self._trail(leader)),
        )

    def _folder(self, name: str) -> Path:
        return self._out / (SHARED if name in self._tree.shared else RUNS) / name

    def _failures(self, run_id: str) -> Path:
        return self._out / FAILURES / f"{run_id}.json"
