"""Kinds of devices, and how values get there."""

from __future__ import annotations

import torch
from torch import Tensor

ASYNCHRONOUS = {"cuda": "nccl", "xpu": "xccl"}
"""kinds that copy from pinned memory beside what they compute, and what sends messages between them"""


def to_device(values: Tensor, device: torch.device | str) -> Tensor:
    """The values on a device; the copy to a GPU is asynchronous."""
    if values.device == device:  # asking torch to move nothing takes 4 us in the middle of a step
        return values
    if values.is_cpu and torch.device(device).type in ASYNCHRONOUS:
        # A copy from pageable memory waits, non_blocking or not.
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)
