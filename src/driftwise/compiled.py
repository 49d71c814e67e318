"""A network whose forwards are compiled for the usual batch sizes, and for no others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection

import torch
from torch import Tensor, nn

from driftwise.errors import UserError


class Compiled(nn.Module):
    """Calls a network, through torch.compile where as many samples come as in a full step.

    One graph per usual number of samples, made when it first comes; nothing is compiled for any other.
    Graphs for any number of samples were tried: convolutions ask for new ones below 16 samples, and
    single samples always do. Hooks on the network run as ever, outside of the graphs. `cuda_graphs`:
    what was compiled is recorded and played back, as all shapes are static; the next forward may
    overwrite logits, so that they are copied.
    """

    def __init__(
        self, network: nn.Module, usual: Collection[int], *, cuda_graphs: bool = False
    ) -> None:
        super().__init__()
        self._network = (network,)  # not a part of this module: its weights are listed there
        self._usual = frozenset(usual)
        self._records = cuda_graphs
        mode = "reduce-overhead" if cuda_graphs else None
        self._compiled = torch.compile(network.forward, dynamic=False, mode=mode)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, channels, height, width) -> (samples, classes)."""
        (network,) = self._network
        if len(x) not in self._usual:
            logits: Tensor = network(x)
            return logits
        network.forward = self._compiled  # for this call: hooks stay on the outside
        try:
            logits = network(x)
        finally:
            del network.forward
        return logits.clone() if self._records else logits


def refuse_without_compiler(device: torch.device) -> None:
    """UserError where torch.compile would find no compiler."""
    named = os.environ.get("CXX")
    known = ("g++", "clang++", "c++") if named is None else (named,)
    if device.type == "cpu" and not any(map(shutil.which, known)):
        raise UserError(
            f"compile needs a C++ compiler on a CPU, and none of {', '.join(known)} is there; "
            "install one or leave it out"
        )
