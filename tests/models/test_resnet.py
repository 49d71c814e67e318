"""The residual networks against the published tables, written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_models import layers, make_images, num_parameters
from torch import Tensor, nn

from driftwise.models import BasicBlock, Bottleneck, ResidualBlock, ResNet, ResNet18, ResNet152

Layer = tuple[str, tuple[int, ...], int]
"""kind, output shape of one sample, parameters"""


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


# --- shapes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "shape"), [(ResNet18, (1, 28, 28)), (ResNet18, (3, 64, 64)), (ResNet152, (1, 8, 8))]
)
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


# --- the family ---------------------------------------------------------------------------------


def stages(network: ResNet) -> list[tuple[int, nn.Sequential]]:
    found = [stage for stage in network.stages.eval() if isinstance(stage, nn.Sequential)]
    return list(enumerate(found))


def test_a_block_type_and_depths_make_the_other_depths_of_the_family() -> None:
    class ResNet50(ResNet):
        block = Bottleneck
        depths = (3, 4, 6, 3)

    with torch.device("meta"):
        resnet50 = ResNet50(input_shape=(3, 32, 32))
    assert num_parameters(resnet50) == 23_520_842
