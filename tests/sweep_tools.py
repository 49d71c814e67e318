"""What tests of sweeps share: runs of a second, and a listener that records."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import driftwise
from driftwise.sweeps.grid import Grid, Value
from driftwise.sweeps.job import Job, Outcome
from driftwise.sweeps.plan import RUNS, Plan, PlannedRun, make_plan

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
"""For real processes: they find `own_parts` beside this file, too."""

TINY: Mapping[str, Any] = {"epochs": 1, "tasks": [[0, 1], [2, 3]], "adaptation": "vanilla"}
"""Two tasks of digits in well under a second."""


def tiny_plan(name: str = "tiny", *, axes: Mapping[str, Sequence[Value]], **base: Any) -> Plan:
    """A plan of very short runs."""
    base = {key: value for key, value in {**TINY, **base}.items() if key not in axes}
    return make_plan(name, Grid(axes=axes, base=base))


def job_of(run: PlannedRun, out: Path) -> Job:
    """The job of a run."""
    return Job(id=run.id, folder=str(out / RUNS / run.id), config=run.config.to_json())


def write_digits(file: Path) -> Path:
    """A user's own data: the first four digits."""
    digits = load_digits()
    few = digits.target < 4
    np.savez(file, images=digits.images[few].astype(np.uint8), labels=digits.target[few])
    return file


def undisturbed(plan: Plan, out: Path) -> Path:
    """The folder of all runs of a plan, each made by `driftwise.run`."""
    for run in plan.runs:
        driftwise.run(run.config, out / RUNS / run.id)
    return out


def until(holds: Callable[[], bool], *, seconds: float = 90.0) -> None:
    """Wait until a condition holds; busy machines take long."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def is_dead(pid: int) -> bool:
    """Whether all threads of a process have ended; it may still be a zombie."""
    try:
        threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return threads == 1 and state == "Z"


class Notes:
    """A listener that records its notifications."""

    def __init__(self) -> None:
        self.begun: tuple[int, int, int] | None = None
        self.starts: list[str] = []
        self.ends: list[tuple[Outcome, bool]] = []
        self.waited: list[int] = []
        self.warnings: list[str] = []
        self.lines: list[str] = []

    def begins(self, total: int, done: int, slots: int) -> None:
        self.begun = total, done, slots

    def started(self, run_id: str) -> None:
        self.starts.append(run_id)

    def ended(self, outcome: Outcome, *, again: bool) -> None:
        self.ends.append((outcome, again))

    def waits(self, elsewhere: int) -> None:
        self.waited.append(elsewhere)

    def warn(self, line: str) -> None:
        self.warnings.append(line)

    def log(self, line: str) -> None:
        self.lines.append(line)
