"""The residual networks against the published tables, written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_models import layers, make_images, num_parameters
from torch import Tensor, nn

from driftwise.metrics import per_sample
from driftwise.models import BasicBlock, Bottleneck, ResidualBlock, ResNet, ResNet18, ResNet152

Layer = tuple[str, tuple[int, ...], int]
"""kind, output shape of one sample, parameters"""

DEPTHS_152 = (3, 8, 36, 3)


# --- the published tables -----------------------------------------------------------------------


def conv(channels_in: int, channels: int, size: int, *, kernel: int) -> list[Layer]:
    """A convolution without bias and its batch norm."""
    maps = (channels, size, size)
    return [
        ("Conv2d", maps, channels_in * channels * kernel**2),
        ("BatchNorm2d", maps, 2 * channels),
    ]


def relu(channels: int, size: int) -> Layer:
    return ("ReLU", (channels, size, size), 0)


def shortcut(channels_in: int, channels: int, size: int) -> list[Layer]:
    if channels_in == channels:
        return [("Identity", (channels, size, size), 0)]
    return conv(channels_in, channels, size, kernel=1)


def test_resnet18_layer_by_layer() -> None:
    def block(channels_in: int, channels: int, size: int) -> list[Layer]:
        return [
            *conv(channels_in, channels, size, kernel=3),
            relu(channels, size),
            *conv(channels, channels, size, kernel=3),
            *shortcut(channels_in, channels, size),
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


def test_resnet152_layer_by_layer() -> None:
    def block(channels_in: int, channels: int, size_in: int, size: int) -> list[Layer]:
        return [
            *conv(channels_in, channels, size_in, kernel=1),
            relu(channels, size_in),
            *conv(channels, channels, size, kernel=3),
            relu(channels, size),
            *conv(channels, 4 * channels, size, kernel=1),
            *shortcut(channels_in, 4 * channels, size),
        ]

    # A quarter of the published width at a quarter of the size: the same table, sooner looked up.
    assert layers(ResNet152(input_shape=(3, 8, 8), width=16), (3, 8, 8)) == [
        *conv(3, 16, 8, kernel=3),
        relu(16, 8),
        *block(16, 16, 8, 8),
        *block(64, 16, 8, 8) * 2,
        *block(64, 32, 8, 4),
        *block(128, 32, 4, 4) * 7,
        *block(128, 64, 4, 2),
        *block(256, 64, 2, 2) * 35,
        *block(256, 128, 2, 1),
        *block(512, 128, 1, 1) * 2,
        ("Linear", (10,), 512 * 10 + 10),
    ]


# --- parameters and FLOPs -----------------------------------------------------------------------


def weights_of_stages(width: int) -> list[tuple[int, int]]:
    """(weights of the convolutions, channels normalised) of each stage of ResNet-152.

    A block that reads as many maps as it writes has 4nn + 9nn + 4nn weights for n narrow maps and
    normalises n + n + 4n channels. The first block of a stage reads 2n instead of 4n maps (n in the
    first stage) and has a shortcut to 4n.
    """
    stages = []
    for number, depth in enumerate(DEPTHS_152):
        n = width * 2**number
        read = n if number == 0 else 2 * n
        first = read * n + 13 * n * n + read * 4 * n
        stages.append((first + (depth - 1) * 17 * n * n, depth * 6 * n + 4 * n))
    return stages


def test_resnet18_is_the_published_network() -> None:
    network = ResNet18(input_shape=(3, 32, 32), num_classes=10)
    assert num_parameters(network) == 11_173_962
    stem, first_stage, each_later_stage, head = 1_769_472, 150_994_944, 134_217_728, 5_120
    multiply_accumulates = stem + first_stage + 3 * each_later_stage + head
    assert per_sample(network, (3, 32, 32)).forward == 2 * multiply_accumulates == 1_110_845_440


def test_resnet152_is_the_published_network() -> None:
    assert weights_of_stages(64) == [
        (212_992, 1_408),
        (2_326_528, 6_656),
        (40_501_248, 56_320),
        (14_942_208, 11_264),
    ]
    with torch.device("meta"):
        network = ResNet152(input_shape=(3, 32, 32), num_classes=10)
    found = [num_parameters(stage) for _, stage in stages(network)]
    assert found == [weights + 2 * channels for weights, channels in weights_of_stages(64)]
    stem, head = 27 * 64 + 2 * 64, 2048 * 10 + 10
    assert num_parameters(network) == stem + sum(found) + head == 58_156_618
    counted = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    across = 4  # shortcuts with a convolution, which the name does not count
    assert len(counted) - across == 152


def flops_of_resnet152(width: int, size: int) -> int:
    """Every weight multiplies and adds once per pixel of its output."""
    weights = 27 * width * size**2 + 32 * width * 10
    for number, (of_stage, _) in enumerate(weights_of_stages(width)):
        side = size // 2**number
        weights += of_stage * side**2
        if number > 0:
            # The first 1x1 of a stage works before the stride, on four times the pixels.
            narrow = width * 2**number
            weights += 2 * narrow * narrow * 3 * side**2
    return 2 * weights


def test_resnet152_costs_what_its_table_says() -> None:
    network = ResNet152(input_shape=(3, 32, 32), num_classes=10, width=4)
    assert per_sample(network, (3, 32, 32)).forward == flops_of_resnet152(width=4, size=32)
    assert flops_of_resnet152(width=64, size=32) == 7_444_275_200


@pytest.mark.parametrize("network", [ResNet18, ResNet152])
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 64, 64), (3, 224, 224)])
def test_the_shapes_of_the_stages(
    network: type[ResNet18] | type[ResNet152], shape: tuple[int, int, int]
) -> None:
    with torch.device("meta"):
        made = network(input_shape=shape, num_classes=7, width=2)
        maps = made.stem(torch.zeros(2, *shape))
        size = shape[1]
        assert maps.shape == (2, 2, size, size)
        expansion = 4 if network is ResNet152 else 1
        for number, stage in stages(made):
            maps = stage(maps)
            side = math.ceil(size / 2**number)
            assert maps.shape == (2, 2 * 2**number * expansion, side, side)
        assert made.head(maps.mean(dim=(2, 3))).shape == (2, 7)


# --- blocks -------------------------------------------------------------------------------------


def literal_norm(maps: Tensor) -> Tensor:
    mean = maps.mean(dim=(0, 2, 3), keepdim=True)
    variance = maps.var(dim=(0, 2, 3), keepdim=True, unbiased=False)
    return (maps - mean) / torch.sqrt(variance + 1e-5)


def kernels(block: ResidualBlock) -> list[Tensor]:
    return [parameter for parameter in block.parameters() if parameter.ndim == 4]


@pytest.mark.parametrize("stride", [1, 2])
def test_a_basic_block_is_its_formula(stride: int) -> None:
    block = BasicBlock(channels_in=3, channels=5, stride=stride).double().train()
    x = make_images(4, 3, 6, 6).double()
    first, second, across = kernels(block)
    inner = literal_norm(F.conv2d(x, first, stride=stride, padding=1)).clamp(min=0)
    outer = literal_norm(F.conv2d(inner, second, padding=1))
    beside = literal_norm(F.conv2d(x, across, stride=stride))
    torch.testing.assert_close(block(x), (outer + beside).clamp(min=0))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_bottleneck_is_its_formula(stride: int) -> None:
    block = Bottleneck(channels_in=3, channels=5, stride=stride).double().train()
    x = make_images(4, 3, 6, 6).double()
    narrow, middle, wide, across = kernels(block)
    assert wide.shape == (20, 5, 1, 1)
    inner = literal_norm(F.conv2d(x, narrow)).clamp(min=0)
    inner = literal_norm(F.conv2d(inner, middle, stride=stride, padding=1)).clamp(min=0)
    outer = literal_norm(F.conv2d(inner, wide))
    beside = literal_norm(F.conv2d(x, across, stride=stride))
    torch.testing.assert_close(block(x), (outer + beside).clamp(min=0))


def test_a_bottleneck_in_evaluation_uses_what_it_has_learned() -> None:
    block = Bottleneck(channels_in=20, channels=5, stride=1).double().train()
    x = make_images(4, 20, 6, 6).double()
    with torch.no_grad():
        for number, parameter in enumerate(block.parameters()):
            if parameter.ndim == 1:  # scales and shifts that are not those of the start
                parameter.copy_(torch.linspace(0.5, 1 + 0.1 * number, len(parameter)))
    block(x)
    norms = [layer for layer in block.modules() if isinstance(layer, nn.BatchNorm2d)]
    maps = x
    for kernel, norm, padding in zip(kernels(block), norms, (0, 1, 0), strict=True):
        maps = F.conv2d(maps.clamp(min=0) if maps is not x else x, kernel, padding=padding)
        maps = F.batch_norm(maps, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    torch.testing.assert_close(block.eval()(x), (maps + x).clamp(min=0))


# --- the family ---------------------------------------------------------------------------------


def stages(network: ResNet) -> list[tuple[int, nn.Sequential]]:
    found = [stage for stage in network.stages.eval() if isinstance(stage, nn.Sequential)]
    return list(enumerate(found))


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
    kernel = "stages.3.1.residual.0.weight"
    assert wide.state_dict()[kernel].numel() == 4 * narrow.state_dict()[kernel].numel()


@pytest.mark.parametrize("network", [ResNet18, ResNet152])
def test_grey_images_change_the_stem_alone(network: type[ResNet18] | type[ResNet152]) -> None:
    with torch.device("meta"):
        colour = network(input_shape=(3, 8, 8), width=4).state_dict()
        grey = network(input_shape=(1, 8, 8), width=4).state_dict()
    differing = [key for key in colour if colour[key].shape != grey[key].shape]
    assert differing == ["stem.0.weight"]


def test_a_block_type_and_depths_make_the_other_depths_of_the_family() -> None:
    class ResNet50(ResNet):
        block = Bottleneck
        depths = (3, 4, 6, 3)

    with torch.device("meta"):
        resnet50 = ResNet50(input_shape=(3, 32, 32))
    assert num_parameters(resnet50) == 23_520_842
