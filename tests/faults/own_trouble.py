"""A custom network that waits, or runs out of memory, while a file orders it.

The file `orders` lies in the folder that the environment names: it orders what to do, and after how
many steps. That it is being done is noted by a file beside it.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import torch
from torch import Tensor, nn

FOLDER = "DRIFTWISE_FAULT_ORDERS"
SPARE = 64 * 2**20
"""bytes that a process short of memory may still take"""


class Obedient(nn.Module):
    """A linear network on digits that follows the orders."""

    def __init__(self, *, num_classes: int, **_: object) -> None:
        super().__init__()
        self.head = nn.Linear(64, num_classes)
        self.steps = 0

    def forward(self, images: Tensor) -> Tensor:
        self.steps += self.training
        orders = Path(os.environ[FOLDER]) / "orders"
        if self.training and orders.exists():
            what, after = orders.read_text().split()
            if self.steps > int(after):
                (orders.parent / what).touch()
                {"wait": _wait, "dawdle": _dawdle, "hunger": _hunger}[what]()
        logits: Tensor = self.head(images.flatten(1))
        return logits


def _wait() -> None:
    """A very long step."""
    time.sleep(60)


def _dawdle() -> None:
    """A slow step."""
    time.sleep(0.05)


def _hunger() -> None:
    """Ask the kernel for more than it gives."""
    status = Path("/proc/self/status").read_text()
    taken = 1024 * int(status.split("VmSize:")[1].split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + SPARE, before[1]))
    try:
        torch.empty(4 * SPARE, dtype=torch.uint8)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
