"""Residual networks for small images: 3x3 stem, stride 1, no max-pool.

A depth of the family is a block type and the number of blocks per stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor, nn

from driftwise.errors import UserError
from driftwise.models.layers import BatchNorm2d


@dataclass(frozen=True, kw_only=True)
class ResNetOptions:
    """What can be chosen about the network."""

    width: int = 64
    """maps of the stem; the stages have 1, 2, 4 and 8 times as many (bottlenecks 4 times that)"""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UserError(f"the network's width must be at least 1; got {self.width}")


class ResidualBlock(nn.Module):
    """relu(residual(x) + shortcut(x)); a subclass defines the residual.

    The block reads `channels_in` maps and writes `channels * expansion`.

    >>> import torch
    >>> class Linear(ResidualBlock):
    ...     expansion = 1
    ...
    ...     @staticmethod
    ...     def make_residual(channels_in, channels, stride):
    ...         return nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride=stride))
    >>> Linear(channels_in=3, channels=8, stride=2)(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 8, 16, 16])
    """

    expansion: ClassVar[int]

    def __init__(self, *, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        channels_out = channels * self.expansion
        self.residual = self.make_residual(channels_in, channels, stride)
        changes_shape = stride != 1 or channels_in != channels_out
        self.shortcut: nn.Module = (
            nn.Sequential(*conv_norm(channels_in, channels_out, kernel=1, stride=stride))
            if changes_shape
            else nn.Identity()
        )

    @staticmethod
    def make_residual(channels_in: int, channels: int, stride: int) -> nn.Sequential:
        """The layers beside the shortcut, ending in a batch norm without ReLU."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """(samples, channels_in, h, w) -> (samples, channels * expansion, h / stride, w / stride)."""
        return F.relu(self.residual(x) + self.shortcut(x))


class BasicBlock(ResidualBlock):
    """Two 3x3 convolutions, the first one strided.

    >>> import torch
    >>> block = BasicBlock(channels_in=4, channels=8, stride=2)
    >>> block(torch.zeros(1, 4, 8, 8)).shape[2:]
    torch.Size([4, 4])
    """

    expansion = 1

    @staticmethod
    def make_residual(channels_in: int, channels: int, stride: int) -> nn.Sequential:
        """conv-norm-ReLU-conv-norm."""
        return nn.Sequential(
            *conv_norm(channels_in, channels, kernel=3, stride=stride),
            nn.ReLU(),
            *conv_norm(channels, channels, kernel=3),
        )


class Bottleneck(ResidualBlock):
    """A 3x3 convolution, strided, between two 1x1 that narrow its maps and widen them again.

    >>> import torch
    >>> block = Bottleneck(channels_in=4, channels=8, stride=2)
    >>> block(torch.zeros(1, 4, 8, 8)).shape[2:]
    torch.Size([4, 4])
    """

    expansion = 4

    @staticmethod
    def make_residual(channels_in: int, channels: int, stride: int) -> nn.Sequential:
        """conv-norm-ReLU-conv-norm-ReLU-conv-norm."""
        return nn.Sequential(
            *conv_norm(channels_in, channels, kernel=1),
            nn.ReLU(),
            *conv_norm(channels, channels, kernel=3, stride=stride),
            nn.ReLU(),
            *conv_norm(channels, channels * Bottleneck.expansion, kernel=1),
        )


class ResNet(nn.Module):
    """Stem, stages of doubling width (each but the first halves the image), average, head.

    A member of the family defines its block, and how many each stage has.

    >>> import torch
    >>> network = ResNet18(input_shape=(3, 32, 32), num_classes=10, width=8)
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    block: ClassVar[type[ResidualBlock]]
    depths: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        *,
        input_shape: tuple[int, int, int],
        num_classes: int = 10,
        width: int = ResNetOptions.width,
    ) -> None:
        super().__init__()
        channels, _, _ = input_shape
        self.stem = nn.Sequential(*conv_norm(channels, width, kernel=3), nn.ReLU())
        self.stages = nn.Sequential()
        channels_in = width
        for number, depth in enumerate(self.depths):
            stage = nn.Sequential()
            for position in range(depth):
                stride = 2 if number > 0 and position == 0 else 1
                channels = width * 2**number
                stage.append(self.block(channels_in=channels_in, channels=channels, stride=stride))
                channels_in = channels * self.block.expansion
            self.stages.append(stage)
        self.head = nn.Linear(channels_in, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head reads, (samples, channels, height, width) -> (samples, width of last stage)."""
        maps: Tensor = self.stages(self.stem(x))
        return maps.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (samples, channels, height, width) -> (samples, num_classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


class ResNet18(ResNet):
    """Basic blocks, two in each of four stages.

    >>> sum(p.numel() for p in ResNet18(input_shape=(3, 32, 32)).parameters())
    11173962
    """

    block = BasicBlock
    depths = (2, 2, 2, 2)


class ResNet152(ResNet):
    """Bottleneck blocks: 3, 8, 36 and 3 in the four stages.

    >>> sum(p.numel() for p in ResNet152(input_shape=(3, 32, 32)).parameters())
    58156618
    """

    block = Bottleneck
    depths = (3, 8, 36, 3)


def conv_norm(
    channels_in: int, channels_out: int, *, kernel: int, stride: int = 1
) -> tuple[nn.Module, nn.Module]:
    """A convolution that keeps the size (at stride 1), and its batch norm."""
    # No bias: the batch norm would subtract it again.
    conv = nn.Conv2d(
        channels_in, channels_out, kernel, stride=stride, padding=kernel // 2, bias=False
    )
    return conv, BatchNorm2d(channels_out)
