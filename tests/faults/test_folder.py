"""Changes to the folder of a run from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_tools import Process, Work, broken, until
from run_tools import ENVIRONMENT, command_line

LONG = Work(epochs=400, steps=10)


def has_checkpoint(folder: Path) -> Callable[[], bool]:
    return lambda: (folder / "checkpoint.safetensors").exists()


def test_a_folder_removed_under_a_run_ends_it_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = Process(LONG.words(folder))
    until(has_checkpoint(folder))
    folder.rename(tmp_path / "gone")
    end = process.end()
    assert (end.code, end.stderr.count("\n")) == (1, 1)
    assert end.stderr.startswith(f"driftwise: failed: cannot write {folder}")
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
    assert (end.code, end.stderr.count("\n")) == (1, 1)
    assert end.stderr.startswith(f"driftwise: failed: cannot write {folder}")
    assert broken(folder) == []


def test_a_file_system_that_is_read_only_is_reported_before_a_run_begins(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"]).returncode:
        pytest.skip("no file system may be mounted here")
    (tmp_path / "closed").mkdir()
    words = command_line("run", "--out", tmp_path / "closed" / "run")
    mount = f"mount -t tmpfs -o ro none {tmp_path / 'closed'}"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *words],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("driftwise: error: cannot start a run in ")
    assert done.stderr.endswith("Read-only file system\n")
    assert done.stderr.count("\n") == 1
