"""Logits and features of a network, from one forward pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from driftwise.models.head import Listener
from driftwise.types import Encoding


def encode(network: nn.Module, x: Tensor) -> Encoding:
    """Logits and features of a network's input, (samples, channels, height, width), as floats.

    The network itself is called, so that hooks on it (counting FLOPs) see the call. UserError where
    it has no head and its features were not declared.
    """
    with Listener(network, x) as listener:
        logits: Tensor = network(x)
    return Encoding(logits=logits.float(), features=listener.features(len(logits)))


@torch.no_grad()
def encode_all(network: nn.Module, parts: list[Tensor]) -> Encoding:
    """The same for several inputs one after the other (at least one), without gradients."""
    return Encoding.concat([encode(network, part) for part in parts])
