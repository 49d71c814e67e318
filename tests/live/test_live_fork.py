"""A fork predicts, and writes nothing to the folder of its parent.

Each check runs in a fresh interpreter: a fork of the test process itself could inherit a lock that
one of its other threads holds, and hang.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

SECONDS = 120
"""for one check; it takes about three"""

PREPARED = """
import os, sys, threading, warnings
from pathlib import Path

import numpy as np
import torch

import driftwise
from live_tools import digits, live_learner

warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
torch.set_num_threads(1)
STREAM = digits(0)
FOLDER = Path(sys.argv[1])


def in_fork(work, meanwhile=lambda: None):
    \"\"\"Whether `work` returns true in a fork; `meanwhile` runs while the fork waits.\"\"\"
    go, may_go = os.pipe()
    pid = os.fork()
    if not pid:
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
    return os.waitstatus_to_exitcode(status) == 0


def observe(live, start, end):
    live.observe(STREAM.images[start:end], STREAM.labels[start:end])


def is_refused(call):
    try:
        call()
    except driftwise.UserError as error:
        return "of which this one is a fork" in str(error)
    return False
"""


def check(script: str, folder: Path) -> None:
    """Run a script after the preparations; it must exit with 0."""
    tools = str(Path(__file__).parent)
    search = os.pathsep.join([tools, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", PREPARED + script, str(folder)],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_fork_predicts_and_leaves_learning_to_the_process_that_holds_the_folder(
    tmp_path: Path,
) -> None:
    script = """
live = live_learner(folder=FOLDER / "it")
observe(live, 0, 50)
expected = live.predict_proba(STREAM.images[:20])

def child():
    refused = [
        is_refused(lambda: observe(live, 50, 60)),
        is_refused(lambda: live.answer([0], [0])),
        is_refused(lambda: live.rehearse(1)),
        is_refused(live.save),
    ]
    same = np.array_equal(live.predict_proba(STREAM.images[:20]), expected)
    live.close()  # saves nothing
    return all(refused) and same

assert in_fork(child)
observe(live, 50, 60)
live.close()
with driftwise.LiveLearner.load(FOLDER / "it") as again:
    assert again.num_samples == 60
"""
    check(script, tmp_path)


def test_a_fork_does_not_hold_a_folder_that_its_owner_has_released(tmp_path: Path) -> None:
    script = """
live = live_learner(folder=FOLDER / "it")
observe(live, 0, 50)

def owner():
    live.close()
    driftwise.LiveLearner.load(FOLDER / "it").close()  # while the fork is there

assert in_fork(lambda: True, meanwhile=owner)
"""
    check(script, tmp_path)


def test_a_fork_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    """Neither for those that were predicting, nor for torch's own."""
    script = """
live = live_learner("cnn", lr=0.1)
observe(live, 0, 50)
images = STREAM.images[:600]
torch.set_num_threads(2)
stop = threading.Event()

def predict():
    while not stop.is_set():
        live.predict(images)

threads = [threading.Thread(target=predict, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
expected = live.predict(images)
same = [in_fork(lambda: np.array_equal(live.predict(images), expected)) for _ in range(3)]
stop.set()
for thread in threads:  # a thread of C++ that is alive at the end would abort the process
    thread.join()
assert all(same)
"""
    check(script, tmp_path)


def test_a_fork_of_a_live_learner_without_a_folder_goes_its_own_way(tmp_path: Path) -> None:
    script = """
live = live_learner()
observe(live, 0, 50)

def child():
    observe(live, 50, 60)
    return live.num_samples == 60

assert in_fork(child)
assert live.num_samples == 50
"""
    check(script, tmp_path)
