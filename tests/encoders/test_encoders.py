"""Encoders: nothing changes by encoding."""

from __future__ import annotations

import copy

import pytest
import torch
from detect_builders import encoder_context
from torch import Tensor, nn

from driftwise import rng
from driftwise.config.learners import make_learner
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import LearnerEncoder, RandomEncoder
from driftwise.learner import Learner
from driftwise.types import Samples


def make_images(count: int, shape: tuple[int, ...] = (8, 8, 1)) -> Tensor:
    draw = rng.fork(0, "pictures", count)
    dtype = torch.uint8 if len(shape) == 3 else torch.float32
    return torch.randint(256, (count, *shape), generator=draw).to(dtype)


def learner() -> Learner:
    config = resolve(RunConfig(backbone="cnn", buffer_size=10))  # batch norm: it has statistics
    return make_learner(config, (8, 8, 1), 10)


def digits(count: int) -> Samples:
    data = load_digits()
    return Samples(
        images=torch.from_numpy(data.images[:count]),
        labels=torch.from_numpy(data.labels[:count]),
        ids=torch.arange(count),
        concepts=torch.zeros(count, dtype=torch.int64),
    )


def state_of(network: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(network.state_dict())


def assert_untouched(network: nn.Module, before: dict[str, Tensor]) -> None:
    after = network.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("shape", [(8, 8, 1), (5, 9, 3), (20,)])
def test_a_random_encoder_is_fixed_by_its_seed_and_changes_nothing(shape: tuple[int, ...]) -> None:
    samples, before = make_images(5, shape), torch.get_rng_state()
    first, again, other = (RandomEncoder(encoder_context(shape, seed=seed)) for seed in (0, 0, 1))
    weights = state_of(first.networks[0])
    encoding = first.encode(samples)
    assert (encoding.logits.shape, encoding.features.shape) == ((5, 32), (5, 128))
    assert torch.equal(encoding.logits, again.encode(samples).logits)
    assert not torch.allclose(encoding.logits, other.encode(samples).logits)
    assert torch.equal(torch.get_rng_state(), before)
    assert_untouched(first.networks[0], weights)
    assert first.fixed
    assert not encoding.logits.requires_grad
    assert not any(parameter.requires_grad for parameter in first.networks[0].parameters())


def test_a_random_encoding_of_a_sample_depends_on_no_other_sample() -> None:
    encoder = RandomEncoder(encoder_context((8, 8, 1), seed=0), width=4)
    images = make_images(600)  # more than one portion
    together = encoder.encode(images).logits
    alone = torch.cat([encoder.encode(images[i : i + 100]).logits for i in range(0, 600, 100)])
    assert torch.allclose(together, alone, atol=1e-6)
    assert encoder.encode(images[:0]).logits.shape == (0, 32)


def test_the_learner_as_encoder_gives_the_learners_present_logits() -> None:
    trained = learner()
    encoder = LearnerEncoder(encoder_context(learner=trained.encode))
    samples = digits(20)
    first = encoder.encode(samples.images).logits
    assert torch.equal(first, trained.logits(samples.images))
    assert not encoder.fixed
    trained.observe(samples)
    assert torch.equal(encoder.encode(samples.images).logits, trained.logits(samples.images))
    assert not torch.equal(encoder.encode(samples.images).logits, first)


@pytest.mark.parametrize("training", [True, False])
def test_the_learner_does_not_change_by_encoding(training: bool) -> None:
    trained = learner()
    trained.observe(digits(20))
    trained.network.train(training)
    weights, generator = state_of(trained.network), torch.get_rng_state()
    memory = trained.buffer.state_dict()["generators"]
    logits = LearnerEncoder(encoder_context(learner=trained.encode)).encode(make_images(40)).logits
    assert_untouched(trained.network, weights)
    assert all(module.training is training for module in trained.network.modules())
    assert torch.equal(torch.get_rng_state(), generator)
    after = trained.buffer.state_dict()["generators"]
    assert all(torch.equal(after[name], memory[name]) for name in memory)
    assert not logits.requires_grad
