"""Encoders: images to the logits and features that a test compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

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
