"""What a network says and what its last layer reads, from one forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from recollect.types import Encoding


def encode(network: nn.Module, x: Tensor) -> Encoding:
    """Logits and features of a network's input, (rows, channels, height, width), as floats.

    The network itself is called, so that hooks on it (counting FLOPs) see the call. A network
    without a linear layer has no features but its logits.
    """
    read: list[Tensor] = []

    def listen(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        read.append(inputs[0])

    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    handle = linear[-1].register_forward_pre_hook(listen) if linear else None
    try:
        logits: Tensor = network(x)
    finally:
        if handle is not None:
            handle.remove()
    features = read[-1] if read else logits
    return Encoding(logits=logits.float(), features=features.flatten(1).float())


@torch.no_grad()
def encode_all(network: nn.Module, parts: list[Tensor]) -> Encoding:
    """The same for several inputs one after the other (at least one), without gradients."""
    return Encoding.concat([encode(network, part) for part in parts])
