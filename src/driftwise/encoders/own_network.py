"""A network or a function of one's own as a fixed encoder."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from driftwise.encoders.digests import digest_of_code, digest_of_text, digest_of_values
from driftwise.errors import UserError
from driftwise.models.head import encode_all, find_head, has_features
from driftwise.models.imagenet_resnet import digest_of
from driftwise.models.inputs import to_input
from driftwise.types import Encoding


class OwnEncoder:
    """A user's network or function: floats (samples, channels, height, width) in, (samples, d) out.

    Features are the inputs of a network's head, or else the outputs.

    >>> import torch
    >>> import driftwise as dw
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 8))
    >>> detector = dw.DriftDetector(encoder=dw.encoders.OwnEncoder(network))
    """

    fixed: ClassVar[bool] = True

    def __init__(
        self,
        network: nn.Module | Callable[[Any], Any],
        *,
        preprocess: Callable[[Any], Any] | None = None,
        identity: str | None = None,
        accepts: Literal["images", "texts"] = "images",
    ) -> None:
        """`preprocess`: stored samples to inputs; images are uint8 (samples, height, width, channels).

        Without one, images become floats in [0, 1], (samples, channels, height, width), vectors and
        texts stay as they are.

        `identity`: a text that changes whenever the outputs may: the name and version of a function.
        What a network computes is known by its weights and its source, without one.
        """
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
        self._tried = False
        self._widths: dict[tuple[int, ...], int] = {}
        """features of a sample, by the shape of samples"""
        self.accepts = accepts
        self._preprocess = preprocess or (to_input if accepts == "images" else list)
        self.identity = None
        if identity is not None:
            self.identity = digest_of_text(self.name, identity)
            # Runs, detectors and states tell encoders apart by their names.
            self.name += f" {identity}"
        else:
            if self.networks:
                self.identity = digest_of_values(self.name, network, preprocess)
            functions = [
                each for each in (self._call, preprocess) if isinstance(each, FunctionType)
            ]
            if functions and (code := digest_of_code(*functions)) is not None:
                self.name += f" {code[:8]}"

    @torch.no_grad()
    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels), or texts (samples,) -> logits and features."""
        encoding = self._encoded(images)
        if not self._tried and len(images) >= 4:
            self._try(images[: min(len(images), 32) // 2], encoding.features)
        return encoding

    def _try(self, few: Tensor, features: Tensor) -> None:
        """UserError if these first samples have other features without the others, or by chance."""
        again = self._encoded(few).features
        if (again - features[: len(few)]).abs().max() > 1e-2 * features.abs().max():
            raise UserError(
                f"the encoder {self.name} gives the same samples other features in another batch; "
                "it must encode each by itself and without chance: put a network that it calls into "
                "eval() mode"
            )
        self._tried = True

    def _encoded(self, images: Tensor) -> Encoding:
        pieces = [images[start : start + 512] for start in range(0, max(1, len(images)), 512)]
        parts: list[Any] = [self._preprocess(piece) for piece in pieces]
        for network in self.networks if all(isinstance(part, Tensor) for part in parts) else ():
            if not self._searched:
                find_head(network, parts[0][:2])
                self._searched = True
            if has_features(network):
                return encode_all(network, parts)
        outputs = torch.cat([self._outputs(*both) for both in zip(pieces, parts, strict=True)])
        return Encoding(logits=outputs, features=outputs)

    def _outputs(self, piece: Tensor, part: Any) -> Tensor:
        """Of the samples in a piece, which became a part of the inputs."""
        found = self._call(part)
        if isinstance(found, np.ndarray):
            found = torch.from_numpy(found)
        if (
            not isinstance(found, Tensor)
            or not found.ndim
            or len(found) != len(piece)
            or (len(piece) and not found.numel())
        ):
            came = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise UserError(
                f"the encoder {self.name} must turn {len(piece)} samples into an array"
                f" ({len(piece)}, d); got {came}"
            )
        features = found.detach().cpu().float().reshape(len(piece), -1)
        width = features.shape[1]
        if len(piece) and (before := self._widths.setdefault(np.shape(piece)[1:], width)) != width:
            raise UserError(
                f"the encoder {self.name} gave {before} features of a sample, and now {width}; it must "
                "give as many of every sample"
            )
        return features
