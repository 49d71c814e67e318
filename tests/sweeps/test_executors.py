from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import own_parts
import pytest
from run_tools import complaint, lasting
from sweep_tools import ENVIRONMENT, is_dead, job_of, tiny_plan, undisturbed, until, write_digits

import driftwise
from driftwise.config import build
from driftwise.datasets.validate import sampled_identity_of
from driftwise.runs.store import LOCK, RunFolder, is_busy, is_finished
from driftwise.sweeps.executors import InProcess, Pool, cores
from driftwise.sweeps.job import Job, Outcome, is_damaged, perform
from driftwise.sweeps.plan import RUNS

PATIENCE = 120.0
"""seconds; a busy machine takes long to import torch"""


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that steers parts of one's own, in workers too."""
    folder = tmp_path_factory.mktemp("orders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(own_parts.FOLDER, str(folder))
        yield folder


@pytest.fixture(scope="module")
def told() -> list[tuple[str, int, int]]:
    """What the pool's workers told while they were at work."""
    return []


@pytest.fixture(scope="module")
def pool(orders: Path, told: list[tuple[str, int, int]]) -> Iterator[Pool]:
    """One worker for all tests: importing torch is most of its life."""
    with Pool(1, lambda *progress: told.append(progress)) as pool:
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
    pool: Pool, told: list[tuple[str, int, int]], tmp_path: Path
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
        assert told[-2:] == [(run.id, 1, 2), (run.id, 2, 2)]


def test_what_a_part_prints_passes_for_no_answer(pool: Pool, tmp_path: Path) -> None:
    run = tiny_plan(axes={"adaptation": ["own_parts:Chatty"]}).runs[0]
    assert outcome_of(pool, job_of(run, tmp_path)).state == "done"


def test_what_a_user_must_mend_is_hopeless(pool: Pool, tmp_path: Path) -> None:
    config = tiny_plan(axes={"seed": [0]}).runs[0].config.to_json()
    nowhere = {**config, "benchmark": "npz", "data": str(tmp_path / "nowhere.npz"), "options": {}}
    outcome = outcome_of(pool, Job(id="x", folder=str(tmp_path / "x"), config=nowhere))
    assert outcome.state == "hopeless"
    assert "nowhere.npz" in outcome.error
    assert not (tmp_path / "x").exists()


def test_a_fault_in_a_part_fails_its_run_in_one_line_and_the_worker_goes_on(
    pool: Pool, orders: Path, tmp_path: Path
) -> None:
    run = tiny_plan(axes={"adaptation": ["own_parts:Broken"]}).runs[0]
    (orders / "broken").touch()
    outcome = outcome_of(pool, job_of(run, tmp_path))
    assert outcome.state == "failed"
    where = r"\(.*own_parts.py, line \d+\)"
    assert re.fullmatch(rf"ZeroDivisionError: it broke in two lines {where}", outcome.error)
    (orders / "broken").unlink()
    assert outcome_of(pool, job_of(run, tmp_path)).state == "done"


def test_a_part_that_ends_the_program_fails_its_run_in_one_line_and_the_worker_goes_on(
    pool: Pool, orders: Path, tmp_path: Path
) -> None:
    leaving, chatty = tiny_plan(axes={"adaptation": ["own_parts:Leaving", "own_parts:Chatty"]}).runs
    outcome = outcome_of(pool, job_of(leaving, tmp_path))
    assert outcome.state == "failed"
    assert re.fullmatch(r"SystemExit: that is all \(.*own_parts.py, line \d+\)", outcome.error)
    assert outcome_of(pool, job_of(chatty, tmp_path)).state == "done"


def test_a_killed_worker_fails_its_run_alone_which_goes_on_from_its_checkpoint(
    pool: Pool, orders: Path, tmp_path: Path
) -> None:
    run = tiny_plan(axes={"adaptation": ["own_parts:Counting"]}).runs[0]
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
    assert lasting(folder) == lasting(undisturbed_folder(tmp_path / "plain", run.id))


def undisturbed_folder(out: Path, run_id: str) -> Path:
    plan = tiny_plan(axes={"adaptation": ["own_parts:Counting"]})
    return undisturbed(plan, out) / RUNS / run_id


def test_a_worker_that_dies_between_jobs_costs_no_run(pool: Pool, tmp_path: Path) -> None:
    first, second = tiny_plan(axes={"seed": [0, 1]}).runs
    assert outcome_of(pool, job_of(first, tmp_path)).state == "done"
    pid = worker_of(tmp_path / RUNS / first.id)
    os.kill(pid, signal.SIGKILL)
    until(partial(is_dead, pid))
    assert outcome_of(pool, job_of(second, tmp_path)).state == "done"


PARENT = """
import json, sys
from driftwise.sweeps.executors import Pool
from driftwise.sweeps.job import Job

with Pool(1) as pool:
    pool.submit(Job(**json.loads(sys.argv[1])))
    print(pool.wait(600), flush=True)
"""


def test_workers_of_a_parent_that_is_killed_end_and_let_their_runs_go(
    orders: Path, tmp_path: Path
) -> None:
    run = tiny_plan(axes={"adaptation": ["own_parts:Counting"], "seed": [5]}).runs[0]
    folder = tmp_path / RUNS / run.id
    (orders / "gate").touch()
    (orders / "at-gate").unlink(missing_ok=True)
    words = [
        sys.executable,
        "-c",
        textwrap.dedent(PARENT),
        json.dumps(job_of(run, tmp_path).to_json()),
    ]
    with subprocess.Popen(words, env={**ENVIRONMENT, own_parts.FOLDER: str(orders)}) as parent:
        until((orders / "at-gate").exists)
        worker = worker_of(folder)
        assert not is_dead(worker)
        assert is_busy(folder)
        parent.kill()
    until(partial(is_dead, worker), seconds=10)
    assert not is_busy(folder)
    assert not is_finished(folder)
    (orders / "gate").unlink()


def test_closing_ends_workers_in_the_middle_of_a_run(orders: Path, tmp_path: Path) -> None:
    run = tiny_plan(axes={"adaptation": ["own_parts:Counting"], "seed": [6]}).runs[0]
    folder = tmp_path / RUNS / run.id
    (orders / "gate").touch()
    (orders / "at-gate").unlink(missing_ok=True)
    with Pool(1) as pool:
        pool.submit(job_of(run, tmp_path))
        until((orders / "at-gate").exists)
        worker = worker_of(folder)
    assert is_dead(worker)
    assert not is_busy(folder)
    (orders / "gate").unlink()


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


def test_data_that_have_moved_are_the_same_data(tmp_path: Path) -> None:
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


def test_a_run_that_cannot_be_gone_on_with_says_what_to_remove(tmp_path: Path) -> None:
    first, second = (tiny_plan(axes={"seed": [seed]}).runs[0] for seed in (0, 1))
    job = job_of(first, tmp_path)
    assert perform(job).state == "done"
    other = perform(replace(job, config=second.config.to_json()))
    assert other.state == "hopeless"
    assert f"remove {job.folder} to start it anew" in other.error
    assert "overwrite" not in other.error
    (Path(job.folder) / "result.json").unlink()
    for checkpoint in Path(job.folder).glob("checkpoint*"):
        checkpoint.write_bytes(b"half")
    half = perform(job)
    assert half.state == "hopeless"
    assert f"remove {job.folder} to start it anew" in half.error


def test_a_run_that_fell_back_to_an_earlier_checkpoint_says_so(tmp_path: Path) -> None:
    job = job_of(tiny_plan(axes={"seed": [0]}).runs[0], tmp_path)
    first = perform(job)
    assert (first.state, first.warnings) == ("done", ())
    (Path(job.folder) / "result.json").unlink()
    (Path(job.folder) / "checkpoint.safetensors").write_bytes(b"half")
    again = perform(job)
    assert (again.state, again.faa) == ("done", first.faa)
    assert any("checkpoint.safetensors" in warning for warning in again.warnings)


def test_a_pool_has_workers_and_a_machine_cores() -> None:
    assert "at least one worker; got 0" in complaint(lambda: Pool(0))
    assert 1 <= cores() <= (os.cpu_count() or 1)


def test_jobs_and_outcomes_are_plain_data() -> None:
    job = Job(id="a", folder="/b", config={"seed": 1})
    assert Job(**job.to_json()) == job
    outcome = Outcome(id="a", state="failed", error="no", faa=None, seconds=1.5)
    assert Outcome(**outcome.to_json()) == outcome
