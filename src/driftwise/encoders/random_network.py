"""A network that is never trained as a fixed encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.encoders.base import EncoderContext, no_learner
from driftwise.encoders.digests import digest_of_text
from driftwise.models.cnn import SmallCNN
from driftwise.models.head import encode_all
from driftwise.models.imagenet_resnet import digest_of
from driftwise.models.inputs import to_input
from driftwise.models.mlp import MLP
from driftwise.types import Encoding


class AnyShapeRandomEncoder:
    """A random encoder for samples of any shape: one network for each shape that comes."""

    fixed: ClassVar[bool] = True

    def __init__(self, *, seed: int = 0, outputs: int = 32, width: int = 32) -> None:
        self.name = f"random {outputs} {width} seed {seed}"
        self.identity = digest_of_text(self.name)  # samples of another shape have another key
        self._options = {"outputs": outputs, "width": width}
        self._seed = seed
        self._made: dict[tuple[int, ...], RandomEncoder] = {}

    @property
    def networks(self) -> Sequence[nn.Module]:
        """Those made so far."""
        return [network for made in self._made.values() for network in made.networks]

    def encode(self, images: Tensor) -> Encoding:
        """(samples, ...) -> logits (samples, outputs), features (samples, 4 width)."""
        shape = tuple(images.shape[1:])
        if shape not in self._made:
            context = EncoderContext(learner=no_learner, image_shape=shape, seed=self._seed)
            self._made[shape] = RandomEncoder(context, **self._options)
        return self._made[shape].encode(images)


class RandomEncoder:
    """A small network that is never trained: fixed by its seed; with convolutions for images.

    >>> import torch
    >>> from driftwise.encoders import EncoderContext
    >>> context = EncoderContext(learner=no_learner, image_shape=(8, 8, 1), seed=0)
    >>> encoding = RandomEncoder(context).encode(torch.zeros(5, 8, 8, 1, dtype=torch.uint8))
    >>> encoding.logits.shape, encoding.features.shape
    (torch.Size([5, 32]), torch.Size([5, 128]))
    """

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
        self.identity = digest_of_text(self.name, digest_of(self._network))
        self.networks: Sequence[nn.Module] = (self._network,)

    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits (samples, outputs), features (samples, 4 width)."""
        return encode_all(self._network, [to_input(part) for part in torch.split(images, 512)])
