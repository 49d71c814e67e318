"""One run of a sweep, wherever it is performed: the job and its outcome."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from driftwise.config.custom import in_one_line
from driftwise.config.schema import RunConfig
from driftwise.errors import RunFailure, UserError
from driftwise.runs.listeners import Silent
from driftwise.runs.store import (
    RESULT,
    FolderBusy,
    RunFolder,
    is_finished,
    read_config,
    read_result,
)
from driftwise.types import TaskRecord

State = Literal["done", "busy", "failed", "hopeless"]
"""busy: another process has it; hopeless: it would fail again in the same way"""

Progress = Callable[[str, int, int], None]
"""Id of a run, tasks done, tasks in all."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run to perform; plain data, so that it can be sent to another process."""

    id: str
    folder: str
    """absolute, and the same on every machine"""
    config: Mapping[str, Any]
    """resolved"""
    begins_from: str | None = None
    """the folder of complete shared tasks, for a run that has not begun"""
    until: int | None = None
    """these are tasks that several runs share, up to this one; None: a whole run"""
    trail: str | None = None
    """where to leave what is learned, for runs that learn the same"""
    follows: str | None = None
    """where another run has left what this one would learn"""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "config": dict(self.config)}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a job."""

    id: str
    state: State
    error: str = ""
    """one line"""
    faa: float | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    """about the run's files, a line each"""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)


def perform(job: Job, progress: Progress | None = None) -> Outcome:
    """Perform a run, from its checkpoint if it has one; errors are returned, not raised.

    A result that cannot be read counts for nothing: it is made again from the checkpoint.
    """
    # Late: these import torch, which a process that only distributes jobs does not need.
    import driftwise.config.build
    import driftwise.runs.run  # noqa: F401

    began = time.monotonic()  # without the imports above
    warnings: list[str] = []

    def outcome(state: State, error: str = "", faa: float | None = None) -> Outcome:
        return Outcome(
            id=job.id,
            state=state,
            error=" ".join(error.split()),
            faa=faa,
            seconds=time.monotonic() - began,
            warnings=tuple(warnings),
        )

    try:
        return outcome("done", faa=_run(job, progress, warnings.append))
    except FolderBusy as error:
        return outcome("busy", str(error))
    except UserError as error:
        return outcome("hopeless", _advice(str(error), job.folder))
    except (RunFailure, OSError, MemoryError) as error:
        return outcome("failed", str(error) or type(error).__name__)
    except (Exception, SystemExit) as error:  # a fault in a custom part must not end other runs
        return outcome("failed", in_one_line(error))


def _run(job: Job, progress: Progress | None, warn: Callable[[str], None]) -> float | None:
    """The final accuracy; None of shared tasks."""
    from driftwise.config.benchmarks import Notify
    from driftwise.config.build import as_begun, assemble
    from driftwise.runs.run import begin_from, run_in, run_shared

    folder = Path(job.folder)
    config = as_begun(RunConfig(**job.config), folder)
    assembly = assemble(config, notify=Notify(warn=warn))
    with RunFolder.open(folder, _as_begun(folder, assembly.config), resume=True) as held:
        if is_damaged(folder):
            (folder / RESULT).unlink()
        tasks = len(assembly.stream)
        listener = _Progress(lambda done: progress(job.id, done, tasks)) if progress else None
        if job.begins_from is not None and not (held.begun or held.finished):
            try:
                begin_from(held, assembly, Path(job.begins_from))
            except (UserError, OSError) as error:
                warn(f"it begins at its first task, as shared tasks cannot be used: {error}")
        how: dict[str, Any] = {"listener": listener, "warn": warn}
        how["trail"] = None if job.trail is None else Path(job.trail)
        if job.until is not None:
            run_shared(held, assembly, until=job.until, **how)
            return None
        follows = None if job.follows is None else Path(job.follows)
        faa: float = run_in(held, assembly, follows=follows, **how)["faa"]
        return faa


def _as_begun(folder: Path, config: RunConfig) -> dict[str, Any]:
    """The config to resume with: data in another folder are the same data."""
    try:
        return {**config.to_json(), "data": read_config(folder)["data"]}
    except (UserError, KeyError):
        return config.to_json()  # there is no run yet, or none that can be resumed


def _advice(error: str, folder: str) -> str:
    """The advice for a single run, as it applies in a sweep."""
    flags = "(choose another folder or )?start anew with overwrite=True"
    return re.sub(flags, lambda _: f"remove {folder} to start it anew", error)


def is_damaged(folder: Path) -> bool:
    """Whether a run has a result that cannot be read."""
    if not is_finished(folder):
        return False
    try:
        return "faa" not in read_result(folder)
    except UserError:
        return True


def not_planned(folder: Path, planned: Mapping[str, Any]) -> str:
    """In a phrase, how a finished run differs from the planned one; empty: not at all."""
    from driftwise.report.sweeps import unplanned  # late, because it imports numpy

    config = read_result(folder).get("config")
    return unplanned(planned, config) if isinstance(config, Mapping) else ""


class _Progress(Silent):
    """Reports how many tasks are done."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report = report

    def task_ends(self, record: TaskRecord[Any]) -> None:
        """One more is done."""
        self._report(record.task)
