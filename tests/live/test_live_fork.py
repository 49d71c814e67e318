"""A fork of the process that has a live learner predicts, and writes nothing of what the other has."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from live_tools import digits, live_learner

import driftwise

STREAM = digits(0)


def in_fork(work: Callable[[], bool], *, meanwhile: Callable[[], object] = lambda: None) -> bool:
    """Whether it comes out true in a fork of this process, within ten seconds."""
    go, may_go = os.pipe()
    pid = os.fork()
    if not pid:  # nothing of pytest must run here
        signal.alarm(10)
        code = 1
        try:
            os.read(go, 1)
            code = 0 if work() else 1
        finally:
            os._exit(code)
    try:
        meanwhile()
    finally:
        os.write(may_go, b".")
        _, status = os.waitpid(pid, 0)
        os.close(go)
        os.close(may_go)
    return os.waitstatus_to_exitcode(status) == 0


def refuses(call: Callable[[], object]) -> bool:
    try:
        call()
    except driftwise.UserError as error:
        return "of which this one is a fork" in str(error)
    return False


def test_a_fork_predicts_and_leaves_learning_to_the_process_that_holds_the_folder(
    tmp_path: Path,
) -> None:
    mine = live_learner(folder=tmp_path / "it")
    mine.observe(STREAM.images[:50], STREAM.labels[:50])
    expected = mine.predict_proba(STREAM.images[:20])

    def child() -> bool:
        refused = [
            refuses(lambda: mine.observe(STREAM.images[50:60], STREAM.labels[50:60])),
            refuses(lambda: mine.answer([0], [0])),
            refuses(lambda: mine.rehearse(1)),
            refuses(mine.save),
        ]
        same = np.array_equal(mine.predict_proba(STREAM.images[:20]), expected)
        mine.close()  # saves nothing
        return all(refused) and same

    assert in_fork(child)
    mine.observe(STREAM.images[50:60], STREAM.labels[50:60])
    mine.close()
    with driftwise.LiveLearner.load(tmp_path / "it") as again:
        assert again.samples == 60


def test_a_fork_does_not_hold_a_folder_that_its_owner_has_let_go(tmp_path: Path) -> None:
    mine = live_learner(folder=tmp_path / "it")
    mine.observe(STREAM.images[:50], STREAM.labels[:50])

    def owner() -> None:
        mine.close()
        driftwise.LiveLearner.load(tmp_path / "it").close()  # while the fork is there

    assert in_fork(lambda: True, meanwhile=owner)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking beside threads
def test_threads_that_a_fork_does_not_have_hold_it_up_nowhere() -> None:
    """Neither those that were predicting, nor torch's own."""
    threads, mine = torch.get_num_threads(), live_learner("cnn", lr=0.1)
    mine.observe(STREAM.images[:50], STREAM.labels[:50])
    images = STREAM.images[:600]
    torch.set_num_threads(2)
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            mine.predict(images)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        expected = mine.predict(images)
        for _ in range(3):
            assert in_fork(lambda: np.array_equal(mine.predict(images), expected))
    finally:
        stop.set()
        for thread in asking:
            thread.join()
        torch.set_num_threads(threads)


def test_a_fork_of_a_keeper_without_a_folder_goes_its_own_way() -> None:
    mine = live_learner()
    mine.observe(STREAM.images[:50], STREAM.labels[:50])

    def child() -> bool:
        mine.observe(STREAM.images[50:60], STREAM.labels[50:60])
        return mine.samples == 60

    assert in_fork(child)
    assert mine.samples == 50
