"""Several processes that learn as one: real ones, joined by torch.distributed over gloo."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from own_parts import FOLDER
from run_tools import ENVIRONMENT, result_of

from driftwise.cli.main import command

WORK = Path(__file__).parent / "distributed_work.py"
HANGS = 400
"""seconds after which processes are given up, on a machine that does many other things"""
SETTINGS = (
    *("--method", "der++", "--adaptation", "own_parts:Counting", "--detector", "combined"),
    *("--encoder", "random", "--epochs", "1", "--num-tasks", "2", "--num-drifts", "1"),
    *("--threads", "1", "--quiet"),
)


def group_of(size: int, *words: str) -> list[subprocess.Popen[str]]:
    """So many processes with the environment that torchrun gives them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    return [
        subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, **ENVIRONMENT, **place, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def outputs_of(processes: list[subprocess.Popen[str]]) -> list[tuple[str, str]]:
    """What each has written, once all have ended; none is left behind."""
    try:
        return [process.communicate(timeout=HANGS) for process in processes]
    finally:
        for process in processes:
            process.kill()


def test_several_processes_have_the_buffer_the_draws_and_the_weights_of_one(tmp_path: Path) -> None:
    work = group_of(4, str(WORK), str(tmp_path))
    done = outputs_of(work)
    assert [process.returncode for process in work] == [0] * 4, done
    assert [out.strip() for out, _ in done] == [
        "rank 0 compared [4, 2]",
        "rank 1 compared [4, 2]",
        "rank 2 compared [4]",
        "rank 3 compared [4]",
    ]


def test_a_run_of_two_processes_survives_the_death_of_one_and_goes_on_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert command(["run", *SETTINGS, "--out", str(tmp_path / "one")]) == 0
    (tmp_path / "gate").touch()
    out = str(tmp_path / "two")
    first, second = group_of(2, "-m", "driftwise", "run", *SETTINGS, "--out", out)
    while not (tmp_path / "at-gate").exists():
        assert (first.poll(), second.poll()) == (None, None), second.communicate()
        time.sleep(0.05)
    os.kill(second.pid, signal.SIGKILL)
    (tmp_path / "gate").unlink()
    _, complaint = first.communicate(timeout=30)  # it does not wait for the dead
    second.communicate()
    assert first.returncode == 1
    assert "another process has ended" in complaint
    assert command(["run", *SETTINGS, "--out", out, "--resume"]) == 0
    one, two = result_of(tmp_path / "one"), result_of(tmp_path / "two")
    for key in ("accuracy_matrix", "labels", "drift_events", "gradient_steps"):
        assert one[key] == two[key], key
    for mine, other in zip(one["verdicts"], two["verdicts"], strict=True):
        assert (mine["class"], mine["drifted"]) == (other["class"], other["drifted"])
        assert abs(mine["p_value"] - other["p_value"]) <= 1e-4


def test_torchrun_starts_killed_processes_again_and_the_run_ends_like_one_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    settings = [word.replace("Counting", "Killed") for word in SETTINGS]
    assert command(["run", *settings, "--out", str(tmp_path / "one")]) == 0
    launch = ("torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "2")
    done = subprocess.run(
        [
            *(sys.executable, "-m", *launch, "--monitor-interval", "0.1", "--standalone"),
            *("-m", "driftwise", "run", *settings, "--shard-network"),
            *("--out", str(tmp_path / "two")),
        ],
        env={**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("killed-*")) == ["killed-0", "killed-1"]
    one, two = result_of(tmp_path / "one"), result_of(tmp_path / "two")
    for key in ("accuracy_matrix", "labels", "drift_events", "gradient_steps"):
        assert one[key] == two[key], key


def test_processes_with_other_settings_are_refused_in_all_of_them(tmp_path: Path) -> None:
    code = (
        "import os\nfrom driftwise.cli.main import main\n"
        f"main(['run', '--seed', os.environ['RANK'], '--quiet', '--out', {str(tmp_path / 'run')!r}])\n"
    )
    (tmp_path / "work.py").write_text(code)
    work = group_of(2, str(tmp_path / "work.py"))
    done = [complaint for _, complaint in outputs_of(work)]
    assert [process.returncode for process in work] == [2, 2]
    assert not (tmp_path / "run").exists()
    assert all(
        "same settings in all 2 processes; rank 1 has seed 1, rank 0 0:" in text for text in done
    ), done
