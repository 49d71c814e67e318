"""What turns pictures into the logits that a test compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from recollect import rng
from recollect.models.cnn import SmallCNN
from recollect.models.inputs import to_input


class Encoder(Protocol):
    """Anything that gives logits to pictures without changing by it."""

    fixed: bool
    """whether it never learns: only then may rows that the learner trained on be a reference"""

    def logits(self, images: Tensor) -> Tensor:
        """(rows, height, width, channels) -> (rows, outputs), on the CPU, without gradients."""
        ...


class LearnerEncoder:
    """The learner's own network as it stands when a check is made."""

    fixed = False

    def __init__(self, logits: Callable[[Tensor], Tensor]) -> None:
        self.logits = logits


class RandomEncoder:
    """A small convolutional network that is never trained: fixed by its seed."""

    fixed = True

    def __init__(
        self, image_shape: tuple[int, ...], *, outputs: int = 32, width: int = 32, seed: int
    ) -> None:
        height, wide, channels = image_shape
        with rng.as_global(rng.fork(seed, "random-encoder")):
            self.network: nn.Module = SmallCNN(
                input_shape=(channels, height, wide), num_classes=outputs, width=width
            )
        self.network.eval().requires_grad_(False)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """(rows, height, width, channels) -> (rows, outputs)."""
        return torch.cat([self.network(to_input(part)) for part in torch.split(images, 512)])
