"""Encoders: images to the logits and features that a test compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from driftwise.types import Encoding


@dataclass(frozen=True, kw_only=True)
class EncoderContext:
    """What an encoder is given to work with."""

    learner: Callable[[Tensor], Encoding]
    """the learner's own network, which encoding does not change"""
    image_shape: tuple[int, ...]
    """(height, width, channels)"""
    seed: int


class Encodes(Protocol):
    """Anything that encodes images without changing by it."""

    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits and features, on the CPU, no gradients."""
        ...


class Encoder(Encodes, Protocol):
    """A part of the catalogue, made from `EncoderContext`."""

    name: str
    """what it is, exactly: encodings of another one cannot be compared"""
    fixed: ClassVar[bool]
    """whether it never learns: only then may samples that the learner trained on be a reference"""
    networks: Sequence[nn.Module]
    """networks of its own, whose FLOPs are to be counted"""


class LearnerEncoder:
    """The learner's own network as it stands when a check is made."""

    fixed: ClassVar[bool] = False

    def __init__(self, context: EncoderContext) -> None:
        self.name = "learner"
        self.networks: Sequence[nn.Module] = ()
        self.encode = context.learner


class Scaled:
    """An encoder of vectors, whose features are of any scale, after standardisation."""

    fixed: ClassVar[bool] = True

    def __init__(self, encoder: Encoder, mean: Tensor, std: Tensor) -> None:
        self.mean, self.std = mean, std
        self.name = f"{encoder.name} scaled"
        self.networks = encoder.networks
        self.blind_to: str | None = getattr(encoder, "blind_to", None)
        self._encoder = encoder

    @classmethod
    def by(cls, encoder: Encoder, vectors: Tensor) -> Scaled:
        """Scaled by the mean and spread of some vectors, (samples, features)."""
        std, mean = torch.std_mean(vectors.double(), dim=0, correction=0)
        # A feature that is always the same has no spread, on whatever scale it is.
        std[std <= 1e-6 * mean.abs()] = 1.0
        return cls(encoder, mean.float(), std.float())

    def encode(self, images: Tensor) -> Encoding:
        """(samples, features) -> logits and features."""
        return self._encoder.encode((images - self.mean) / self.std)
