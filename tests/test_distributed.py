"""Several processes that learn as one: real ones, joined by torch.distributed over gloo."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from own_parts import FOLDER
from run_tools import ENVIRONMENT, result_of

from driftwise.cli.main import command
from driftwise.distributed import _take_accelerator
from driftwise.errors import UserError
from driftwise.runs.store import read_checkpoint

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


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed on Linux only")
def test_a_group_leaves_no_thread_behind_that_could_abort_the_end_of_python() -> None:
    """Also where the first optimiser is made within it: that imports what keeps groups alive."""
    code = (
        "import atexit, os\n"
        "def show():\n"
        "    tasks = [f'/proc/self/task/{each}/comm' for each in os.listdir('/proc/self/task')]\n"
        "    print([name for name in (open(task).read() for task in tasks) if 'gloo' in name])\n"
        "atexit.register(show)\n"  # before the import, so that it is called last
        "import driftwise as dw, torch\n"
        "with dw.distributed.joined() as group:\n"
        "    assert group.size == 2\n"
        "    torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)\n"
    )
    for out, errors in outputs_of(group_of(2, "-c", code)):
        assert out == "[]\n", errors


def test_a_ddp_wrapper_that_outlives_the_group_hangs_neither_its_own_end_nor_that_of_python() -> (
    None
):
    """It waits for gloo's threads with Python's lock held, which these need for what they have sent.

    Where the wrapper frees the group, about every second run of this test hangs on a busy machine.
    """
    code = (
        "import faulthandler, gc, os, sys, torch\n"
        "from torch.nn.parallel import DistributedDataParallel\n"
        "from driftwise.distributed import joined\n"
        "for port in sys.argv[1:]:\n"
        "    os.environ['MASTER_PORT'] = port\n"
        "    faulthandler.dump_traceback_later(100, exit=True)\n"
        "    with joined():\n"
        "        wrapped = DistributedDataParallel(torch.nn.Linear(1000, 100))\n"
        "        for _ in range(3):\n"
        "            wrapped(torch.randn(4, 1000)).sum().backward()\n"
        "    del wrapped\n"
        "    gc.collect()\n"
    )
    with contextlib.ExitStack() as probes:
        taken = [probes.enter_context(socket.socket()) for _ in range(8)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        ports = [str(each.getsockname()[1]) for each in taken]
    work = group_of(2, "-c", code, *ports)
    done = outputs_of(work)
    assert [process.returncode for process in work] == [0, 0], done


def test_on_a_device_messages_buffers_and_steps_lie_there_and_have_the_same_numbers(
    tmp_path: Path,
) -> None:
    """With real messages, on a device that only pretends to be one; the way is that of NCCL."""
    work = group_of(2, str(WORK.with_name("device_work.py")), str(tmp_path))
    done = outputs_of(work)
    assert [process.returncode for process in work] == [0] * 2, done
    assert [out.strip() for out, _ in done] == [f"rank {rank} of 2 on fake:0" for rank in (0, 1)]


def test_each_process_takes_the_gpu_of_its_number_and_one_too_many_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    for name, value in {
        "is_available": lambda: True,
        "current_accelerator": lambda: torch.device("cuda"),
        "device_count": lambda: 2,
        "set_device_index": taken.append,
    }.items():
        monkeypatch.setattr(torch.accelerator, name, value)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert (_take_accelerator(), taken) == ("nccl", [1])
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(
        UserError, match="process 2 of this machine has no cuda device: there are 2"
    ):
        _take_accelerator()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder))
        assert command(["run", *SETTINGS, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("processes", "ended", "by", "code", "layout", "later"),
    [
        (3, 0, signal.SIGKILL, 1, "replicated", 2),
        (2, 1, signal.SIGKILL, 1, "sharded", 1),
        (2, 1, signal.SIGTERM, 143, "sharded", 3),  # all save within the task, and end
    ],
)
def test_a_process_that_ends_ends_all_and_the_run_goes_on_in_another_number_of_them(
    processes: int,
    ended: int,
    by: signal.Signals,
    code: int,
    layout: str,
    later: int,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    (tmp_path / "gate").touch()
    out = tmp_path / "run"
    run = ("-m", "driftwise", "run", *SETTINGS, "--buffer-layout", layout, "--out", str(out))
    work = group_of(processes, *run)
    while not (tmp_path / "at-gate").exists():
        assert [process.poll() for process in work] == [None] * processes, work[0].communicate()
        time.sleep(0.05)
    work[ended].send_signal(by)
    (tmp_path / "gate").unlink()
    done = [process.communicate(timeout=120) for process in work]  # they do not wait for the dead
    others = [rank for rank in range(processes) if rank != ended or by == signal.SIGTERM]
    assert [work[rank].returncode for rank in others] == [code] * len(others), done
    if by == signal.SIGKILL:
        assert all("another process has ended" in done[rank][1] for rank in others), done
    midway = read_checkpoint(out)["midway"]
    assert (midway is not None) == (by == signal.SIGTERM)
    if later == 1:
        assert command([*run[2:], "--resume"]) == 0
    else:
        work = group_of(later, *run, "--resume")
        done = outputs_of(work)
        assert [process.returncode for process in work] == [0] * later, done
    one, two = result_of(undisturbed), result_of(out)
    for key in ("accuracy_matrix", "labels", "drift_events", "gradient_steps"):
        assert one[key] == two[key], key
    for mine, other in zip(one["verdicts"], two["verdicts"], strict=True):
        assert (mine["class"], mine["drifted"]) == (other["class"], other["drifted"])
        assert abs(mine["p_value"] - other["p_value"]) <= 1e-4


def test_a_process_that_hangs_is_given_up_after_the_time_that_is_stated(tmp_path: Path) -> None:
    """Five minutes; three seconds here."""
    code = (
        "import datetime, os, signal\nfrom driftwise import distributed, errors\n"
        "distributed.PATIENCE = datetime.timedelta(seconds=3)\n"
        "try:\n    with distributed.joined() as group:\n"
        "        group.any(True)\n"
        "        if group.rank:\n            os.kill(os.getpid(), signal.SIGSTOP)\n"
        "        group.any(True)\n"
        "except errors.RunFailure as failure:\n    print(failure, flush=True)\n    os._exit(1)\n"
    )
    (tmp_path / "work.py").write_text(code)
    first, second = group_of(2, str(tmp_path / "work.py"))
    try:
        out, _ = first.communicate(timeout=60)
    finally:
        second.kill()
        second.communicate()
    assert first.returncode == 1
    assert "another process has ended or does not answer" in out


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


@pytest.mark.parametrize(
    ("words", "names", "message"),
    [
        (["run"], {}, "it cannot find the others .*MASTER_ADDR expected"),
        (["run"], {"RANK": "first"}, "it cannot find the others .*'first'"),
        (["compare"], {}, "compare works in one process, and this is one of 2: .*without torchrun"),
    ],
)
def test_what_cannot_work_in_several_processes_is_said_in_one_line(
    words: list[str],
    names: dict[str, str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", **names}.items():
        monkeypatch.setenv(name, value)
    if "RANK" in names:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert command([*words, "--out", str(tmp_path / "run")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert re.search(message, line), line
    assert not (tmp_path / "run").exists()
