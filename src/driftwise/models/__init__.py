"""Networks: floats (samples, channels, height, width) in, logits (samples, num_classes) out.

Every network has `features(x) -> (samples, d)`, what its linear `head` reads, and
`forward(x) = head(features(x))`. First weights (PyTorch's own initialisation, but for `ViT`) and
dropout are drawn from the global state: build and train inside `rng.as_global` to say from which
generator.
"""

from driftwise.models.cnn import SmallCNN
from driftwise.models.mlp import MLP
from driftwise.models.norm import BatchNorm1d, BatchNorm2d
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
]
