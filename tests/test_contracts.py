"""Every entry of the catalogue is put through the same suite; a new entry enrols itself."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from bench_tools import context, verdicts
from same_state import same

from driftwise.config import learners, registry
from driftwise.config.presets import resolve
from driftwise.config.registry import CATALOGUE, find, is_analytic
from driftwise.config.schema import RunConfig
from driftwise.detect import DetectorContext
from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.memory import ReplayBuffer
from driftwise.memory.policies import Reservoir
from driftwise.protocols import Choose
from driftwise.types import Encoding, Samples

SHAPE = (8, 8, 1)


def names(kind: str) -> list[str]:
    # Analytic methods learn from vectors: tests/runs/test_vector_runs.py.
    return [name for name in CATALOGUE[kind] if kind != "method" or not is_analytic(name)]


def samples(count: int, *, seed: int = 0, labels: Sequence[int] = (0, 1, 2)) -> Samples:
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.tensor(labels)
    return Samples(
        images=torch.randint(256, (count, *SHAPE), generator=draw, dtype=torch.uint8),
        labels=kinds[torch.arange(count) % len(kinds)],
        ids=torch.arange(count) + 1000 * seed,
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def learner_of(**settings: Any) -> Learner:
    return learners.make_learner(resolve(RunConfig(threads=1, lr=0.05, **settings)), SHAPE, 10)


@pytest.mark.parametrize("name", names("benchmark"))
def test_a_benchmark_is_bytes_with_a_name_for_every_label(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_OFFLINE", "1")
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path))
    try:
        entry = CATALOGUE["benchmark"][name]
        data = entry.factory()(**entry.fixed)
    except UserError as error:
        message = str(error)  # not on this machine, or the user's own
    else:
        assert (data.images.dtype, data.labels.dtype) == ("uint8", "int64")
        assert data.images.ndim == 4
        assert len(data.images) == len(data.labels)
        assert set(data.labels.tolist()) == set(range(len(data.class_names)))
        return
    assert "data=" in message


# With each buffer policy and adaptation, methods are put through test_method_contract.py.
@pytest.mark.parametrize("name", names("method"))
def test_a_method_learns_remembers_and_goes_on_from_its_state(name: str) -> None:
    learner = learner_of(method=name)
    learner.begin_task([0, 1])
    losses = [learner.observe(samples(10, seed=n, labels=(0, 1))).loss for n in range(30)]
    again = learner.observe(samples(10, seed=0, labels=(0, 1))).loss
    assert again < losses[0], "it has seen this batch before"
    learner.end_task()
    assert learner.buffer.seen == (310 if learner.method.rehearses else 0)
    twin = learner_of(method=name)
    twin.load_state_dict(copy.deepcopy(learner.state_dict()))
    for each in (learner, twin):
        each.begin_task([2])
        for number in range(3):
            each.observe(samples(10, seed=50 + number, labels=(2,)))
        each.end_task()
    assert same(twin.state_dict(), learner.state_dict())
    assert learner.logits(samples(4).images).shape == (4, 10)


@pytest.mark.parametrize("name", names("backbone"))
def test_a_backbone_gives_one_logit_per_class_sample_by_sample(name: str) -> None:
    learner = learner_of(backbone=name)
    images = samples(5).images
    together = learner.logits(images)
    assert together.shape == (5, 10)
    assert together.dtype == torch.float32
    alone = torch.cat([learner.logits(image[None]) for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


class Labels:
    """Has so many fresh samples of each class, and books what was asked for."""

    def __init__(self, available: int) -> None:
        self.available = available
        self.asked: dict[int, int] = {}

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        del choose
        granted = self.available if count is None else min(count, self.available)
        self.asked[label] = self.asked.get(label, 0) + granted
        return samples(granted, seed=7, labels=(label,))

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        return dict(wanted)

    def unlabelled(self) -> Samples:
        return samples(0, seed=7)


@pytest.mark.parametrize("name", names("adaptation"))
@pytest.mark.parametrize("available", [0, 2, 50])
def test_an_adaptation_touches_drifted_classes_only_and_never_loses_one_for_nothing(
    name: str, available: int
) -> None:
    memory = ReplayBuffer(12, policy=Reservoir(), seed=0)
    memory.put(samples(12))
    adaptation = registry.make("adaptation", resolve(RunConfig(adaptation=name)))
    labels = Labels(available)
    result = adaptation.adapt(verdicts([1, 2]), context(memory, labels, lambda given: {}))
    assert set(labels.asked) <= {1, 2}
    assert memory.counts()[0] == 4
    assert memory.samples_of(0).ids.tolist() == [0, 3, 6, 9]
    assert set(result.renewed) <= {1, 2}
    if result.extra is not None:
        assert set(result.extra.labels.tolist()) == set(result.renewed)
    if not available:
        assert memory.counts() == {0: 4, 1: 4, 2: 4}
        assert (result.renewed, result.extra, result.from_scratch) == ((), None, False)


@pytest.mark.parametrize("name", names("adaptation"))
def test_an_adaptation_does_nothing_where_nothing_drifted(name: str) -> None:
    memory = ReplayBuffer(12, policy=Reservoir(), seed=0)
    memory.put(samples(12))
    before = memory.state_dict()
    adaptation = registry.make("adaptation", resolve(RunConfig(adaptation=name)))
    labels = Labels(50)
    result = adaptation.adapt([], context(memory, labels, lambda given: {}))
    assert (result.extra, result.from_scratch, result.renewed) == (None, False, ())
    assert labels.asked == {}
    assert same(memory.state_dict(), before)


class Pixels:
    """An encoder that needs no network: the image is its own logits and its own features."""

    def encode(self, images: torch.Tensor) -> Encoding:
        pixels = images.flatten(1).float() / 255
        return Encoding(logits=pixels, features=pixels)


@pytest.mark.parametrize("name", names("detector"))
def test_a_detector_gives_one_verdict_per_class_in_their_order(name: str) -> None:
    config = resolve(RunConfig(detector=name))

    context = DetectorContext(encoder=Pixels, drifting=lambda task: (2,))
    detector = registry.make("detector", config, context)
    memory = ReplayBuffer(60, policy=Reservoir(), seed=0)
    memory.put(samples(60))
    verdicts = detector.check(4, [2, 0, 1], samples(60, seed=1), memory)
    assert [verdict.label for verdict in verdicts] == [2, 0, 1]
    assert {verdict.task for verdict in verdicts} == {4}
    assert all(verdict.drifted in (True, False, None) for verdict in verdicts)
    for verdict in verdicts:
        assert (verdict.drifted is None) is (verdict.reason is not None)
    assert detector.check(4, [], samples(0), memory) == []


@pytest.mark.parametrize("name", names("transform"))
@pytest.mark.parametrize("severity", [1, 5])
def test_a_transform_gives_the_same_bytes_every_time(name: str, severity: int) -> None:
    images = samples(6).images
    before = images.clone()
    apply = find("transform", name).factory()
    first = apply(images, name, severity, seed=3)
    assert torch.equal(apply(images, name, severity, seed=3), first)
    assert (first.shape, first.dtype) == (images.shape, torch.uint8)
    assert torch.equal(images, before)
    assert torch.equal(first, images) is (name == "identity")
