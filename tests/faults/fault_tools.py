"""Real processes that run, meet trouble and are resumed; and what must have survived."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import own_trouble
from run_tools import ENVIRONMENT, events_of, lasting
from safetensors.torch import load_file
from same_state import same
from troubles import Trouble

from driftwise.runs import store

METHODS = ("er", "er-ace", "der++", "ser", "cls-er")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """A run of digits that takes about a second once torch has been loaded."""

    method: str = "er"
    epochs: int = 4
    tasks: str = "[[0,1],[2,3],[]]"
    detector: str = "ks"
    steps: int = 3
    """between checkpoints"""
    backbone: str = "mlp"
    adaptation: str = "amr"
    flags: str = ""
    """more of them"""
    by_folder: bool = False
    """whether a run that is there is resumed by the name of its folder alone"""

    def words(self, folder: Path) -> list[str]:
        """What comes after `driftwise` on the command line."""
        text = (
            f"run --method {self.method} --epochs {self.epochs} --tasks {self.tasks} "
            f"--detector {self.detector} --adaptation {self.adaptation} "
            f"--checkpoint-steps {self.steps} --backbone {self.backbone} {self.flags} "
            "--threads 1 --keep-features --quiet --resume --out"
        )
        if self.by_folder and store.is_run(folder):
            text = "run --resume --out"
        return [*text.split(), str(folder)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveWork:
    """A live learner in a folder that takes a second or two for its stream; see `live_work`."""

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """of the live learner"""
    network: str = "mlp"
    """`own`: a given module"""
    seed: int = 0
    """of the stream"""
    samples: int = 500
    known: float = 1.0
    """fraction of the samples that come with their label"""
    late: int = 3
    """batches after which the labels of the others come by `answer`"""
    asks: bool = False
    """whether a label callback is there"""
    as_floats: bool = False
    """samples in 0..1, a few of them outliers, instead of bytes"""
    history: bool = False
    """whether `fit_reference` comes before the first batch"""
    log_bytes: int = 8 * 2**20
    """from which on a new log is begun"""
    saves: int = 5
    """batches between saves; 0: only the end is saved"""

    def words(self, folder: Path) -> list[str]:
        """A request to the server of processes."""
        return ["live", json.dumps(dataclasses.asdict(self)), str(folder)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class End:
    """How a process ended."""

    code: int
    """below 0: the signal that killed it"""
    stderr: str
    seconds: float


class Process:
    """A command at work in a process of its own."""

    def __init__(self, words: list[str], trouble: Trouble | None = None) -> None:
        Path(words[-1]).parent.mkdir(parents=True, exist_ok=True)
        self._stderr = Path(scratch().name) / "stderr"
        self._server = _server()
        plain = None if trouble is None else dataclasses.asdict(trouble)
        request = {"words": words, "stderr": str(self._stderr), "trouble": plain}
        self._start = time.monotonic()
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request).encode() + b"\n")
        self.pid = int(self._answer())

    def ends_within(self, seconds: float) -> bool:
        """Wait so long at most."""
        assert self._server.stdout is not None
        return bool(select.select([self._server.stdout], [], [], seconds)[0])

    def end(self, timeout: float = 300.0) -> End:
        """Wait for it."""
        if not self.ends_within(timeout):
            os.kill(self.pid, signal.SIGKILL)
        code, seconds = int(self._answer()), time.monotonic() - self._start
        return End(code=code, stderr=self._stderr.read_text(), seconds=seconds)

    def _answer(self) -> bytes:
        assert self._server.stdout is not None
        return self._server.stdout.readline()


@functools.cache
def scratch() -> tempfile.TemporaryDirectory[str]:
    """Away from the folders that get into trouble."""
    return tempfile.TemporaryDirectory()


@functools.cache
def _server() -> subprocess.Popen[bytes]:
    file = Path(__file__).with_name("fault_server.py")
    server = subprocess.Popen(
        [sys.executable, file],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1", own_trouble.FOLDER: scratch().name},
    )
    atexit.register(server.communicate)  # closes its input, which ends it
    return server


def attempt(
    words: list[str], *, kill_after: float | None = None, trouble: Trouble | None = None
) -> End:
    """Run a command to its end, or until it is killed with SIGKILL after some seconds."""
    process = Process(words, trouble)
    if kill_after is not None and not process.ends_within(kill_after):
        os.kill(process.pid, signal.SIGKILL)
    return process.end()


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for something to be so; busy machines need patience."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def differences(folder: Path, whole: Path) -> list[str]:
    """In which files a finished run differs from an undisturbed one; what it left lying around."""
    if "keeper" in store.read_config(whole):
        return _live_differences(folder, whole)
    found = []
    if lasting(folder) != lasting(whole):
        found.append(store.RESULT)
    for name in (store.CONFIG, store.EVENTS, store.RECORDS, *store.ARRAYS.values()):
        if _content(folder / name) != _content(whole / name):
            found.append(name)
    return found + _state_differences(folder, whole)


def _live_differences(folder: Path, whole: Path) -> list[str]:
    """The same for live learners: an event that is reported again has another time."""
    found = (
        [store.CONFIG] if _content(folder / store.CONFIG) != _content(whole / store.CONFIG) else []
    )
    for name in (store.EVENTS, store.OLDER_EVENTS):
        sides = [
            [{**event, "time": None} for event in events_of(side, name)] for side in (folder, whole)
        ]
        if sides[0] != sides[1]:
            found.append(name)
    return found + _state_differences(folder, whole)


def _state_differences(folder: Path, whole: Path) -> list[str]:
    states = [store.read_checkpoint(side) for side in (folder, whole)]
    for state in states:
        state["parts"]["ledger"].pop("seconds")
    found = [] if same(*states) else [store.CHECKPOINT]
    return found + [file.name for file in folder.glob(".*.tmp")]


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def broken(folder: Path) -> list[str]:
    """Files of an unfinished run that are there and are not whole; temporaries do not count."""
    found = []
    for name in (store.CONFIG, store.RESULT):
        if (folder / name).exists():
            try:
                json.loads((folder / name).read_bytes())
            except ValueError:
                found.append(name)
    for name in store.ARRAYS.values():
        if (folder / name).exists():
            try:
                load_file(folder / name)
            except Exception:
                found.append(name)
    troubles: list[str] = []
    try:
        store.read_checkpoint(folder, troubles.append)
    except ValueError as error:
        troubles.append(str(error))
    return found + troubles


def whereabouts(folder: Path) -> str:
    """How far a run has come, by its files."""
    if store.is_run(folder) and "keeper" in store.read_config(folder):
        state = store.read_checkpoint(folder)
        return "nothing saved" if state is None else "something saved"
    events = events_of(folder)
    if store.is_finished(folder):
        return "finished"
    if not events:
        return "start"
    phase = {"task": "detect", "verdict": "repair", "repair": "train", "scores": "task end"}
    place = f"task {events[-1]['task']} {phase[events[-1]['event']]}"
    with contextlib.suppress(ValueError, TypeError):
        task_state = store.read_checkpoint(folder)["midway"]
        if task_state is not None and task_state["task"] == events[-1]["task"]:
            return f"{place}, epoch {task_state['epoch']}"
    return place
