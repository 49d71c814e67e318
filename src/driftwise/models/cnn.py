"""A small convolutional network, for images from 8x8 up."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from driftwise.errors import UserError
from driftwise.models.layers import BatchNorm2d


@dataclass(frozen=True, kw_only=True)
class CNNOptions:
    """What can be chosen about the network."""

    width: int = 16
    """maps of the first convolution"""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UserError(f"the network's width must be at least 1; got {self.width}")


class SmallCNN(nn.Module):
    """Three 3x3 convolutions (width, 2 width, 4 width), the last two halving the image.

    >>> SmallCNN(input_shape=(1, 8, 8), num_classes=10).head
    Linear(in_features=64, out_features=10, bias=True)
    """

    def __init__(
        self,
        *,
        input_shape: tuple[int, int, int],
        num_classes: int = 10,
        width: int = CNNOptions.width,
    ) -> None:
        super().__init__()
        channels, _, _ = input_shape
        # Padded strides rather than pooling: they also take an image of a single pixel.
        self.body = nn.Sequential(
            *_conv_norm_relu(channels, width, stride=1),
            *_conv_norm_relu(width, 2 * width, stride=2),
            *_conv_norm_relu(2 * width, 4 * width, stride=2),
        )
        self.head = nn.Linear(4 * width, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head reads, (samples, channels, height, width) -> (samples, 4 width)."""
        maps: Tensor = self.body(x)
        return maps.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (samples, channels, height, width) -> (samples, num_classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits


def _conv_norm_relu(channels_in: int, channels_out: int, *, stride: int) -> list[nn.Module]:
    # No bias: the batch norm that follows would subtract it again.
    conv = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
    return [conv, BatchNorm2d(channels_out), nn.ReLU()]
