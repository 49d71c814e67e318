"""Predictions from other threads while learning goes on."""

from __future__ import annotations

import copy
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import digits, live_learner, small_network
from run_tools import complaint
from test_live_drift import engine_of

from driftwise.live import engine as engine_module
from driftwise.live.concurrency import (
    FAST_SWITCHING,
    PREDICTIONS_FIRST,
    NetworkSnapshots,
    PredictionPriority,
)
from driftwise.live.engine import LiveEngine


def test_every_answer_is_that_of_one_snapshots_network_never_of_a_mix() -> None:
    stream = digits(0, turn=None)
    mine = live_learner("mlp", lr=0.1, detector="never")
    asked = stream.images[:32]
    mine.observe(stream.images[:20], stream.labels[:20] % 4)
    lawful = {mine.predict_proba(asked).tobytes()}
    answers: list[set[bytes]] = [set() for _ in range(4)]
    counts = [0] * 4
    stop = threading.Event()

    def ask(mine_: int) -> None:
        while not stop.is_set():
            answers[mine_].add(mine.predict_proba(asked).tobytes())
            counts[mine_] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for start in range(20, 1500, 10):  # the head grows on the way
        samples = slice(start, start + 10)
        mine.observe(stream.images[samples], stream.labels[samples] % (4 if start < 700 else 10))
        lawful.add(mine.predict_proba(asked).tobytes())
    stop.set()
    for thread in threads:
        thread.join()
    assert min(counts) > 10
    assert set.union(*answers) <= lawful
    assert len(set.union(*answers)) > 10, "and they kept up with what was learned"


def test_asking_changes_nothing_of_what_is_learned() -> None:
    stream = digits(0, turn=None)
    states = []
    for asks in (False, True):
        mine = live_learner(small_network(10))
        for _, images, labels in list(stream.batches())[:20]:
            if asks:
                mine.predict(images)
                mine.predict_proba(stream.images[:100])
            mine.observe(images, labels)
        states.append(mine.predict_proba(stream.images[:100]))
    assert np.array_equal(states[0], states[1])


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "cls-er", "normalise": True},
        {"precision": "bf16", "memory_format": "channels-last"},
    ],
)
def test_what_is_snapshots_is_what_the_learner_itself_would_say(settings: dict[str, Any]) -> None:
    stream = digits(0, turn=None)
    mine = live_learner("cnn", average_steps=0, **settings)
    for _, images, labels in list(stream.batches())[:10]:
        mine.observe(images, labels)
    asked = torch.from_numpy(stream.images[:600])
    said = engine_of(mine).learner.logits(asked)
    assert np.array_equal(mine.predict_proba(asked), said.softmax(dim=1).numpy())


def test_a_reader_keeps_its_network_for_as_long_as_it_reads() -> None:
    network = small_network(3)
    everything = torch.ones(3, dtype=torch.bool)
    published = NetworkSnapshots(network, everything)
    with published.reading() as held:
        before = [weight.clone() for weight in held.network.parameters()]
        for number in range(5):
            with torch.no_grad():
                for weight in network.parameters():
                    weight.fill_(number)
            published.renew(network, everything)
            with published.reading() as newest:
                assert newest is not held
                assert all((weight == number).all() for weight in newest.network.parameters())
        assert all(map(torch.equal, before, held.network.parameters()))


def test_there_are_two_more_copies_than_readers_and_no_others() -> None:
    network = small_network(3)
    published = NetworkSnapshots(network, torch.ones(3, dtype=torch.bool))
    seen = set()
    for _ in range(10):
        published.renew(network, torch.ones(3, dtype=torch.bool))
        with published.reading() as snapshot:
            seen.add(id(snapshot))
    assert len(seen) == 2


def test_buffers_are_snapshots_too_even_those_that_are_never_saved() -> None:
    norm = torch.nn.BatchNorm1d(4)
    network = torch.nn.Sequential(norm, torch.nn.Linear(4, 2))
    network.register_buffer("scale", torch.zeros(1), persistent=False)
    both = torch.ones(2, dtype=torch.bool)
    published = NetworkSnapshots(network, both)
    for number in (1.0, 2.0, 3.0):
        network.get_buffer("scale").fill_(number)
        norm(torch.full((8, 4), number))
        published.renew(network, both)
        with published.reading() as snapshot:
            assert float(snapshot.network.get_buffer("scale")) == number
            mean = snapshot.network.get_buffer("0.running_mean")
            assert torch.equal(mean, network.get_buffer("0.running_mean"))
            assert not snapshot.network.training


def test_threads_switch_quickly_while_any_predicts_and_as_before_afterwards() -> None:
    before = sys.getswitchinterval()
    with FAST_SWITCHING:
        with FAST_SWITCHING:
            assert sys.getswitchinterval() <= 1e-4 * 1.01
        assert sys.getswitchinterval() <= 1e-4 * 1.01, "somebody is still inside"
    assert sys.getswitchinterval() == before


def test_learning_yields_until_no_prediction_runs() -> None:
    priority = PredictionPriority()
    priority.YIELD_SECONDS = 30.0
    began = time.monotonic()
    priority.yield_to_predictions()
    assert time.monotonic() - began < 5, "nobody is inside"
    with priority:
        priority.__enter__()  # as another thread would
        threading.Timer(0.1, priority.__exit__).start()
    priority.yield_to_predictions()
    assert 0.05 < time.monotonic() - began < 10, "until the other one has left"


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
    stream, mine = digits(0, turn=None), live_learner("mlp", lr=0.1, learning_share=0.5)
    mine.observe(stream.images[:20], stream.labels[:20])
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            mine.predict(stream.images[:1])

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for thread in asking:
        thread.start()
    began, everything, learned = time.monotonic(), time.process_time(), time.thread_time()
    while time.monotonic() < began + 1.5:
        mine.observe(stream.images[:20], stream.labels[:20])
    learned, everything = time.thread_time() - learned, time.process_time() - everything
    stop.set()
    for thread in asking:
        thread.join()
    # Of nine threads one would have a ninth; what the interpreter itself costs is nobody's.
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
    assert priority._owed == 0, "nobody learns"
    with priority.learning(0.5):
        predict(2.1 * PredictionPriority.DEBT_SECONDS)
        begun.clear()
        threading.Thread(target=predict, args=(0.0,), daemon=True).start()
        assert not begun.wait(0.02), "it is learning's turn"
        clock[0] += 2.2 * PredictionPriority.DEBT_SECONDS
        priority.yield_to_predictions()
        assert begun.wait(10), "which has caught up"
        predict(6 * PredictionPriority.DEBT_SECONDS)
        before = time.monotonic()
        predict(0.0)
        assert time.monotonic() - before >= 0.9 * PredictionPriority.MAX_WAIT_SECONDS, (
            "no longer than that"
        )
        with priority.waiting():  # for labels, say
            before = time.monotonic()
            predict(1.0)
            predict(1.0)
            assert time.monotonic() - before < PredictionPriority.MAX_WAIT_SECONDS


def test_a_step_gives_way_between_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(PredictionPriority, "yield_to_predictions", lambda _: given.append(1))
    mine = live_learner("mlp", lr=0.1)
    mine.observe(torch.zeros(8, 4, 4, 1, dtype=torch.uint8), torch.arange(8) % 2)
    assert len(given) >= 7


def test_reading_what_is_to_be_predicted_holds_nobody_up() -> None:
    inside = []

    class Slow:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            inside.append(PREDICTIONS_FIRST._predictions)
            return np.zeros((1, 4, 4, 1), dtype=np.uint8)

    mine = live_learner("mlp", lr=0.1)
    mine.observe(np.zeros((4, 4, 4, 1), dtype=np.uint8), [0, 1, 0, 1])
    mine.predict(Slow())
    assert inside == [0]


def test_a_prediction_waits_for_the_parts_to_be_made_and_for_no_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine, stream = live_learner(small_network(10), lr=0.1), digits(0, turn=None)
    making, may_step, answered = (threading.Event() for _ in range(3))
    build_learner, observe = engine_module.build_learner, LiveEngine.observe

    def make(*arguments: Any) -> Any:
        making.set()
        time.sleep(0.2)  # whoever predicts comes now, and waits
        return build_learner(*arguments)

    def held(*arguments: Any, **named: Any) -> Any:
        assert may_step.wait(30)
        return observe(*arguments, **named)

    monkeypatch.setattr(engine_module, "build_learner", make)
    monkeypatch.setattr(LiveEngine, "observe", held)
    batch = stream.images[:20], stream.labels[:20] % 4
    first = threading.Thread(target=mine.observe, args=batch, daemon=True)
    first.start()
    assert making.wait(30)

    def ask() -> None:
        mine.predict(stream.images[:2])
        answered.set()

    threading.Thread(target=ask, daemon=True).start()
    assert answered.wait(10), "although the first step has not been made"
    may_step.set()
    first.join(30)
    assert mine.num_samples == 20


def test_a_keepers_learner_can_be_copied() -> None:
    mine = live_learner("mlp", lr=0.1)
    mine.observe(torch.zeros(8, 4, 4, 1, dtype=torch.uint8), torch.arange(8) % 2)
    learner = engine_of(mine).learner
    copied = copy.deepcopy(learner)
    image = torch.zeros(1, 4, 4, 1, dtype=torch.uint8)
    assert torch.equal(copied.logits(image), learner.logits(image))


def test_nobody_is_told_of_classes_that_have_not_been_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine, stream = live_learner("mlp"), digits(0)
    begun, may_step = threading.Event(), threading.Event()
    observe = LiveEngine.observe

    def held(*arguments: Any, **named: Any) -> Any:
        begun.set()
        assert may_step.wait(30)
        return observe(*arguments, **named)

    monkeypatch.setattr(LiveEngine, "observe", held)
    first = threading.Thread(target=mine.observe, args=(stream.images[:50], stream.labels[:50]))
    first.start()
    assert begun.wait(30)
    assert "nothing has been learned yet" in complaint(lambda: mine.predict(stream.images[:2]))
    may_step.set()
    first.join(30)
    assert np.isfinite(mine.predict_proba(stream.images[:2])).all()
