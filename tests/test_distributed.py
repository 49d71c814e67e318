from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from run_tools import ENVIRONMENT

WORK = Path(__file__).parent / "distributed_work.py"


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_several_processes_have_the_buffer_the_draws_and_the_weights_of_one() -> None:
    """Real processes of torch.distributed; `distributed_work.py` says what each compares."""
    network = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "4"}
    work = [
        subprocess.Popen(
            [sys.executable, str(WORK)],
            env={**ENVIRONMENT, **network, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    done = [process.communicate(timeout=120) for process in work]
    assert [process.returncode for process in work] == [0] * 4, done
    assert [out.strip() for out, _ in done] == [
        "rank 0 compared [4, 2]",
        "rank 1 compared [4, 2]",
        "rank 2 compared [4]",
        "rank 3 compared [4]",
    ]
