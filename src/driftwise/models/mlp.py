"""A multi-layer perceptron over the flattened input."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from torch import Tensor, nn

from driftwise.errors import UserError


@dataclass(frozen=True, kw_only=True)
class MLPOptions:
    """What can be chosen about the network."""

    hidden: tuple[int, ...] = (100, 100)
    """sizes of the hidden layers"""

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise UserError(f"the hidden layers need at least 1 unit each; got {self.hidden}")


class MLP(nn.Module):
    """Linear-ReLU layers and a linear head.

    >>> MLP(input_shape=(1, 8, 8), num_classes=10).head
    Linear(in_features=100, out_features=10, bias=True)
    """

    def __init__(
        self,
        *,
        input_shape: tuple[int, int, int],
        num_classes: int = 10,
        hidden: tuple[int, ...] = MLPOptions.hidden,
    ) -> None:
        super().__init__()
        sizes = (math.prod(input_shape), *hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(sizes[-1], num_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head reads, (samples, channels, height, width) -> (samples, hidden[-1])."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (samples, channels, height, width) -> (samples, num_classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits
