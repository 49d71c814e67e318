"""A user in a hurry: the first interrupt is waited for, the second is not, and nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import own_trouble
from fault_tools import Process, Work, attempt, broken, differences, scratch, until
from troubles import Trouble

WORK = Work(epochs=2, tasks="[[0,1],[2,3]]", backbone="own_trouble:Obedient")


def ends_at_the_second_interrupt(process: Process, folder: Path) -> None:
    os.kill(process.pid, signal.SIGINT)
    assert not process.ends_within(0.5), "the first one waits for the step to be made and saved"
    os.kill(process.pid, signal.SIGINT)
    second = time.monotonic()
    end = process.end()
    assert time.monotonic() - second < 1.0
    assert end.code == 130
    assert end.stderr.startswith("driftwise: interrupted")
    assert end.stderr.count("\n") == 1
    assert broken(folder) == []
    assert list(folder.glob(".*.tmp")) == []


def test_a_second_interrupt_ends_a_long_step_within_a_second(tmp_path: Path) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    orders = Path(scratch().name) / "orders"
    orders.write_text("wait 30")
    process = Process(WORK.words(folder))
    until((orders.parent / "wait").exists)
    ends_at_the_second_interrupt(process, folder)
    orders.unlink()
    for each in (folder, whole):
        assert attempt(WORK.words(each)).code == 0
    assert differences(folder, whole) == []


def test_a_second_interrupt_ends_a_checkpoint_that_is_half_written_within_a_second(
    tmp_path: Path,
) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    log = tmp_path / "log"
    trouble = Trouble(
        folder=str(folder), log=str(log), kind="stuck", call=5, only="write .checkpoint"
    )
    process = Process(WORK.words(folder), trouble)
    until(Path(f"{log}.stuck").exists)
    ends_at_the_second_interrupt(process, folder)
    for each in (folder, whole):
        assert attempt(WORK.words(each)).code == 0
    assert differences(folder, whole) == []


def test_the_network_of_these_tests_is_the_one_that_ran(tmp_path: Path) -> None:
    """Guards the others: without orders it computes what a linear network does."""
    end = attempt(WORK.words(tmp_path / "run"))
    assert (end.code, end.stderr) == (0, "")
    assert own_trouble.Obedient.__name__ in (tmp_path / "run" / "config.json").read_text()
