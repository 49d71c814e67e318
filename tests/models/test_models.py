from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from driftwise import rng
from driftwise.errors import UserError
from driftwise.models import MLP, Bottleneck, ResNet, ResNet18, SmallCNN, ViT, seeded
from driftwise.models.cnn import CNNOptions
from driftwise.models.mlp import MLPOptions
from driftwise.models.resnet import ResNetOptions


class Network(Protocol):
    """What every test below relies on."""

    head: nn.Linear

    def features(self, x: Tensor) -> Tensor: ...
    def __call__(self, x: Tensor) -> Tensor: ...
    def eval(self) -> nn.Module: ...
    def train(self) -> nn.Module: ...
    def state_dict(self) -> dict[str, Tensor]: ...


class Bottlenecks(ResNet):
    block = Bottleneck
    depths = (1, 1, 2, 1)


Build = Callable[[tuple[int, int, int]], Network]

NETWORKS: dict[str, Build] = {
    "mlp": lambda shape: MLP(input_shape=shape, num_classes=7, hidden=(12, 9)),
    "cnn": lambda shape: SmallCNN(input_shape=shape, num_classes=7, width=4),
    "resnet18": lambda shape: ResNet18(input_shape=shape, num_classes=7, width=4),
    "bottlenecks": lambda shape: Bottlenecks(input_shape=shape, num_classes=7, width=2),
    # Patches of one pixel fit every image.
    "vit": lambda shape: ViT(
        input_shape=shape, num_classes=7, patch_size=1, dim=12, depth=2, heads=3
    ),
}


@pytest.fixture(params=NETWORKS)
def build(request: pytest.FixtureRequest) -> Build:
    return NETWORKS[request.param]


def make_images(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=rng.fork(0, "pictures"))


def num_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def layers(network: nn.Module, shape: tuple[int, ...]) -> list[tuple[str, tuple[int, ...], int]]:
    """(kind, output shape of one sample, parameters) of every leaf layer, in the order they run."""
    seen: list[tuple[str, tuple[int, ...], int]] = []

    def note(layer: nn.Module, _: object, output: Tensor) -> None:
        seen.append((type(layer).__name__, tuple(output.shape[1:]), num_parameters(layer)))

    for layer in network.modules():
        if not list(layer.children()):
            layer.register_forward_hook(note)
    with torch.no_grad():
        network.eval()(torch.zeros(2, *shape))
    return seen


# --- every network ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (1, 28, 28), (3, 32, 32), (2, 9, 13)])
def test_every_network_gives_one_logit_per_sample_and_class(
    build: Build, shape: tuple[int, int, int]
) -> None:
    assert build(shape)(make_images(5, *shape)).shape == (5, 7)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_images_of_a_few_pixels_are_taken_too(build: Build, size: int) -> None:
    network = build((3, size, size))
    network.eval()
    assert network(make_images(2, 3, size, size)).shape == (2, 7)


def test_the_logits_are_the_head_over_the_features(build: Build) -> None:
    network = build((3, 8, 8))
    network.eval()
    x = make_images(4, 3, 8, 8)
    features = network.features(x)
    assert features.shape == (4, network.head.in_features)
    torch.testing.assert_close(network(x), features @ network.head.weight.T + network.head.bias)


def test_in_eval_mode_a_sample_is_judged_by_itself(build: Build) -> None:
    network = build((1, 8, 8))
    network.eval()
    x = make_images(6, 1, 8, 8)
    alone = torch.cat([network(sample[None]) for sample in x])
    torch.testing.assert_close(alone, network(x))


def test_the_lent_generator_decides_the_weights_and_nothing_else_does(build: Build) -> None:
    def weights(seed: int) -> dict[str, Tensor]:
        with rng.as_global(rng.fork(seed, "network")):
            return build((3, 8, 8)).state_dict()

    before = torch.get_rng_state()
    first, again, other = weights(0), weights(0), weights(1)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_every_weight_gets_a_gradient(build: Build) -> None:
    network = build((3, 8, 8))
    assert isinstance(network, nn.Module)
    torch.autograd.backward(F.cross_entropy(network(make_images(4, 3, 8, 8)), torch.arange(4)))
    without = [name for name, p in network.named_parameters() if p.grad is None]
    assert without == []


@pytest.mark.parametrize("size", [1, 8])
def test_every_network_can_learn_from_a_single_sample(build: Build, size: int) -> None:
    # A stream may send one sample while the memory has none to add.
    network = build((3, size, size))
    network.train()
    logits = network(make_images(1, 3, size, size))
    torch.autograd.backward(F.cross_entropy(logits, torch.tensor([2])))
    gradient = network.head.weight.grad
    assert gradient is not None
    assert torch.isfinite(gradient).all()


# --- mlp ----------------------------------------------------------------------------------------


def test_mlp_layer_by_layer() -> None:
    assert layers(MLP(input_shape=(1, 8, 8)), (1, 8, 8)) == [
        ("Flatten", (64,), 0),
        ("Linear", (100,), 64 * 100 + 100),
        ("ReLU", (100,), 0),
        ("Linear", (100,), 100 * 100 + 100),
        ("ReLU", (100,), 0),
        ("Linear", (10,), 100 * 10 + 10),
    ]


# --- small cnn ----------------------------------------------------------------------------------


def test_small_cnn_layer_by_layer() -> None:
    assert layers(SmallCNN(input_shape=(3, 8, 8), num_classes=10), (3, 8, 8)) == [
        ("Conv2d", (16, 8, 8), 3 * 16 * 9),
        ("BatchNorm2d", (16, 8, 8), 32),
        ("ReLU", (16, 8, 8), 0),
        ("Conv2d", (32, 4, 4), 16 * 32 * 9),
        ("BatchNorm2d", (32, 4, 4), 64),
        ("ReLU", (32, 4, 4), 0),
        ("Conv2d", (64, 2, 2), 32 * 64 * 9),
        ("BatchNorm2d", (64, 2, 2), 128),
        ("ReLU", (64, 2, 2), 0),
        ("Linear", (10,), 64 * 10 + 10),
    ]


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: CNNOptions(width=0), lambda: ResNetOptions(width=-1)])
def test_a_network_without_width_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UserError, match="width must be at least 1"):
        make()


@pytest.mark.parametrize("hidden", [(), (0,), (8, -1)])
def test_a_layer_without_units_is_refused(hidden: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="at least 1 unit each"):
        MLPOptions(hidden=hidden)


def test_seeded_gives_the_weights_of_a_run_and_leaves_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    made = seeded(MLP, input_shape=(1, 8, 8), num_classes=10, seed=3)(2)
    assert torch.equal(torch.get_rng_state(), before)
    with rng.as_global(rng.fork(3, "network", 2)):
        expected = MLP(input_shape=(1, 8, 8), num_classes=10)
    for name, weights in expected.state_dict().items():
        assert torch.equal(made.state_dict()[name], weights)
