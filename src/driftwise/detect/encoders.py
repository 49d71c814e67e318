"""Encoders: images to the logits and features that a test compares."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.errors import UserError
from driftwise.models.cnn import SmallCNN
from driftwise.models.head import encode_all, find_head, has_features
from driftwise.models.imagenet_resnet import digest_of
from driftwise.models.inputs import to_input
from driftwise.models.mlp import MLP
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


class OwnEncoder:
    """A user's network or function: floats (samples, channels, height, width) in, (samples, d) out.

    Features are the inputs of a network's head, or else the outputs.
    """

    fixed: ClassVar[bool] = True

    def __init__(self, network: nn.Module | Callable[[Tensor], Any]) -> None:
        kind = type(network) if isinstance(network, nn.Module) else network
        self.name = f"{kind.__module__}.{getattr(kind, '__qualname__', type(kind).__qualname__)}"
        self.networks: Sequence[nn.Module] = ()
        self._call: Callable[[Tensor], Any] = network
        if isinstance(network, nn.Module):
            network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
            self.name += f" {digest_of(network)}"
            self.networks = (network,)
            self._call = network
        self._searched = False

    @torch.no_grad()
    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits and features."""
        parts = [to_input(part) for part in torch.split(images, 512)]
        for network in self.networks:
            if not self._searched:
                find_head(network, parts[0][:2])
                self._searched = True
            if has_features(network):
                return encode_all(network, parts)
        outputs = torch.cat([self._outputs(part) for part in parts])
        return Encoding(logits=outputs, features=outputs)

    def _outputs(self, part: Tensor) -> Tensor:
        found = self._call(part)
        if isinstance(found, np.ndarray):
            found = torch.from_numpy(found)
        if not isinstance(found, Tensor) or not found.ndim or len(found) != len(part):
            came = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise UserError(
                f"the encoder {self.name} must turn {len(part)} images (samples, channels, height,"
                f" width) into an array ({len(part)}, d); got {came}"
            )
        return found.detach().cpu().float().reshape(len(part), -1)


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


class RandomEncoder:
    """A small network that is never trained: fixed by its seed; with convolutions for images."""

    fixed: ClassVar[bool] = True
    blind_to: str = (
        "a random network sees brightness, colour and coarse patterns, hardly what an image shows:"
        " other objects among a class's own may pass for the same; pip install"
        " 'driftwise[imagenet]' brings an encoder that sees them"
    )

    def __init__(self, context: EncoderContext, *, outputs: int = 32, width: int = 32) -> None:
        *height_and_width, channels = context.image_shape
        self._network: nn.Module
        with rng.as_global(rng.fork(context.seed, "random-encoder")):
            if height_and_width:
                height, wide = height_and_width
                shape = (channels, height, wide)
                self._network = SmallCNN(input_shape=shape, num_classes=outputs, width=width)
            else:
                self.blind_to = (
                    "a random network mixes all features: drift in a few of many may escape it"
                )
                flat, hidden = (1, 1, channels), (4 * width,)
                self._network = MLP(input_shape=flat, num_classes=outputs, hidden=hidden)
        self._network.eval().requires_grad_(False)
        size = "x".join(map(str, context.image_shape))
        self.name = f"random {size} {outputs} {width} seed {context.seed}"
        self.networks: Sequence[nn.Module] = (self._network,)

    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits (samples, outputs), features (samples, 4 width)."""
        return encode_all(self._network, [to_input(part) for part in torch.split(images, 512)])
