"""What turns pictures into the logits and features that a test compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from recollect import rng
from recollect.models.cnn import SmallCNN
from recollect.models.encode import encode_all
from recollect.models.inputs import to_input
from recollect.models.mlp import MLP
from recollect.types import Encoding


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What an encoder is given to work with."""

    learner: Callable[[Tensor], Encoding]
    """the learner's own network, asked without changing it"""
    image_shape: tuple[int, ...]
    """(height, width, channels)"""
    seed: int


class Encodes(Protocol):
    """Anything that encodes pictures without changing by it."""

    def encode(self, images: Tensor) -> Encoding:
        """(rows, height, width, channels) -> logits and features, on the CPU, no gradients."""
        ...


class Encoder(Encodes, Protocol):
    """A part of the catalogue, made from `Surroundings`."""

    name: str
    """what it is, exactly: encodings of another one cannot be compared"""
    fixed: ClassVar[bool]
    """whether it never learns: only then may rows that the learner trained on be a reference"""
    networks: Sequence[nn.Module]
    """networks of its own, whose FLOPs are to be counted"""


class LearnerEncoder:
    """The learner's own network as it stands when a check is made."""

    fixed: ClassVar[bool] = False

    def __init__(self, surroundings: Surroundings) -> None:
        self.name = "learner"
        self.networks: Sequence[nn.Module] = ()
        self.encode = surroundings.learner


class RandomEncoder:
    """A small network that is never trained: fixed by its seed; with convolutions for pictures."""

    fixed: ClassVar[bool] = True

    def __init__(self, surroundings: Surroundings, *, outputs: int = 32, width: int = 32) -> None:
        *height_and_width, channels = surroundings.image_shape
        self._network: nn.Module
        with rng.as_global(rng.fork(surroundings.seed, "random-encoder")):
            if height_and_width:
                height, wide = height_and_width
                shape = (channels, height, wide)
                self._network = SmallCNN(input_shape=shape, num_classes=outputs, width=width)
            else:
                flat, hidden = (1, 1, channels), (4 * width,)
                self._network = MLP(input_shape=flat, num_classes=outputs, hidden=hidden)
        self._network.eval().requires_grad_(False)
        size = "x".join(map(str, surroundings.image_shape))
        self.name = f"random {size} {outputs} {width} seed {surroundings.seed}"
        self.networks: Sequence[nn.Module] = (self._network,)

    def encode(self, images: Tensor) -> Encoding:
        """(rows, height, width, channels) -> logits (rows, outputs), features (rows, 4 width)."""
        return encode_all(self._network, [to_input(part) for part in torch.split(images, 512)])
