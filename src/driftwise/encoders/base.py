"""What an encoder is, and what it is given: samples to logits and features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
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


RawSamples: TypeAlias = "Tensor | np.ndarray | Sequence[str]"
"""uint8 images (samples, height, width, channels), float vectors (samples, features), or texts"""


class Encodes(Protocol):
    """Anything that encodes samples without changing by it."""

    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits and features, on the CPU, no gradients."""
        ...


class Encoder(Encodes, Protocol):
    """A part of the catalogue, made from `EncoderContext`.

    It may also have an `identity`, a digest of weights and preprocessing: only then are features kept
    on disk.
    """

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
