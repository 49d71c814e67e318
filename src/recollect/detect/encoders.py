"""What turns pictures into the logits that a test compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from recollect import rng
from recollect.models.cnn import SmallCNN
from recollect.models.inputs import to_input


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What an encoder is given to work with."""

    learner_logits: Callable[[Tensor], Tensor]
    """the learner's own network, asked without changing it"""
    image_shape: tuple[int, ...]
    """(height, width, channels)"""
    seed: int


class GivesLogits(Protocol):
    """Anything that gives logits to pictures without changing by it."""

    def logits(self, images: Tensor) -> Tensor:
        """(rows, height, width, channels) -> (rows, outputs), on the CPU, without gradients."""
        ...


class Encoder(GivesLogits, Protocol):
    """A part of the catalogue, made from `Surroundings`."""

    fixed: ClassVar[bool]
    """whether it never learns: only then may rows that the learner trained on be a reference"""
    networks: Sequence[nn.Module]
    """networks of its own, whose FLOPs are to be counted"""


class LearnerEncoder:
    """The learner's own network as it stands when a check is made."""

    fixed: ClassVar[bool] = False

    def __init__(self, surroundings: Surroundings) -> None:
        self.networks: Sequence[nn.Module] = ()
        self.logits = surroundings.learner_logits


class RandomEncoder:
    """A small convolutional network that is never trained: fixed by its seed."""

    fixed: ClassVar[bool] = True

    def __init__(self, surroundings: Surroundings, *, outputs: int = 32, width: int = 32) -> None:
        height, wide, channels = surroundings.image_shape
        with rng.as_global(rng.fork(surroundings.seed, "random-encoder")):
            self._network = SmallCNN(
                input_shape=(channels, height, wide), num_classes=outputs, width=width
            )
        self._network.eval().requires_grad_(False)
        self.networks: Sequence[nn.Module] = (self._network,)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """(rows, height, width, channels) -> (rows, outputs)."""
        return torch.cat([self._network(to_input(part)) for part in torch.split(images, 512)])
