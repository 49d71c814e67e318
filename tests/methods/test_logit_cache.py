"""The logits of the frozen network of SER are computed once per sample and task."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from learn_builders import (
    CLASSES,
    batch,
    labelled,
    make_learner,
    play_tasks,
)
from same_state import same
from torch import Tensor, nn

from driftwise.learner import Learner
from driftwise.methods import SER
from driftwise.methods.base import SampleKeys
from driftwise.methods.ser import LogitCache
from driftwise.models.head import find_head
from driftwise.types import Samples

EPOCHS = 3
CPU = torch.device("cpu")


def keys_of(*pairs: tuple[int, int]) -> SampleKeys:
    ids, concepts = zip(*pairs, strict=True)
    return SampleKeys(torch.tensor(ids), torch.tensor(concepts))


def answers(*numbers: float) -> Tensor:
    return torch.tensor(numbers)[:, None]


def never() -> Tensor:
    raise AssertionError("everything is cached")


def test_logits_are_found_by_sample_in_any_order() -> None:
    cache = LogitCache()
    cache.lookup(keys_of((5, 0), (1, 0)), lambda: answers(50, 10))
    cache.lookup(keys_of((9, 0)), lambda: answers(90))
    assert cache.lookup(keys_of((9, 0), (5, 0), (5, 0), (1, 0)), never).tolist() == [
        [90],
        [50],
        [50],
        [10],
    ]


def test_one_sample_may_come_in_two_concepts_at_once() -> None:
    cache = LogitCache()
    cache.lookup(keys_of((5, 0), (5, 3)), lambda: answers(50, 53))
    assert cache.lookup(keys_of((5, 3), (5, 0)), never).tolist() == [[53], [50]]


def test_of_samples_that_come_twice_the_last_answer_stands_also_after_loading() -> None:
    cache, twin = LogitCache(), LogitCache()
    ids = torch.arange(4000).repeat(3)
    keys = SampleKeys(ids, torch.zeros_like(ids))
    cache.lookup(keys, lambda: torch.arange(len(ids), dtype=torch.float32)[:, None])
    twin.load_state_dict(cache.state_dict(), CPU)
    once = SampleKeys(ids[:4000], keys.concepts[:4000])
    for each in (cache, twin):
        assert torch.equal(each.lookup(once, never)[:, 0], torch.arange(8000.0, 12000.0))


def test_a_state_holds_everything_and_nothing_is_left_after_clearing() -> None:
    cache, twin = LogitCache(), LogitCache()
    twin.lookup(keys_of((70, 0)), lambda: answers(1))
    cache.lookup(keys_of((5, 0), (1, 0)), lambda: answers(50, 10))
    cache.lookup(keys_of((5, 1)), lambda: answers(51))
    twin.load_state_dict(cache.state_dict(), CPU)
    assert twin.lookup(keys_of((1, 0), (5, 1)), never).tolist() == [[10], [51]]
    assert same(twin.state_dict(), cache.state_dict())
    twin.clear()
    assert twin.width is None
    assert twin.state_dict() == {}
    assert twin.lookup(keys_of((1, 0)), lambda: answers(3)).tolist() == [[3]]


def make_plain(attempt: int) -> nn.Sequential:
    del attempt
    torch.manual_seed(3)
    network = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, CLASSES)
    )
    find_head(network, torch.zeros(2, 2, 4, 4))
    return network


def learner_in_second_task(**train_settings: Any) -> Learner:
    torch.manual_seed(0)
    learner = make_learner(SER(), make=make_plain, capacity=12, lr=0.05, **train_settings)
    play_tasks(learner, (0, 1))
    learner.begin_task((2, 3, 4))
    return learner


def batches(epoch: int) -> list[Samples]:
    """The same samples every time, one more batch of another size, in another order."""
    made = [batch(number, 5) for number in range(20, 24)] + [batch(24, 2)]
    return made[epoch:] + made[:epoch]


def learn(learner: Learner, epochs: int = EPOCHS, first: int = 1) -> None:
    for epoch in range(first, epochs + 1):
        learner.begin_epoch(epoch, epochs)
        for samples in batches(epoch):
            learner.observe(samples)


def frozen_samples(learner: Learner) -> list[int]:
    """Samples of each forward of the frozen network from now on."""
    (frozen,) = learner.method.copies()
    asked: list[int] = []

    def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        asked.append(len(inputs[0]))

    note.only_counts = True  # type: ignore[attr-defined]
    frozen.register_forward_pre_hook(note)
    return asked


def test_the_frozen_network_is_asked_in_the_first_epoch_only() -> None:
    learner = learner_in_second_task()
    asked = frozen_samples(learner)
    learn(learner)
    assert asked == [len(samples) for samples in batches(1)]


def test_a_network_that_mixes_samples_is_asked_every_time() -> None:
    def make(attempt: int) -> nn.Module:
        network = make_plain(attempt)
        network[1] = nn.BatchNorm2d(3, track_running_stats=False)
        return network

    learner = make_learner(SER(), make=make, capacity=12, lr=0.05)
    play_tasks(learner, (0, 1))
    learner.begin_task((2, 3, 4))
    asked = frozen_samples(learner)
    learn(learner)
    assert len(asked) == EPOCHS * len(batches(1))


def test_cached_logits_are_those_that_would_be_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = learner_in_second_task()
    learn(kept)
    asking = learner_in_second_task()
    monkeypatch.setattr(LogitCache, "lookup", lambda self, keys, compute: compute())
    learn(asking)
    for ours, others in zip(kept.network.parameters(), asking.network.parameters(), strict=True):
        torch.testing.assert_close(ours, others, rtol=1e-4, atol=1e-6)


def test_a_state_taken_within_an_epoch_goes_on_to_the_same_bits() -> None:
    straight, before, after = (learner_in_second_task() for _ in range(3))
    learn(straight)
    before.begin_epoch(1, EPOCHS)
    for samples in batches(1)[:3]:
        before.observe(samples)
    after.load_state_dict(before.state_dict())
    asked = frozen_samples(after)
    after.begin_epoch(1, EPOCHS)
    for samples in batches(1)[3:]:
        after.observe(samples)
    learn(after, first=2)
    assert asked == [len(samples) for samples in batches(1)[3:]]
    assert same(after.state_dict(), straight.state_dict())


def test_a_head_that_grows_between_epochs_is_asked_again() -> None:
    learner = learner_in_second_task()
    learner.begin_epoch(1, 2)
    learner.observe(labelled(20, 2, 3, 4))
    learner.grow(CLASSES + 2)
    asked = frozen_samples(learner)
    learner.begin_epoch(2, 2)
    learner.observe(labelled(20, 2, 3, 4))
    learner.observe(labelled(20, 2, 3, 4))
    assert asked == [3]
