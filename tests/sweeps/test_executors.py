"""Pools of workers and single jobs: equal results, faults, kills, damage."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import own_parts
import pytest
from run_tools import complaint, lasting
from sweep_tools import is_dead, job_of, tiny_plan, undisturbed, until, write_digits

import driftwise
from driftwise.config import build
from driftwise.config.speed import num_processors
from driftwise.datasets.validate import sampled_identity_of
from driftwise.runs.store import LOCK, RunFolder, is_busy
from driftwise.sweeps.executors import InProcess, Pool
from driftwise.sweeps.job import Job, Outcome, is_damaged, perform
from driftwise.sweeps.plan import RUNS

PATIENCE = 120.0
"""seconds; a busy machine takes long to import torch"""


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that controls the custom parts, in workers too."""
    folder = tmp_path_factory.mktemp("orders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(own_parts.FOLDER, str(folder))
        yield folder


@pytest.fixture(scope="module")
def reported() -> list[tuple[str, int, int]]:
    """The progress that the pool's workers have reported."""
    return []


@pytest.fixture(scope="module")
def pool(orders: Path, reported: list[tuple[str, int, int]]) -> Iterator[Pool]:
    """One worker for all tests: importing torch is most of its life."""
    with Pool(1, lambda *progress: reported.append(progress)) as pool:
        yield pool


def outcome_of(pool: Pool, job: Job) -> Outcome:
    pool.submit(job)
    outcome = pool.wait(PATIENCE)
    assert outcome is not None
    assert outcome.id == job.id
    return outcome


def worker_of(folder: Path) -> int:
    """The process that holds a run."""
    return int((folder / LOCK).read_text())


def test_workers_bring_what_plain_runs_bring(
    pool: Pool, reported: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    plan = tiny_plan(axes={"method": ["er", "der++"], "adaptation": ["amr"]})
    plain = undisturbed(plan, tmp_path / "plain")
    for run in plan.runs:
        outcome = outcome_of(pool, job_of(run, tmp_path))
        assert outcome.state == "done"
        assert outcome.seconds > 0
        folder = Path(RUNS) / run.id
        assert lasting(tmp_path / folder) == lasting(plain / folder)
        assert outcome.faa == driftwise.run(run.config, tmp_path / folder, resume=True)["faa"]
        assert reported[-2:] == [(run.id, 1, 2), (run.id, 2, 2)]


def test_what_a_user_must_fix_is_hopeless(pool: Pool, tmp_path: Path) -> None:
    config = tiny_plan(axes={"seed": [0]}).runs[0].config.to_json()
    nowhere = {**config, "benchmark": "npz", "data": str(tmp_path / "nowhere.npz"), "options": {}}
    outcome = outcome_of(pool, Job(id="x", folder=str(tmp_path / "x"), config=nowhere))
    assert outcome.state == "hopeless"
    assert "nowhere.npz" in outcome.error
    assert not (tmp_path / "x").exists()


def test_a_fault_in_a_part_fails_its_run_in_one_line_and_the_worker_continues(
    pool: Pool, orders: Path, tmp_path: Path
) -> None:
    """What a part prints is no answer, and one that ends the program fails its run alone."""
    names = [f"own_parts:{name}" for name in ("Broken", "Leaving", "Chatty")]
    broken, leaving, chatty = tiny_plan(axes={"adaptation": names}).runs
    (orders / "broken").touch()
    where = r"\(.*own_parts.py, line \d+\)"
    for run, error in (
        (broken, "ZeroDivisionError: it broke in two lines"),
        (leaving, "SystemExit: that is all"),
    ):
        outcome = outcome_of(pool, job_of(run, tmp_path))
        assert outcome.state == "failed"
        assert re.fullmatch(f"{error} {where}", outcome.error)
    (orders / "broken").unlink()
    for run in (broken, chatty):
        assert outcome_of(pool, job_of(run, tmp_path)).state == "done"


def test_a_killed_worker_fails_its_run_alone_which_goes_on_from_its_checkpoint(
    pool: Pool, orders: Path, tmp_path: Path
) -> None:
    plan = tiny_plan(axes={"adaptation": ["own_parts:Counting"]})
    (run,) = plan.runs
    job, folder = job_of(run, tmp_path), tmp_path / RUNS / run.id
    (orders / "gate").touch()
    pool.submit(job)
    until((orders / "at-gate").exists)
    assert pool.wait(0.0) is None
    os.kill(worker_of(folder), signal.SIGKILL)
    outcome = pool.wait(PATIENCE)
    assert outcome is not None
    assert (outcome.id, outcome.state) == (run.id, "failed")
    assert "killed (signal 9)" in outcome.error
    assert not is_busy(folder)
    (orders / "gate").unlink()
    assert outcome_of(pool, job).state == "done"
    # The first task was learned once, the second begun twice.
    assert own_parts.tasks_begun() == [0, 2, 2]
    assert lasting(folder) == lasting(undisturbed(plan, tmp_path / "plain") / RUNS / run.id)


def test_a_worker_that_dies_between_jobs_costs_no_run(pool: Pool, tmp_path: Path) -> None:
    first, second = tiny_plan(axes={"seed": [0, 1]}).runs
    assert outcome_of(pool, job_of(first, tmp_path)).state == "done"
    pid = worker_of(tmp_path / RUNS / first.id)
    os.kill(pid, signal.SIGKILL)
    until(partial(is_dead, pid))
    assert outcome_of(pool, job_of(second, tmp_path)).state == "done"


# Without workers


def test_a_run_that_another_process_has_is_busy(tmp_path: Path) -> None:
    run = tiny_plan(axes={"seed": [0]}).runs[0]
    job = job_of(run, tmp_path)
    with RunFolder.open(job.folder, run.config.to_json()):
        outcome = perform(job)
    assert outcome.state == "busy"
    assert f"pid {os.getpid()}" in outcome.error


def test_a_result_that_cannot_be_read_is_made_again_from_the_checkpoint(tmp_path: Path) -> None:
    run = tiny_plan(axes={"seed": [0]}).runs[0]
    job, folder = job_of(run, tmp_path), tmp_path / RUNS / run.id
    with InProcess() as engine:
        engine.submit(job)
        made, found = engine.wait(0.0), perform(job)
        assert made is not None
        assert replace(made, seconds=0.0) == replace(found, seconds=0.0)
        assert engine.wait(0.01) is None
    whole = lasting(folder)
    for half in ('{"faa": 3', "{}", "[]", ""):
        (folder / "result.json").write_text(half)
        assert is_damaged(folder)
        assert perform(job).state == "done"
        assert lasting(folder) == whole
    assert not is_damaged(folder)
    assert not is_damaged(tmp_path)


def test_data_in_another_place_are_the_same_data(tmp_path: Path) -> None:
    here, there = (write_digits(tmp_path / name) for name in ("here.npz", "there.npz"))
    grid = {"data": [str(here)]}
    job = job_of(tiny_plan(axes=grid, benchmark="npz", backbone="mlp").runs[0], tmp_path)
    assert perform(job).state == "done"
    (Path(job.folder) / "result.json").unlink()
    here.unlink()
    assert perform(job).state == "hopeless"
    assert perform(replace(job, config={**job.config, "data": str(there)})).state == "done"


def test_a_run_that_an_earlier_version_began_goes_on_and_says_how_its_data_were_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tiny_plan(axes={"seed": [0]}).runs[0], tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(build, "identity_of", lambda dataset, _: sampled_identity_of(dataset))
        assert perform(job).state == "done"
    (Path(job.folder) / "result.json").unlink()
    outcome = perform(job)
    assert outcome.state == "done"
    assert "at most 1,000 images" in outcome.warnings[0]
    assert perform(replace(job, folder=f"{job.folder}-new")).warnings == ()


def test_a_run_falls_back_to_an_earlier_checkpoint_or_names_what_to_remove(
    tmp_path: Path,
) -> None:
    first, second = (tiny_plan(axes={"seed": [seed]}).runs[0] for seed in (0, 1))
    job = job_of(first, tmp_path)
    made = perform(job)
    assert (made.state, made.warnings) == ("done", ())
    other = perform(replace(job, config=second.config.to_json()))
    assert other.state == "hopeless"
    assert f"remove {job.folder} to start it anew" in other.error
    assert "overwrite" not in other.error
    (Path(job.folder) / "result.json").unlink()
    (Path(job.folder) / "checkpoint.safetensors").write_bytes(b"half")
    again = perform(job)
    assert (again.state, again.faa) == ("done", made.faa)
    assert any("checkpoint.safetensors" in warning for warning in again.warnings)
    (Path(job.folder) / "result.json").unlink()
    for checkpoint in Path(job.folder).glob("checkpoint*"):
        checkpoint.write_bytes(b"half")
    half = perform(job)
    assert half.state == "hopeless"
    assert f"remove {job.folder} to start it anew" in half.error


def test_a_pool_has_workers_and_jobs_and_outcomes_are_plain_data() -> None:
    assert "at least one worker; got 0" in complaint(lambda: Pool(0))
    assert 1 <= num_processors() <= (os.cpu_count() or 1)
    job = Job(id="a", folder="/b", config={"seed": 1})
    assert Job(**job.to_json()) == job
    outcome = Outcome(id="a", state="failed", error="no", faa=None, seconds=1.5)
    assert Outcome(**outcome.to_json()) == outcome
