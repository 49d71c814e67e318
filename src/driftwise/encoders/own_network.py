"""A network or a function of one's own as a fixed encoder."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from driftwise.encoders.digests import digest_of_text, digest_of_values
from driftwise.errors import UserError
from driftwise.models.head import encode_all, find_head, has_features
from driftwise.models.imagenet_resnet import digest_of
from driftwise.models.inputs import to_input
from driftwise.types import Encoding


class OwnEncoder:
    """A user's network or function: floats (samples, channels, height, width) in, (samples, d) out.

    Features are the inputs of a network's head, or else the outputs.
    """

    fixed: ClassVar[bool] = True

    def __init__(
        self,
        network: nn.Module | Callable[[Any], Any],
        *,
        preprocess: Callable[[Tensor], Any] = to_input,
        identity: str | None = None,
    ) -> None:
        """`preprocess`: stored samples to inputs, (samples, height, width, channels) for images.

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
        self._preprocess = preprocess
        self.identity = None
        if identity is not None:
            self.identity = digest_of_text(self.name, identity)
        elif self.networks:
            self.identity = digest_of_values(self.name, network, preprocess)

    @torch.no_grad()
    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits and features."""
        parts = [self._preprocess(part) for part in torch.split(images, 512)]
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
