"""Where the weights of ImageNet's ResNet-18 are: on this machine, or on the hub."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from driftwise.encoders.base import Encoder, EncoderContext
from driftwise.encoders.identity import IdentityEncoder
from driftwise.encoders.pretrained import EfficientNetEncoder, ResNet18Encoder, is_installed
from driftwise.encoders.random_network import RandomEncoder
from driftwise.errors import UserError
from driftwise.paths import candidates, environment, locate

FILE = "resnet18.safetensors"
VARIABLE = "DRIFTWISE_RESNET18"
HUB = ("timm/resnet18.tv_in1k", "model.safetensors")
"""torchvision's weights; the repository, and the file in it"""
PATIENCE = 2.0
"""seconds to wait for a sign of the network: without one, the hub's client takes 23 to give up"""


class ResNet18ImageNetEncoder(ResNet18Encoder):
    """ResNet-18 as trained on ImageNet, its weights found where data are, or on the hub."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context, weights=find_resnet18())


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
    if (weights := resnet18_at_hand() or _cached_by_hub()) is not None:
        return ResNet18Encoder(context, weights=weights)
    return RandomEncoder(context)


def find_resnet18() -> Path:
    """The file that the variable names, the first one in a data folder, or the hub's."""
    if (found := resnet18_at_hand()) is not None:
        return found
    try:
        return _from_hub()
    except _Absent as absence:
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


_ALTERNATIVES = "use the encoder efficientnet or random"


class _Absent(Exception):
    """Why the hub did not give the file."""


def _cached_by_hub() -> Path | None:
    """The hub's file, where it has been fetched before."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None
    cached = hub.try_to_load_from_cache(*HUB)
    return Path(cached) if isinstance(cached, str) else None


def _from_hub() -> Path:
    """The hub's file, from its cache on this machine or over the network."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise _Absent("huggingface_hub is not installed") from error
    if (cached := _cached_by_hub()) is not None:
        return cached
    if not _answers(*_first_hop()):
        raise _Absent("no network")
    try:
        return Path(hub.hf_hub_download(*HUB))
    except Exception as error:  # of whichever library the client speaks HTTP with
        raise _Absent(" ".join(str(error).split()) or type(error).__name__) from error


def _first_hop() -> tuple[str, int]:
    """Host and port that a request to the hub goes to first: a proxy's, or its own."""
    hub = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    address = urlsplit(getproxies().get("https") or hub)
    return address.hostname or "", address.port or (80 if address.scheme == "http" else 443)


def _answers(host: str, port: int) -> bool:
    """Whether anybody takes a connection there within our patience."""
    answered = threading.Event()

    def connect() -> None:
        with contextlib.suppress(OSError):
            socket.create_connection((host, port), timeout=PATIENCE).close()
            answered.set()

    # In a thread: looking up a name may take long, and no timeout reaches it.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return answered.is_set()
