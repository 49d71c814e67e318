"""The laws of encoders: they look, and nothing changes by it."""

from __future__ import annotations

import copy

import pytest
import torch
from detect_builders import around
from torch import Tensor, nn

from driftwise import rng
from driftwise.config.learners import make_learner
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import Encoder, LearnerEncoder, RandomEncoder
from driftwise.learner import Learner
from driftwise.types import Samples


def make_images(count: int, shape: tuple[int, int, int] = (8, 8, 1)) -> Tensor:
    draw = rng.fork(0, "pictures", count)
    return torch.randint(256, (count, *shape), generator=draw, dtype=torch.uint8)


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


def test_a_random_encoder_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    images = make_images(5)
    logits = [
        RandomEncoder(around((8, 8, 1), seed=seed)).encode(images).logits for seed in (0, 0, 1)
    ]
    assert logits[0].shape == (5, 32)
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])


def test_making_and_asking_a_random_encoder_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    RandomEncoder(around((8, 8, 1), seed=0)).encode(make_images(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_random_encoder_does_not_change_by_being_asked() -> None:
    encoder = RandomEncoder(around((8, 8, 1), seed=0))
    before = state_of(encoder.networks[0])
    logits = encoder.encode(make_images(40)).logits
    assert_untouched(encoder.networks[0], before)
    assert not logits.requires_grad
    assert not any(parameter.requires_grad for parameter in encoder.networks[0].parameters())


def test_what_a_random_encoder_says_of_a_sample_depends_on_no_other_sample() -> None:
    encoder = RandomEncoder(around((8, 8, 1), seed=0), width=4)
    images = make_images(600)  # more than one portion
    together = encoder.encode(images).logits
    alone = torch.cat([encoder.encode(images[i : i + 100]).logits for i in range(0, 600, 100)])
    assert torch.allclose(together, alone, atol=1e-6)
    assert encoder.encode(images[:0]).logits.shape == (0, 32)


def test_a_random_encoder_takes_images_of_any_shape() -> None:
    encoder = RandomEncoder(around((5, 9, 3), seed=0), outputs=7)
    assert encoder.encode(make_images(2, (5, 9, 3))).logits.shape == (2, 7)


def test_the_learner_as_encoder_says_what_the_learner_says_now() -> None:
    trained = learner()
    encoder = LearnerEncoder(around(learner=trained.encode))
    samples = digits(20)
    first = encoder.encode(samples.images).logits
    assert torch.equal(first, trained.logits(samples.images))
    trained.observe(samples)
    assert torch.equal(encoder.encode(samples.images).logits, trained.logits(samples.images))
    assert not torch.equal(encoder.encode(samples.images).logits, first)


@pytest.mark.parametrize("training", [True, False])
def test_the_learner_does_not_change_by_being_asked(training: bool) -> None:
    trained = learner()
    trained.observe(digits(20))
    trained.network.train(training)
    weights, generator = state_of(trained.network), torch.get_rng_state()
    memory = trained.buffer.state_dict()["generators"]
    logits = LearnerEncoder(around(learner=trained.encode)).encode(make_images(40)).logits
    assert_untouched(trained.network, weights)
    assert all(module.training is training for module in trained.network.modules())
    assert torch.equal(torch.get_rng_state(), generator)
    after = trained.buffer.state_dict()["generators"]
    assert all(torch.equal(after[name], memory[name]) for name in memory)
    assert not logits.requires_grad


def test_only_an_encoder_that_never_learns_calls_itself_fixed() -> None:
    fixed: Encoder = RandomEncoder(around((8, 8, 1), seed=0))
    learns: Encoder = LearnerEncoder(around(learner=learner().encode))
    assert fixed.fixed
    assert not learns.fixed


def test_the_random_network_also_takes_samples_that_are_no_images() -> None:
    samples = torch.rand(6, 20, generator=rng.fork(3))
    mine, again, other = (RandomEncoder(around((20,), seed=seed)) for seed in (1, 1, 2))
    said = mine.encode(samples)
    assert said.features.shape == (6, 128)
    assert torch.equal(said.logits, again.encode(samples).logits)
    assert not torch.equal(said.logits, other.encode(samples).logits)
