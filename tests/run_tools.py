"""What tests of whole runs share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driftwise.errors import UserError
from driftwise.runs.checkpoint import flatten
from driftwise.runs.listeners import Silent
from driftwise.runs.store import read_checkpoint
from driftwise.types import StepReport

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
MAY_DIFFER = ("seconds", "versions")
"""The keys of a result in which two equal runs may differ."""


def command_line(*words: object) -> list[str]:
    """The command that a shell would run."""
    return [sys.executable, "-m", "driftwise", *map(str, words)]


def strict_json(text: str) -> Any:
    """JSON that holds neither NaN nor infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def result_of(folder: Path) -> dict[str, Any]:
    """All that is in `result.json`."""
    result: dict[str, Any] = strict_json((folder / "result.json").read_text())
    return result


def lasting(folder: Path) -> str:
    """`result.json` as text, without what may differ between equal runs."""
    result = result_of(folder)
    return json.dumps({key: value for key, value in result.items() if key not in MAY_DIFFER})


def lasting_checkpoint(folder: Path) -> dict[str, Any]:
    """Everything in the last checkpoint, bit for bit, but the seconds."""
    state = read_checkpoint(folder)
    del state["parts"]["ledger"]["seconds"]
    tensors, tree = flatten(state)
    return {"tree": tree, **{name: tensor.tolist() for name, tensor in tensors.items()}}


def events_of(folder: Path, name: str = "events.jsonl") -> list[dict[str, Any]]:
    """The lines of a log; a torn last one is left out."""
    text = (folder / name).read_text() if (folder / name).exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes] | None]:
    """Everything below a folder: time of change and content of files, None for folders."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


def complaint(call: Callable[[], object], kind: type[Exception] = UserError) -> str:
    """The one line with which `call` fails."""
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Losses(Silent):
    """Keeps every step's loss, by task."""

    def __init__(self) -> None:
        self.by_task: dict[int, list[float]] = {}
        self._task = 0

    def task_begins(self, task: Any) -> None:
        self._task = task.number
        self.by_task[task.number] = []

    def stepped(self, epoch: int, report: StepReport) -> None:
        self.by_task[self._task].append(report.loss)


class Stop(Exception):
    """Stands for a crash."""


class StopAt(Silent):
    """Crashes at the n-th step of a task; 0: when the task begins."""

    def __init__(self, task: int, step: int) -> None:
        self._left = -1
        self._task = task
        self._step = step

    def task_begins(self, task: Any) -> None:
        if task.number == self._task:
            self._left = self._step
            if not self._left:
                raise Stop

    def stepped(self, epoch: int, report: StepReport) -> None:
        self._left -= 1
        if self._left == 0:
            raise Stop
