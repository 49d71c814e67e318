"""Networks: floats (rows, channels, height, width) in, logits (rows, num_classes) out.

Every network has `features(x) -> (rows, d)`, what its linear `head` reads, and
`forward(x) = head(features(x))`. Layers start from PyTorch's own initialisation, drawn from the
global state: build inside `rng.as_global` to say from which generator.
"""

from recollect.models.cnn import SmallCNN
from recollect.models.mlp import MLP
from recollect.models.resnet import BasicBlock, ResidualBlock, ResNet, ResNet18

__all__ = ["MLP", "BasicBlock", "ResNet", "ResNet18", "ResidualBlock", "SmallCNN"]
