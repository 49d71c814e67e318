"""ResNet-18 as it was trained on ImageNet, and its weights from a safetensors file.

Files name the layers as torchvision does (`layer1.0.conv1.weight`); here they are the blocks that
small images are learned with, behind another stem, and `published_name` translates the names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from driftwise.errors import UserError
from driftwise.files import reason
from driftwise.models.resnet import ResNet18, ResNetOptions, conv_norm


class ImageNetResNet18(ResNet18):
    """A 7x7 stem of stride 2 and a max-pool: the stages begin at a quarter of the image's size.

    >>> with torch.device("meta"):
    ...     network = ImageNetResNet18()
    >>> sum(p.numel() for p in network.parameters())
    11689512
    """

    def __init__(self, *, num_classes: int = 1000) -> None:
        super().__init__(input_shape=(3, 224, 224), num_classes=num_classes)
        self.stem = nn.Sequential(
            *conv_norm(3, ResNetOptions.width, kernel=7, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )


def read_resnet18(file: Path) -> ImageNetResNet18:
    """The network with the weights of a file, each of them finite and in single precision."""
    found = read_safetensors(file)
    with torch.device("meta"):  # no weights to draw: every one is about to be replaced
        network = ImageNetResNet18()
    load_weights(network, file, found, "ResNet-18", published_name)
    return network


def load_weights(
    network: nn.Module,
    file: Path,
    found: Mapping[str, Tensor],
    kind: str,
    published: Callable[[str], str] = str,
) -> None:
    """Give a network the weights that a file held; `published`: their names there, by ours."""
    wanted = network.state_dict()
    names = {name: published(name) for name in wanted if not _counts_batches(name)}
    try:
        _check_names(found, set(names.values()))
        state = {name: torch.tensor(0) for name in wanted if _counts_batches(name)}
        for name, theirs in names.items():
            state[name] = _checked(theirs, found[theirs], wanted[name].shape)
    except _Misfit as misfit:
        raise UserError(
            f"{file}: expected the weights of an ImageNet {kind} named as torchvision does; {misfit}"
        ) from misfit
    network.load_state_dict(state, assign=True)


def published_name(name: str) -> str:
    """What torchvision calls an entry of the network's state.

    >>> published_name("stages.1.0.residual.3.weight")
    'layer2.0.conv2.weight'
    """
    name = re.sub(r"^stages\.(\d)", lambda stage: f"layer{int(stage[1]) + 1}", name)
    return _OWN_LAYER.sub(lambda layer: _PUBLISHED[layer[0]], name)


_PUBLISHED = {
    "stem.0": "conv1",
    "stem.1": "bn1",
    "residual.0": "conv1",
    "residual.1": "bn1",
    "residual.3": "conv2",
    "residual.4": "bn2",
    "shortcut": "downsample",
    "head": "fc",
}
_OWN_LAYER = re.compile("|".join(map(re.escape, _PUBLISHED)))


def digest_of(network: nn.Module) -> str:
    """A name for exactly these weights, whatever file they came in."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in network.state_dict().items():
        if not _counts_batches(name):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            digest.update(tensor.detach().contiguous().numpy())
    return digest.hexdigest()


def read_safetensors(file: Path) -> Mapping[str, Tensor]:
    """The tensors of a file; no code is run."""
    try:
        return safetensors.torch.load(file.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {file}: {reason(error)}") from error
    except (SafetensorError, KeyError, ValueError) as error:
        details = " ".join(str(error).split())
        raise UserError(
            f"{file} is damaged, or no safetensors file ({details}); fetch or convert it again"
        ) from error


def _check_names(found: Mapping[str, Tensor], wanted: set[str]) -> None:
    lacking = sorted(wanted - found.keys())
    beyond = sorted(name for name in found.keys() - wanted if not _counts_batches(name))
    for names, verb in ((lacking, "lacks"), (beyond, "also has")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise _Misfit(f"it {verb} {names[0]}{more}")


def _checked(name: str, tensor: Tensor, shape: torch.Size) -> Tensor:
    """The tensor in single precision, if it can be what the network needs there."""
    if tensor.shape != shape:
        raise _Misfit(f"{name} is {tuple(tensor.shape)}, not {tuple(shape)}")
    if not tensor.is_floating_point():
        raise _Misfit(f"{name} is {tensor.dtype}, not floats")
    if not tensor.isfinite().all():
        raise _Misfit(f"{name} is not finite: fetch the weights again")
    return tensor.float()


class _Misfit(Exception):
    """What is wrong with weights."""


def _counts_batches(name: str) -> bool:
    """Batch norm's counter, which some files leave out and evaluation never reads."""
    return name.endswith(".num_batches_tracked")
