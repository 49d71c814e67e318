"""What a process holds while a long stream goes by."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from pathlib import Path
from typing import Any, NamedTuple

from driftwise.config.schema import RunConfig
from driftwise.runs.listeners import Silent
from driftwise.runs.store import CHECKPOINT
from driftwise.types import TaskRecord


class Held(NamedTuple):
    """By one process, at one moment."""

    task: int
    anonymous: int
    """bytes of memory that no file stands behind"""
    files: int
    """descriptors"""
    threads: int
    checkpoint: int
    """bytes in the last checkpoint"""


def held(task: int, folder: Path) -> Held:
    """As the kernel counts it, once the allocator has given back what is free."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # not every C library has it
        ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return Held(
        task=task,
        anonymous=1024 * int(values["RssAnon"].split()[0]),
        files=len(list(Path("/proc/self/fd").iterdir())),
        threads=max(int(values["Threads"]), threading.active_count()),
        checkpoint=(folder / CHECKPOINT).stat().st_size,
    )


class Recorder(Silent):
    """Records what is held after every few tasks."""

    def __init__(self, folder: Path, every: int) -> None:
        self._folder = folder
        self._every = every
        self.seen: list[Held] = []

    def task_ends(self, record: TaskRecord[Any]) -> None:
        if record.task % self._every == 0:
            self.seen.append(held(record.task, self._folder))


def long_config(num_tasks: int, *, detector: str = "ks") -> RunConfig:
    """Digits: five tasks with two new classes each, then none, and a drift now and then."""
    pairs = tuple((2 * number, 2 * number + 1) for number in range(5))
    return RunConfig(
        tasks=pairs + ((),) * (num_tasks - len(pairs)),
        detector=detector,
        epochs=1,
        num_drifts=max(2, num_tasks // 20),
        scope="all-seen",
        max_per_class=60,
        threads=1,
    )


def is_supported() -> bool:
    """Whether the kernel reports it."""
    return Path("/proc/self/status").exists()
