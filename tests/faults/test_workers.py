"""Workers of a sweep that are short of memory, killed or asked to go: their run alone is struck."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import own_trouble
import pytest
from fault_tools import broken, until
from run_tools import lasting, result_of

from driftwise import RunConfig, run
from driftwise.config.presets import resolve
from driftwise.runs.store import LOCK, is_busy, read_checkpoint
from driftwise.sweeps import worker
from driftwise.sweeps.executors import Pool
from driftwise.sweeps.job import Job, Outcome

OWN = resolve(
    RunConfig(
        epochs=5,
        tasks=((0, 1), (2, 3)),
        backbone="own_trouble:Obedient",
        adaptation="vanilla",
        threads=1,
    )
)
OTHER = resolve(RunConfig(epochs=1, tasks=((0, 1), (2, 3)), adaptation="vanilla", threads=1))


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that orders what the network does."""
    (tmp_path / "orders").mkdir()
    monkeypatch.setenv(own_trouble.FOLDER, str(tmp_path / "orders"))
    return tmp_path / "orders" / "orders"


def job_of(name: str, config: RunConfig, top: Path) -> Job:
    return Job(id=name, folder=str(top / name), config=config.to_json())


def outcomes(pool: Pool, count: int) -> dict[str, Outcome]:
    came = [pool.wait(120.0) for _ in range(count)]
    return {each.id: each for each in came if each is not None}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run without trouble."""
    top = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(own_trouble.FOLDER, str(top))
        run(OWN, top / "run")
    return top / "run"


def in_task_2(whole: Path) -> int:
    """Steps, of which the first task has fewer."""
    steps: int = result_of(whole)["gradient_steps"]
    return steps * 3 // 4


def test_a_worker_out_of_memory_or_killed_fails_its_run_in_one_line_and_others_go_on(
    orders: Path, whole: Path, tmp_path: Path
) -> None:
    own, folder = job_of("own", OWN, tmp_path), tmp_path / "own"
    with Pool(2) as pool:
        orders.write_text(f"hunger {in_task_2(whole)}")
        pool.submit(own)
        pool.submit(job_of("other", OTHER, tmp_path))
        came = outcomes(pool, 2)
        assert came["other"].state == "done"
        assert came["own"].state == "failed"
        assert came["own"].error.startswith("out of memory (")
        assert "can't allocate memory" in came["own"].error
        assert "\n" not in came["own"].error
        assert broken(folder) == []
        assert read_checkpoint(folder)["tasks_done"] == 1

        orders.write_text("wait 3")  # steps since it was resumed
        pool.submit(own)  # to the very worker that had too little
        until((orders.parent / "wait").exists)
        # As the kernel does when memory has run out.
        os.kill(int((folder / LOCK).read_text()), signal.SIGKILL)
        orders.unlink()
        pool.submit(job_of("another", OTHER, tmp_path))
        came = outcomes(pool, 2)
        assert came["another"].state == "done"
        assert came["own"].error == "its process was killed (signal 9); is there enough memory?"
        assert broken(folder) == []
        assert not is_busy(folder)
        pool.submit(own)
        assert outcomes(pool, 1)["own"].state == "done"
    assert lasting(folder) == lasting(whole)


def test_closing_a_pool_lets_its_workers_save_the_step_they_are_at(
    orders: Path, whole: Path, tmp_path: Path
) -> None:
    orders.write_text(f"dawdle {in_task_2(whole)}")
    with Pool(1) as pool:
        pool.submit(job_of("own", OWN, tmp_path))
        until((orders.parent / "dawdle").exists)
        closing = time.monotonic()
    assert time.monotonic() - closing < worker.LAST_SECONDS, "it need not be forced"
    assert not is_busy(tmp_path / "own")
    saved = read_checkpoint(tmp_path / "own")
    assert saved["midway"]["task"] == 2
    assert saved["parts"]["learner"]["steps"] > in_task_2(whole) - 10
    orders.unlink()
    run(OWN, tmp_path / "own", resume=True)
    assert lasting(tmp_path / "own") == lasting(whole)
