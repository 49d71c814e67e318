"""MobileNetV2 as it was trained on ImageNet; layers are named as in torchvision's file."""

from __future__ import annotations

from torch import Tensor, nn

BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""expansion, channels, repeats, stride of the first (Sandler et al., 2018, table 2)"""


class MobileNetV2(nn.Module):
    """3.5 million weights; 1,280 features and 1,000 classes.

    >>> import torch
    >>> with torch.device("meta"):
    ...     network = MobileNetV2()
    >>> sum(p.numel() for p in network.parameters())
    3504872
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv(3, 32, kernel=3, stride=2)]
        channels = 32
        for expansion, outputs, repeats, stride in BLOCKS:
            for number in range(repeats):
                step = stride if number == 0 else 1
                layers.append(InvertedResidual(channels, outputs, expansion=expansion, stride=step))
                channels = outputs
        layers.append(_conv(channels, 1280))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (samples, 3, height, width) -> (samples, 1000)."""
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


class InvertedResidual(nn.Module):
    """Widened, filtered channel by channel, narrowed; added to its input where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        widened = [_conv(inputs, hidden)] if expansion > 1 else []
        self.conv = nn.Sequential(
            *widened,
            _conv(hidden, hidden, kernel=3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self._is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(samples, inputs, height, width) -> (samples, outputs, height / stride, width / stride)."""
        made: Tensor = self.conv(x)
        return x + made if self._is_residual else made


def _conv(
    inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )
