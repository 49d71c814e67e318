"""Networks: floats (samples, channels, height, width) in, logits (samples, num_classes) out.

Every network has `features(x) -> (samples, d)`, what its linear `head` reads, and
`forward(x) = head(features(x))`. Initial weights and dropout are drawn from torch's global random
state: `seeded` initialises a network from a seed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from driftwise import rng
from driftwise.models.cnn import SmallCNN
from driftwise.models.layers import BatchNorm1d, BatchNorm2d
from driftwise.models.mlp import MLP
from driftwise.models.resnet import (
    BasicBlock,
    Bottleneck,
    ResidualBlock,
    ResNet,
    ResNet18,
    ResNet152,
)
from driftwise.models.vit import ViT, ViTSmall, ViTTiny

__all__ = [
    "MLP",
    "BasicBlock",
    "BatchNorm1d",
    "BatchNorm2d",
    "Bottleneck",
    "ResNet",
    "ResNet18",
    "ResNet152",
    "ResidualBlock",
    "SmallCNN",
    "ViT",
    "ViTSmall",
    "ViTTiny",
    "seeded",
]


def seeded(
    make: Callable[..., nn.Module], *args: Any, seed: int, **settings: Any
) -> Callable[[int], nn.Module]:
    """A function that makes `make(*args, **settings)` anew, with weights drawn from a seed.

    Args:
        make: a network class, or a function that returns a network.
        *args: its positional arguments.
        seed: what the weights are drawn from.
        **settings: its keyword arguments.

    Returns:
        A function of an attempt number. Equal numbers give equal weights; another number gives
        other weights, for learners that start from scratch. The global random state stays as it is.

    >>> make = seeded(MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> first, same, other = (make(attempt).head.weight for attempt in (0, 0, 1))
    >>> bool((first == same).all()), bool((first == other).all())
    (True, False)
    """

    def make_network(attempt: int) -> nn.Module:
        with rng.as_global(rng.fork(seed, "network", attempt)):
            return make(*args, **settings)

    return make_network
