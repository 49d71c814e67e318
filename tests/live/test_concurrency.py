"""Predictions from other threads and from forks while learning goes on."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import STABLE, engine_of, live_learner, small_network
from run_tools import complaint

from driftwise.live import components
from driftwise.live import engine as engine_module
from driftwise.live.concurrency import (
    FAST_SWITCHING,
    PREDICTIONS_FIRST,
    NetworkSnapshots,
    PredictionPriority,
)
from driftwise.live.engine import LiveEngine

# Snapshots


def test_every_prediction_is_that_of_one_snapshot_never_of_a_mix() -> None:
    mine = live_learner("mlp", lr=0.1, detector="never")
    images = STABLE.images[:32]
    mine.observe(STABLE.images[:20], STABLE.labels[:20] % 4)
    lawful = {mine.predict_proba(images).tobytes()}
    found: list[list[bytes]] = [[] for _ in range(3)]
    stop = threading.Event()

    def predict(mine_: int) -> None:
        while not stop.is_set():
            found[mine_].append(mine.predict_proba(images).tobytes())

    threads = [threading.Thread(target=predict, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for start in range(20, 800, 10):  # the head grows on the way
        samples = slice(start, start + 10)
        mine.observe(STABLE.images[samples], STABLE.labels[samples] % (4 if start < 400 else 10))
        lawful.add(mine.predict_proba(images).tobytes())
    stop.set()
    for thread in threads:
        thread.join()
    assert min(map(len, found)) > 10
    distinct = {each for predictions in found for each in predictions}
    assert distinct <= lawful
    assert len(distinct) > 10, "and they kept up with what was learned"


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "cls-er", "normalise": True},
        {"precision": "bf16", "memory_format": "channels-last"},
    ],
)
def test_a_snapshot_gives_the_logits_of_the_learner_and_of_its_copy(
    settings: dict[str, Any],
) -> None:
    mine = live_learner("cnn", average_steps=0, **settings)
    for start in range(0, 60, 10):
        mine.observe(STABLE.images[start : start + 10], STABLE.labels[start : start + 10])
    images = torch.from_numpy(STABLE.images[:600])
    for learner in (engine_of(mine).learner, copy.deepcopy(engine_of(mine).learner)):
        expected = learner.logits(images).softmax(dim=1).numpy()
        assert np.array_equal(mine.predict_proba(images), expected)


def test_a_reader_keeps_its_snapshot_and_there_are_two_more_snapshots_than_readers() -> None:
    network, everything = small_network(3), torch.ones(3, dtype=torch.bool)
    snapshots, seen = NetworkSnapshots(network, everything), set()
    with snapshots.reading() as held:
        before = [weight.clone() for weight in held.network.parameters()]
        for number in range(6):
            with torch.no_grad():
                for weight in network.parameters():
                    weight.fill_(number)
            snapshots.renew(network, everything)
            with snapshots.reading() as newest:
                seen.add(id(newest))
                assert newest is not held
                assert all((weight == number).all() for weight in newest.network.parameters())
        assert all(map(torch.equal, before, held.network.parameters()))
    assert len(seen) == 2


def test_snapshots_have_buffers_too_even_those_that_are_never_saved() -> None:
    norm = torch.nn.BatchNorm1d(4)
    network = torch.nn.Sequential(norm, torch.nn.Linear(4, 2))
    network.register_buffer("scale", torch.zeros(1), persistent=False)
    both = torch.ones(2, dtype=torch.bool)
    snapshots = NetworkSnapshots(network, both)
    for number in (1.0, 2.0, 3.0):
        network.get_buffer("scale").fill_(number)
        norm(torch.full((8, 4), number))
        snapshots.renew(network, both)
        with snapshots.reading() as snapshot:
            assert float(snapshot.network.get_buffer("scale")) == number
            mean = snapshot.network.get_buffer("0.running_mean")
            assert torch.equal(mean, network.get_buffer("0.running_mean"))
            assert not snapshot.network.training


def test_a_prediction_waits_for_the_engine_to_be_built_and_for_no_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine, by_name = live_learner(small_network(10), lr=0.1), live_learner("mlp")
    building, may_step, predicted = (threading.Event() for _ in range(3))
    build_learner, observe = components.build_learner, LiveEngine.observe

    def build(*arguments: Any) -> Any:
        building.set()
        time.sleep(0.2)  # a prediction comes now, and waits
        return build_learner(*arguments)

    def held(*arguments: Any, **named: Any) -> Any:
        assert may_step.wait(60)
        return observe(*arguments, **named)

    def predict() -> None:
        mine.predict(STABLE.images[:2])
        predicted.set()

    monkeypatch.setattr(engine_module, "build_learner", build)
    monkeypatch.setattr(LiveEngine, "observe", held)
    batch = STABLE.images[:20], STABLE.labels[:20]
    threads = [threading.Thread(target=mine.observe, args=batch)]
    threads[0].start()
    assert building.wait(60)
    threads.append(threading.Thread(target=predict))
    threads[1].start()
    assert predicted.wait(60), "although the first step has not been made"
    threads.append(threading.Thread(target=by_name.observe, args=batch))
    building.clear()
    threads[2].start()
    assert building.wait(60)
    # Classes that have not been learned are not predicted.
    assert "nothing has been learned yet" in complaint(lambda: by_name.predict(STABLE.images[:2]))
    may_step.set()
    for thread in threads:
        thread.join(60)
    assert mine.num_samples == by_name.num_samples == 20
    assert np.isfinite(by_name.predict_proba(STABLE.images[:2])).all()


# Priority


def test_threads_switch_quickly_while_any_predicts_and_as_before_afterwards() -> None:
    before = sys.getswitchinterval()
    with FAST_SWITCHING:
        with FAST_SWITCHING:
            assert sys.getswitchinterval() <= 1e-4 * 1.01
        assert sys.getswitchinterval() <= 1e-4 * 1.01, "a thread is still inside"
    assert sys.getswitchinterval() == before


def test_learning_yields_until_no_prediction_runs() -> None:
    priority = PredictionPriority()
    priority.YIELD_SECONDS = 30.0
    began = time.monotonic()
    priority.yield_to_predictions()
    assert time.monotonic() - began < 5, "no prediction runs"
    with priority:
        priority.__enter__()  # as another thread would
        threading.Timer(0.1, priority.__exit__).start()
    priority.yield_to_predictions()
    assert 0.05 < time.monotonic() - began < 10, "until the other one has ended"


def test_learning_yields_for_half_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, yielded = [0.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    priority = PredictionPriority()

    def wait(seconds: float) -> None:
        clock[0] += seconds
        yielded[0] += seconds

    monkeypatch.setattr(priority._no_predictions, "wait", wait)
    with priority:  # a prediction that does not end
        for _ in range(1000):
            priority.yield_to_predictions()
            clock[0] += 1e-4  # an operation
    assert 0.4 * clock[0] <= yielded[0] <= 0.5 * clock[0]


def test_learning_has_its_share_however_many_threads_predict() -> None:
    mine = live_learner("mlp", lr=0.1, learning_share=0.5)
    mine.observe(STABLE.images[:20], STABLE.labels[:20])
    stop = threading.Event()

    def predict() -> None:
        while not stop.is_set():
            mine.predict(STABLE.images[:1])

    predicting = [threading.Thread(target=predict) for _ in range(8)]
    for thread in predicting:
        thread.start()
    began, everything, learned = time.monotonic(), time.process_time(), time.thread_time()
    while time.monotonic() < began + 1.5:
        mine.observe(STABLE.images[:20], STABLE.labels[:20])
    learned, everything = time.thread_time() - learned, time.process_time() - everything
    stop.set()
    for thread in predicting:
        thread.join()
    # One of nine threads would have a ninth; the interpreter itself takes some, too.
    assert learned / everything > 0.22


def test_predictions_wait_for_learning_that_is_owed_time_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr("driftwise.live.concurrency.time.thread_time", lambda: clock[0])
    priority, begun = PredictionPriority(), threading.Event()

    def predict(seconds: float) -> None:
        with priority.predicting():
            begun.set()
            clock[0] += seconds

    predict(1.0)
    predict(1.0)
    assert priority._owed == 0, "no thread learns"
    with priority.learning(0.5):
        predict(2.1 * PredictionPriority.DEBT_SECONDS)
        begun.clear()
        threading.Thread(target=predict, args=(0.0,), daemon=True).start()
        assert not begun.wait(0.02), "learning goes first"
        clock[0] += 2.2 * PredictionPriority.DEBT_SECONDS
        priority.yield_to_predictions()
        assert begun.wait(10), "which has caught up"
        predict(6 * PredictionPriority.DEBT_SECONDS)
        before = time.monotonic()
        predict(0.0)
        assert time.monotonic() - before >= 0.9 * PredictionPriority.MAX_WAIT_SECONDS
        with priority.waiting():  # for labels
            before = time.monotonic()
            predict(1.0)
            predict(1.0)
            assert time.monotonic() - before < PredictionPriority.MAX_WAIT_SECONDS


def test_a_step_yields_between_its_operations_and_not_to_the_checks_of_an_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside = []

    class Slow:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            inside.append(PREDICTIONS_FIRST._predictions)
            return np.zeros((1, 4, 4, 1), dtype=np.uint8)

    yields: list[int] = []
    monkeypatch.setattr(PredictionPriority, "yield_to_predictions", lambda _: yields.append(1))
    mine = live_learner("mlp", lr=0.1)
    mine.observe(torch.zeros(8, 4, 4, 1, dtype=torch.uint8), torch.arange(8) % 2)
    assert len(yields) >= 7
    mine.predict(Slow())
    assert inside == [0]


# Forks

PREPARED = """
import os, sys, threading, warnings
from pathlib import Path

import numpy as np
import torch

import driftwise
from live_tools import STABLE, live_learner

warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
torch.set_num_threads(1)
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
    live.observe(STABLE.images[start:end], STABLE.labels[start:end])


def is_refused(call):
    try:
        call()
    except driftwise.UserError as error:
        return "of which this one is a fork" in str(error)
    return False
"""
FORKS = {
    "a fork predicts and leaves learning to the process that holds the folder": """
live = live_learner(folder=FOLDER / "it")
observe(live, 0, 50)
expected = live.predict_proba(STABLE.images[:20])

def child():
    calls = (lambda: observe(live, 50, 60), lambda: live.answer([0], [0]), live.rehearse, live.save)
    refused = [is_refused(call) for call in calls]
    same = np.array_equal(live.predict_proba(STABLE.images[:20]), expected)
    live.close()  # saves nothing
    return all(refused) and same

assert in_fork(child)
observe(live, 50, 60)
live.close()
with driftwise.LiveLearner.load(FOLDER / "it") as again:
    assert again.num_samples == 60
""",
    "a fork does not hold a folder that its owner has released": """
live = live_learner(folder=FOLDER / "it")
observe(live, 0, 50)

def owner():
    live.close()
    driftwise.LiveLearner.load(FOLDER / "it").close()  # while the fork is there

assert in_fork(lambda: True, meanwhile=owner)
""",
    "a fork of a live learner without a folder goes its own way": """
live = live_learner()
observe(live, 0, 50)

def child():
    observe(live, 50, 60)
    return live.num_samples == 60

assert in_fork(child)
assert live.num_samples == 50
""",
    "a fork waits for no thread of its parent, nor for torch's own": """
live = live_learner("cnn", lr=0.1)
observe(live, 0, 50)
images = STABLE.images[:600]
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
""",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forks(tmp_path: Path) -> None:
    """In a fresh interpreter: a fork of the test process could inherit a lock that is held."""
    parts = [PREPARED]
    for number, (law, script) in enumerate(FORKS.items()):
        parts += [f"FOLDER = Path(sys.argv[1]) / '{number}'", f"print({law!r}, file=sys.stderr)"]
        parts.append(script)
    search = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(parts), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
