"""A network behind what its input needs: grey repeated to colour, mean and spread taken out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Prepared(nn.Module):
    """What it was prepared with is saved with the weights, so a loaded network sees the same.

    >>> Prepared(nn.Flatten(), channels=3)(torch.zeros(2, 1, 4, 4)).shape
    torch.Size([2, 48])
    >>> Prepared(nn.Identity(), channels=2, mean=[5, 0], std=[1, 10])(torch.full((1, 2), 5.0))
    tensor([[0.0000, 0.5000]])
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        channels: int,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
    ) -> None:
        """`mean` and `std`: one number per channel of the data, or one for all."""
        super().__init__()
        self.network = network
        self._channels = channels
        self.register_buffer("mean", torch.tensor(mean)[:, None, None])
        self.register_buffer("std", torch.tensor(std)[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (rows, channels of the data, height, width) -> (rows, classes)."""
        logits: Tensor = self.network(self._prepare(x))
        return logits

    def features(self, x: Tensor) -> Tensor:
        """What the network's head reads."""
        features: Tensor = self.network.features(self._prepare(x))  # type: ignore[operator]
        return features

    def _prepare(self, x: Tensor) -> Tensor:
        if x.ndim == 2:  # vectors: a number for each of their features
            return (x - self.mean.flatten()) / self.std.flatten()
        normal = (x - self.mean) / self.std
        return normal.expand(-1, self._channels, -1, -1) if x.shape[1] == 1 else normal
