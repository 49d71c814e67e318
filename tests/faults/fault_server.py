"""Makes processes that run a command: real ones, forked, so that torch is loaded once for all.

A request is a line of JSON on the standard input. The answers are a line with the process's id as
soon as it is there, and one with its exit code (below 0: the signal) once it has ended.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import live_work
import torch
from troubles import Trouble

from driftwise.cli import main as cli


def warm_up() -> None:
    """A tiny run, after which nothing is left to be loaded."""
    torch.set_num_threads(1)
    words = "run --epochs 1 --max-per-class 20 --tasks [[0,1],[]] --detector ks --quiet --out"
    with tempfile.TemporaryDirectory() as folder:
        code = cli.command([*words.split(), str(Path(folder) / "run")])
    assert code == 0, "the tiny run has failed"


def become(words: list[str], stderr: str, trouble: dict[str, Any] | None) -> None:
    """Be the process that runs a command; it does not return."""
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for old, new in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(old, new)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if trouble is not None:
        Trouble(**trouble).install()
    code = live_work.main(words[1:]) if words[0] == "live" else cli.command(words)
    os._exit(code)  # without tearing down what was loaded for all


def serve() -> None:
    """Answer requests until the input ends."""
    gc.freeze()  # shared with the processes to come, until it is changed
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            become(**json.loads(line))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    warm_up()
    serve()
