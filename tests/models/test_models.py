from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from recollect import rng
from recollect.errors import UserError
from recollect.models import MLP, BasicBlock, ResidualBlock, ResNet, ResNet18, SmallCNN
from recollect.models.cnn import CNNOptions
from recollect.models.mlp import MLPOptions
from recollect.models.resnet import ResNetOptions, conv_norm


class Network(Protocol):
    """What every test below relies on."""

    head: nn.Linear

    def features(self, x: Tensor) -> Tensor: ...
    def __call__(self, x: Tensor) -> Tensor: ...
    def eval(self) -> nn.Module: ...
    def state_dict(self) -> dict[str, Tensor]: ...


Build = Callable[[tuple[int, int, int]], Network]

NETWORKS: dict[str, Build] = {
    "mlp": lambda shape: MLP(input_shape=shape, num_classes=7, hidden=(12, 9)),
    "cnn": lambda shape: SmallCNN(input_shape=shape, num_classes=7, width=4),
    "resnet": lambda shape: ResNet18(input_shape=shape, num_classes=7, width=4),
}


@pytest.fixture(params=NETWORKS)
def build(request: pytest.FixtureRequest) -> Build:
    return NETWORKS[request.param]


def pictures(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=rng.fork(0, "pictures"))


def num_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def layers(network: nn.Module, shape: tuple[int, ...]) -> list[tuple[str, tuple[int, ...], int]]:
    """(kind, output shape of one row, parameters) of every leaf layer, in the order they run."""
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
def test_every_network_gives_one_logit_per_row_and_class(
    build: Build, shape: tuple[int, int, int]
) -> None:
    assert build(shape)(pictures(5, *shape)).shape == (5, 7)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pictures_of_a_few_pixels_are_taken_too(build: Build, size: int) -> None:
    network = build((3, size, size))
    network.eval()
    assert network(pictures(2, 3, size, size)).shape == (2, 7)


def test_the_logits_are_the_head_over_the_features(build: Build) -> None:
    network = build((3, 8, 8))
    network.eval()
    x = pictures(4, 3, 8, 8)
    features = network.features(x)
    assert features.shape == (4, network.head.in_features)
    torch.testing.assert_close(network(x), features @ network.head.weight.T + network.head.bias)


def test_in_eval_mode_a_row_is_judged_by_itself(build: Build) -> None:
    network = build((1, 8, 8))
    network.eval()
    x = pictures(6, 1, 8, 8)
    alone = torch.cat([network(row[None]) for row in x])
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
    torch.autograd.backward(F.cross_entropy(network(pictures(4, 3, 8, 8)), torch.arange(4)))
    without = [name for name, p in network.named_parameters() if p.grad is None]
    assert without == []


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


def test_mlp_without_hidden_layers_is_a_linear_model_of_the_pixels() -> None:
    network = MLP(input_shape=(2, 3, 4), num_classes=5, hidden=())
    x = pictures(6, 2, 3, 4)
    assert torch.equal(network.features(x), x.reshape(6, 24))
    assert num_parameters(network) == 24 * 5 + 5


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


# --- resnet -------------------------------------------------------------------------------------


def test_resnet18_is_the_published_network() -> None:
    network = ResNet18(input_shape=(3, 32, 32), num_classes=10)
    assert num_parameters(network) == 11_173_962
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.eval()(torch.zeros(1, 3, 32, 32))
    stem, first_stage, each_later_stage, head = 1_769_472, 150_994_944, 134_217_728, 5_120
    multiply_accumulates = stem + first_stage + 3 * each_later_stage + head
    assert counter.get_total_flops() == 2 * multiply_accumulates == 1_110_845_440


def test_resnet18_layer_by_layer() -> None:
    def block(channels_in: int, channels: int, size: int) -> list[tuple[str, tuple[int, ...], int]]:
        maps = (channels, size, size)
        residual = [
            ("Conv2d", maps, channels_in * channels * 9),
            ("BatchNorm2d", maps, 2 * channels),
            ("ReLU", maps, 0),
            ("Conv2d", maps, channels * channels * 9),
            ("BatchNorm2d", maps, 2 * channels),
        ]
        if channels_in == channels:
            return [*residual, ("Identity", maps, 0)]
        return [
            *residual,
            ("Conv2d", maps, channels_in * channels),
            ("BatchNorm2d", maps, 2 * channels),
        ]

    assert layers(ResNet18(input_shape=(3, 32, 32), num_classes=10), (3, 32, 32)) == [
        ("Conv2d", (64, 32, 32), 1_728),
        ("BatchNorm2d", (64, 32, 32), 128),
        ("ReLU", (64, 32, 32), 0),
        *block(64, 64, 32),
        *block(64, 64, 32),
        *block(64, 128, 16),
        *block(128, 128, 16),
        *block(128, 256, 8),
        *block(256, 256, 8),
        *block(256, 512, 4),
        *block(512, 512, 4),
        ("Linear", (10,), 5_130),
    ]


@pytest.mark.parametrize("stride", [1, 2])
def test_a_basic_block_is_its_formula(stride: int) -> None:
    block = BasicBlock(channels_in=3, channels=5, stride=stride).double().train()
    x = pictures(4, 3, 6, 6).double()

    def norm(maps: Tensor) -> Tensor:
        mean = maps.mean(dim=(0, 2, 3), keepdim=True)
        variance = maps.var(dim=(0, 2, 3), keepdim=True, unbiased=False)
        return (maps - mean) / torch.sqrt(variance + 1e-5)

    weights = {name: p for name, p in block.named_parameters() if p.ndim == 4}
    first, second, across = weights.values()
    inner = norm(F.conv2d(x, first, stride=stride, padding=1)).clamp(min=0)
    outer = norm(F.conv2d(inner, second, padding=1))
    shortcut = norm(F.conv2d(x, across, stride=stride))
    torch.testing.assert_close(block(x), (outer + shortcut).clamp(min=0))


def test_the_width_scales_every_stage() -> None:
    narrow = ResNet18(input_shape=(1, 8, 8), num_classes=10, width=8)
    assert narrow.head.in_features == 64
    assert [stage[-1](torch.zeros(1, 8 * 2**i, 4, 4)).shape[1] for i, stage in stages(narrow)] == [
        8,
        16,
        32,
        64,
    ]
    # The weights of a 3x3 convolution between two scaled widths grow with the square.
    wide = ResNet18(input_shape=(1, 8, 8), num_classes=10, width=16)
    conv = "stages.3.1.residual.0.weight"
    assert wide.state_dict()[conv].numel() == 4 * narrow.state_dict()[conv].numel()


def stages(network: ResNet) -> list[tuple[int, nn.Sequential]]:
    found = [stage for stage in network.stages.eval() if isinstance(stage, nn.Sequential)]
    return list(enumerate(found))


def test_grey_pictures_change_the_stem_alone() -> None:
    colour = ResNet18(input_shape=(3, 8, 8), width=4).state_dict()
    grey = ResNet18(input_shape=(1, 8, 8), width=4).state_dict()
    differing = [key for key in colour if colour[key].shape != grey[key].shape]
    assert differing == ["stem.0.weight"]


class Bottleneck(ResidualBlock):
    """1x1, 3x3 (strided), 1x1 to four times the channels: a block the family does not know yet."""

    expansion = 4

    @staticmethod
    def make_residual(channels_in: int, channels: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            *conv_norm(channels_in, channels, kernel=1),
            nn.ReLU(),
            *conv_norm(channels, channels, kernel=3, stride=stride),
            nn.ReLU(),
            *conv_norm(channels, 4 * channels, kernel=1),
        )


@pytest.mark.parametrize(
    ("depths", "expected"),
    [((3, 4, 6, 3), 23_520_842), ((3, 8, 36, 3), 58_156_618)],
    ids=["resnet50", "resnet152"],
)
def test_a_new_block_type_and_depths_make_the_deeper_networks(
    depths: tuple[int, ...], expected: int
) -> None:
    deep = functools.partial(ResNet, input_shape=(3, 32, 32), num_classes=10, width=64)
    with torch.device("meta"):
        network = deep(block=Bottleneck, depths=depths)
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert num_parameters(network) == expected


@pytest.mark.parametrize("make", [lambda: CNNOptions(width=0), lambda: ResNetOptions(width=-1)])
def test_a_network_without_width_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UserError, match="width must be at least 1"):
        make()


@pytest.mark.parametrize("hidden", [(), (0,), (8, -1)])
def test_a_layer_without_units_is_refused(hidden: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="at least 1 unit each"):
        MLPOptions(hidden=hidden)
