"""A network whose input is normalised first, and grey images repeated to colour."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Prepared(nn.Module):
    """Normalises its input by `mean` and `std`, which are saved with the weights.

    A grey image is repeated over `channels`.

    >>> Prepared(nn.Flatten(), channels=3)(torch.zeros(2, 1, 4, 4)).shape
    torch.Size([2, 48])
    >>> mean, std = torch.tensor([5.0, 0.0]), torch.tensor([1.0, 10.0])
    >>> Prepared(nn.Identity(), channels=2, mean=mean, std=std)(torch.full((1, 2), 5.0))
    tensor([[0.0000, 0.5000]])
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        channels: int,
        mean: Tensor | None = None,
        std: Tensor | None = None,
        limit: float | None = None,
    ) -> None:
        """`mean` and `std`: (channels, 1, 1) for images, (features,) for vectors.

        `limit`: what is further from the mean counts as so many deviations.
        """
        super().__init__()
        self.network = network
        self._channels = channels
        self._limit = limit
        self.register_buffer("mean", torch.zeros(1, 1, 1) if mean is None else mean.clone())
        self.register_buffer("std", torch.ones(1, 1, 1) if std is None else std.clone())

    @torch.no_grad()
    def scale_by(self, mean: Tensor, std: Tensor) -> None:
        """Normalise by these from now on."""
        self.mean.copy_(mean)
        self.std.copy_(std)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (samples, ...) as the data come -> (samples, classes)."""
        logits: Tensor = self.network(self._prepare(x))
        return logits

    def _prepare(self, x: Tensor) -> Tensor:
        # Vectors have a number for each of their features.
        mean, std = (
            (self.mean.flatten(), self.std.flatten()) if x.ndim == 2 else (self.mean, self.std)
        )
        normal = (x - mean) / std
        if self._limit is not None:
            normal = normal.clamp(-self._limit, self._limit)
        is_grey = x.ndim == 4 and x.shape[1] == 1
        return normal.expand(-1, self._channels, -1, -1) if is_grey else normal
