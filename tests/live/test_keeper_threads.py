"""Predictions from other threads while learning goes on."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import digits, keeper, small_network
from test_keeper_drift import upkeep_of

from recollect.live.published import Published
from recollect.live.turns import QUICK_TURNS, QuickTurns


def test_every_answer_is_that_of_one_published_network_never_of_a_mix() -> None:
    stream = digits(0, turn=None)
    mine = keeper("mlp", lr=0.1, detector="never")
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
        rows = slice(start, start + 10)
        mine.observe(stream.images[rows], stream.labels[rows] % (4 if start < 700 else 10))
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
        mine = keeper(small_network(10))
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
def test_what_is_published_is_what_the_learner_itself_would_say(settings: dict[str, Any]) -> None:
    stream = digits(0, turn=None)
    mine = keeper("cnn", **settings)
    for _, images, labels in list(stream.batches())[:10]:
        mine.observe(images, labels)
    asked = torch.from_numpy(stream.images[:600])
    said = upkeep_of(mine).parts.learner.logits(asked)
    assert np.array_equal(mine.predict_proba(asked), said.softmax(dim=1).numpy())


def test_a_reader_keeps_its_network_for_as_long_as_it_reads() -> None:
    network = small_network(3)
    everything = torch.ones(3, dtype=torch.bool)
    published = Published(network, everything)
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
    published = Published(network, torch.ones(3, dtype=torch.bool))
    seen = set()
    for _ in range(10):
        published.renew(network, torch.ones(3, dtype=torch.bool))
        with published.reading() as edition:
            seen.add(id(edition))
    assert len(seen) == 2


def test_buffers_are_published_too_even_those_that_are_never_saved() -> None:
    norm = torch.nn.BatchNorm1d(4)
    network = torch.nn.Sequential(norm, torch.nn.Linear(4, 2))
    network.register_buffer("scale", torch.zeros(1), persistent=False)
    both = torch.ones(2, dtype=torch.bool)
    published = Published(network, both)
    for number in (1.0, 2.0, 3.0):
        network.get_buffer("scale").fill_(number)
        norm(torch.full((8, 4), number))
        published.renew(network, both)
        with published.reading() as edition:
            assert float(edition.network.get_buffer("scale")) == number
            mean = edition.network.get_buffer("0.running_mean")
            assert torch.equal(mean, network.get_buffer("0.running_mean"))
            assert not edition.network.training


def test_turns_are_quick_while_anybody_predicts_and_as_before_afterwards() -> None:
    before = sys.getswitchinterval()
    with QUICK_TURNS:
        with QUICK_TURNS:
            assert sys.getswitchinterval() <= 1e-4 * 1.01
        assert sys.getswitchinterval() <= 1e-4 * 1.01, "somebody is still inside"
    assert sys.getswitchinterval() == before


def test_whoever_learns_gives_way_until_nobody_is_inside_and_not_for_long() -> None:
    turns = QuickTurns()
    turns.COURTESY = 30.0
    began = time.monotonic()
    turns.give_way()
    with turns:
        leaving = threading.Timer(0.1, lambda: turns.__exit__())
        turns.__enter__()  # as another thread would
        leaving.start()
    turns.give_way()
    assert 0.05 < time.monotonic() - began < 10, "until the other one has left"
    turns.COURTESY = 0.01
    with turns:
        turns.give_way()
    assert time.monotonic() - began < 10, "not for as long as somebody is inside"


def test_a_step_gives_way_between_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(QuickTurns, "give_way", lambda _: given.append(1))
    mine = keeper("mlp", lr=0.1)
    mine.observe(torch.zeros(8, 4, 4, 1, dtype=torch.uint8), torch.arange(8) % 2)
    assert len(given) >= 7
