"""Performing a plan: what is skipped, tried again, shared, refused; the progress that is shown."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_tools import complaint, lasting, snapshot
from sweep_tools import Notes, job_of, tiny_plan, undisturbed

from driftwise import files
from driftwise.errors import RunFailure
from driftwise.report.sweeps import read_sweep
from driftwise.runs.store import RunFolder, is_finished
from driftwise.sweeps import perform as sweeps
from driftwise.sweeps.executors import Engine, InProcess
from driftwise.sweeps.job import Job, Outcome, State
from driftwise.sweeps.perform import Summary, carry_out
from driftwise.sweeps.plan import FAILURES, RUNS, Plan, write_plan
from driftwise.sweeps.progress import Overview


class Scripted(Engine):
    """Runs nothing: answers by a script, `done` where it has no line left."""

    def __init__(self, script: Mapping[str, Sequence[State]] | None = None, slots: int = 2) -> None:
        self.slots = slots
        self.jobs: list[str] = []
        self.most_at_once = 0
        self._script = {run_id: deque(states) for run_id, states in (script or {}).items()}
        self._under_way: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self.jobs.append(job.id)
        self._under_way.append(job)
        self.most_at_once = max(self.most_at_once, len(self._under_way))

    def wait(self, seconds: float) -> Outcome | None:
        if not self._under_way:
            return None
        job = self._under_way.popleft()
        states = self._script.get(job.id)
        state = states.popleft() if states else "done"
        if state == "done":
            finish(Path(job.folder))
        error = "" if state == "done" else f"it is {state}"
        return Outcome(id=job.id, state=state, error=error, faa=50.0, seconds=1.0)


def finish(folder: Path) -> None:
    """Write what a sweep reads of a finished run."""
    with RunFolder.open(folder, {}, resume=True) as held:
        held.write_result({"faa": 50.0})


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "POLL", 0.01)


@pytest.fixture
def plan() -> Plan:
    return tiny_plan(axes={"seed": [0, 1, 2, 3]})


def failures(out: Path, run_id: str) -> list[dict[str, Any]]:
    attempts: list[dict[str, Any]] = json.loads((out / FAILURES / f"{run_id}.json").read_text())[
        "attempts"
    ]
    return attempts


def test_every_run_is_performed_once_never_more_than_fit_and_finished_ones_are_skipped(
    plan: Plan, tmp_path: Path
) -> None:
    first, *others = [run.id for run in plan.runs]
    finish(tmp_path / RUNS / first)
    before = snapshot(tmp_path / RUNS / first)
    engine, notes = Scripted(slots=2), Notes()
    assert carry_out(plan.runs, tmp_path, engine, notes) == Summary(total=4, done=4)
    assert engine.jobs == notes.starts == others
    assert engine.most_at_once == 2
    assert notes.begun == (4, 1, 2)
    assert [outcome.state for outcome, _ in notes.ends] == ["done"] * 3
    assert snapshot(tmp_path / RUNS / first) == before
    again = Scripted()
    assert carry_out(plan.runs, tmp_path, again, Notes()).done == 4
    assert again.jobs == []


def test_damaged_results_are_named_and_made_anew(tmp_path: Path) -> None:
    plan = tiny_plan(axes={"seed": [0, 1]})
    plain = undisturbed(plan, tmp_path / "plain")
    out = tmp_path / "out"
    with InProcess() as engine:
        carry_out(plan.runs, out, engine, Notes())
        folder = out / RUNS / plan.runs[0].id
        whole = (folder / "result.json").read_bytes()
        (folder / "result.json").write_bytes(whole[: len(whole) // 2])
        file = write_plan(plan, out)
        assert read_sweep(file).num_done == 1
        notes = Notes()
        assert carry_out(plan.runs, out, engine, notes) == Summary(total=2, done=2)
    assert notes.begun == (2, 1, 1)
    assert notes.starts == [plan.runs[0].id]
    assert len(notes.warnings) == 1
    assert str(folder) in notes.warnings[0]
    assert "damaged" in notes.warnings[0]
    assert read_sweep(file).num_done == 2
    for run in plan.runs:
        assert lasting(out / RUNS / run.id) == lasting(plain / RUNS / run.id)


def test_swapped_folders_are_named_and_left_out(tmp_path: Path) -> None:
    plan = tiny_plan(axes={"seed": [0, 1], "buffer_size": [20, 30]})
    file = write_plan(plan, tmp_path)
    with InProcess() as engine:
        carry_out(plan.runs, tmp_path, engine, Notes())
        first, second, *_ = (tmp_path / RUNS / run.id for run in plan.runs)
        before = snapshot(tmp_path / RUNS)
        first.rename(tmp_path / "aside")
        second.rename(first)
        (tmp_path / "aside").rename(second)
        found = read_sweep(file)
        assert [entry.run is None for entry in found.entries] == [True, True, False, False]
        assert len(found.warnings) == 2
        assert (
            f"{first}: the result of another run (buffer_size 30, planned 20), counted"
            in (found.warnings[0])
        )
        notes = Notes()
        summary = carry_out(plan.runs, tmp_path, engine, notes)
    assert (summary.total, summary.done) == (4, 2)
    assert set(summary.failed) == {first.name, second.name}
    assert all("remove " in error for error in summary.failed.values())
    assert [line.partition(": ")[0] for line in notes.warnings] == [str(first), str(second)]
    # Nothing of either run is lost: put back, both count again.
    first.rename(tmp_path / "aside")
    second.rename(first)
    (tmp_path / "aside").rename(second)
    after = snapshot(tmp_path / RUNS)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert all(name.endswith(".lock") for name in changed)
    assert read_sweep(file).num_done == 4


@pytest.mark.parametrize(
    ("retries", "state", "attempts"), [(0, "failed", 1), (3, "failed", 4), (5, "hopeless", 1)]
)
def test_a_failed_run_is_tried_again_and_every_attempt_is_noted_until_it_succeeds(
    plan: Plan, tmp_path: Path, retries: int, state: State, attempts: int
) -> None:
    broken = plan.runs[1].id
    engine, notes = Scripted({broken: [state] * 9}), Notes()
    summary = carry_out(plan.runs, tmp_path, engine, notes, retries=retries)
    assert (summary.done, summary.failed) == (3, {broken: f"it is {state}"})
    assert engine.jobs.count(broken) == attempts
    again = [again for outcome, again in notes.ends if outcome.id == broken]
    assert again == [True] * (attempts - 1) + [False]
    assert [each["error"] for each in failures(tmp_path, broken)] == [f"it is {state}"] * attempts
    assert carry_out(plan.runs, tmp_path, Scripted(), Notes()).done == 4
    assert list((tmp_path / FAILURES).iterdir()) == []


@pytest.mark.parametrize("place", ["runs", "run", "failures"])
def test_no_run_is_made_and_no_note_removed_through_a_link(
    place: str, plan: Plan, tmp_path: Path
) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = {"runs": out / RUNS, "run": out / RUNS / plan.runs[0].id, "failures": out / FAILURES}
    link[place].parent.mkdir(parents=True)
    link[place].symlink_to(elsewhere)
    line = complaint(lambda: carry_out(plan.runs, out, Scripted(), Notes()))
    assert f"{link[place]} is a link" in line
    assert list(elsewhere.iterdir()) == []
    # Runs that are done are only read: whoever has moved them to another disk may link to them.
    link[place].unlink()
    carry_out(plan.runs, out, Scripted(), Notes())
    link[place].mkdir(exist_ok=True)
    link[place].rename(elsewhere / "moved")
    link[place].symlink_to(elsewhere / "moved")
    note = out / FAILURES / f"{plan.runs[0].id}.json"
    note.parent.mkdir(exist_ok=True)
    note.write_text("precious")
    before = snapshot(elsewhere / "moved")
    assert carry_out(plan.runs, out, Scripted(), Notes()).done == 4
    assert note.read_text() == "precious"
    assert snapshot(elsewhere / "moved") == before


def test_a_note_that_a_crash_left_behind_a_finished_run_goes(plan: Plan, tmp_path: Path) -> None:
    carry_out(plan.runs, tmp_path, Scripted(), Notes())
    ours, mine = (tmp_path / FAILURES / f"{run.id}.json" for run in plan.runs[:2])
    ours.parent.mkdir()
    files.Manifest(tmp_path, FAILURES).add([ours.name])
    for note in (ours, mine):
        note.write_text('{"attempts": []}')
    carry_out(plan.runs, tmp_path, Scripted(), Notes())
    assert not ours.exists()
    assert mine.exists()  # no sweep has written it


@pytest.mark.parametrize("half", ["", '{"attempts": [', "[]"])
def test_a_damaged_note_does_not_end_a_sweep(plan: Plan, tmp_path: Path, half: str) -> None:
    broken = plan.runs[0].id
    (tmp_path / FAILURES).mkdir()
    (tmp_path / FAILURES / f"{broken}.json").write_text(half)
    engine = Scripted({broken: ["failed"]})
    assert carry_out(plan.runs, tmp_path, engine, Notes(), retries=0).done == 3
    assert len(failures(tmp_path, broken)) == 1


@pytest.mark.parametrize("finishes", [True, False])
def test_a_run_of_another_process_is_waited_for_and_taken_if_it_is_released_unfinished(
    plan: Plan, tmp_path: Path, finishes: bool
) -> None:
    taken = plan.runs[0].id
    held = RunFolder.open(tmp_path / RUNS / taken, {})

    class Elsewhere(Notes):
        """Stands for another process, which releases its run once this one waits for it."""

        def waits(self, elsewhere: int) -> None:
            if not self.waited:
                if finishes:
                    held.write_result({"faa": 60.0})
                held.close()
            super().waits(elsewhere)

    engine, notes = Scripted(), Elsewhere()
    assert carry_out(plan.runs, tmp_path, engine, notes) == Summary(total=4, done=4)
    assert (taken in engine.jobs) == (not finishes)
    assert set(notes.waited) == {1}


def test_losing_the_race_for_a_run_is_no_failure(plan: Plan, tmp_path: Path) -> None:
    lost = plan.runs[1].id
    engine, notes = Scripted({lost: ["busy", "busy"]}), Notes()
    assert carry_out(plan.runs, tmp_path, engine, notes, retries=0).done == 4
    assert engine.jobs.count(lost) == 3
    assert [(o.state, again) for o, again in notes.ends if o.id == lost] == [
        ("busy", True),
        ("busy", True),
        ("done", False),
    ]
    assert not (tmp_path / FAILURES).exists()


# A full disk


def full_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """So many files can still be written."""
    left = [writes]
    whole = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        whole(handle)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("writes", [0, 2])
def test_a_full_disk_ends_the_sweep_in_one_line_and_leaves_nothing_half_written(
    writes: int, tmp_path: Path
) -> None:
    plan = tiny_plan(axes={"seed": [0]})
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch, InProcess() as engine:
        full_after(patch, writes)
        line = complaint(lambda: carry_out(plan.runs, out, engine, Notes()), RunFailure)
    assert "No space left on device" in line
    assert not [path for path in out.rglob("*") if path.name.endswith(".tmp")]
    assert not is_finished(out / RUNS / plan.runs[0].id)
    with InProcess() as engine:
        assert carry_out(plan.runs, out, engine, Notes()).done == 1
    plain = undisturbed(plan, tmp_path / "plain")
    folder = Path(RUNS) / plan.runs[0].id
    assert lasting(out / folder) == lasting(plain / folder)


def test_a_folder_for_notes_that_cannot_be_made_is_one_line(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / FAILURES).write_text("")
    engine = Scripted({plan.runs[0].id: ["failed"]})
    line = complaint(lambda: carry_out(plan.runs, tmp_path, engine, Notes()), RunFailure)
    assert FAILURES in line


def test_a_relative_folder_reaches_workers_as_an_absolute_one(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders: list[str] = []

    class Noting(Scripted):
        def submit(self, job: Job) -> None:
            folders.append(job.folder)
            super().submit(job)

    carry_out(plan.runs[:1], Path("out"), Noting(), Notes())
    assert folders == [job_of(plan.runs[0], tmp_path / "out").folder]


# The progress


def lines_after(
    seconds: Sequence[float], *, total: int, slots: int, running: int = 0, **more: Any
) -> list[str]:
    """What is printed when runs have taken these times."""
    page = io.StringIO()
    overview = Overview(Console(file=page, width=200))
    overview.begins(total, 0, slots)
    for number in range(running):
        overview.started(f"other-{number}")
    for number, spent in enumerate(seconds):
        overview.started(f"run-{number}")
        outcome = Outcome(id=f"run-{number}", state="done", faa=50.0, seconds=spent, **more)
        overview.ended(outcome, again=False)
    return page.getvalue().splitlines()


def test_the_time_left_counts_on_all_that_run_at_once_and_warnings_come_first() -> None:
    assert "about 15 s left" in lines_after([6.0, 6.0], total=7, slots=2)[-1]
    assert "about 30 s left" in lines_after([8.0, 4.0], total=7, slots=1)[-1]
    assert "about 10 s left" in lines_after([1.0, 1.0], total=12, slots=1)[-1]
    assert "about 2 s left" in lines_after([1.0, 1.0], total=12, slots=1, running=5)[-1]
    *_, warning, end = lines_after([1.0], total=1, slots=1, warnings=("half a file",))
    assert warning == "run-0: warning: half a file"
    assert end.startswith("run-0: FAA 50.0")
