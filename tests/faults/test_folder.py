"""What happens to a run's folder from outside, and a user in a hurry."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_tools import Process, Work, attempt, broken, differences
from run_tools import events_of

LONG = Work(epochs=400, steps=10)
SHORT = Work(epochs=8, steps=10)


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def has_checkpoint(folder: Path) -> Callable[[], bool]:
    return lambda: (folder / "checkpoint.safetensors").exists()


def test_a_folder_removed_under_a_run_ends_it_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = Process(LONG.words(folder))
    until(has_checkpoint(folder))
    folder.rename(tmp_path / "gone")
    end = process.end()
    assert (end.code, end.told.count("\n")) == (1, 1)
    assert end.told.startswith(f"recollect: failed: cannot write {folder}")
    assert not folder.exists()
    # Put back, it is as good as ever.
    (tmp_path / "gone").rename(folder)
    assert broken(folder) == []


def test_a_folder_made_read_only_under_a_run_ends_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o555)
    if os.access(tmp_path / "closed", os.W_OK):
        pytest.skip("this user may write to a read-only folder")
    folder = tmp_path / "run"
    process = Process(LONG.words(folder))
    until(has_checkpoint(folder))
    folder.chmod(0o555)
    end = process.end()
    folder.chmod(0o755)
    assert (end.code, end.told.count("\n")) == (1, 1)
    assert end.told.startswith(f"recollect: failed: cannot write {folder}")
    assert broken(folder) == []


def test_a_second_interrupt_ends_a_run_at_once_and_it_can_be_gone_on_with(tmp_path: Path) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    process = Process(dataclasses.replace(SHORT, steps=1000).words(folder))
    until(lambda: len(events_of(folder)) >= 2)  # in the middle of the first task
    for _ in range(2):
        os.kill(process.pid, signal.SIGINT)
    end = process.end()
    assert end.code == 130
    assert end.told.count("\n") == 1
    assert broken(folder) == []
    assert attempt(SHORT.words(folder)).code == 0
    assert attempt(SHORT.words(whole)).code == 0
    assert differences(folder, whole) == []
