"""The door between images at rest and a network's input."""

from __future__ import annotations

import torch
from torch import Tensor


def to_input(
    images: Tensor,
    device: torch.device | str = "cpu",
    *,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """uint8 (samples, h, w, c) -> floats in [0, 1], (samples, c, h, w); float vectors pass through.

    The bytes are moved and put in order before they become floats: a quarter of the traffic.
    """
    moved = to_device(images, device)
    if images.dtype != torch.uint8:
        return moved.float()
    samples, height, width, channels = moved.shape
    if channels == 1 and memory_format == torch.contiguous_format:
        # In order as it is, unless whoever brought the images has turned them.
        ordered = moved.contiguous().view(samples, 1, height, width)
    else:
        # A clone even where one channel passes for contiguous in either order: convolutions go by
        # the strides, and would compute channels-last unasked.
        ordered = moved.permute(0, 3, 1, 2).clone(memory_format=memory_format)
    return ordered.float().div_(255)


def to_device(values: Tensor, device: torch.device | str) -> Tensor:
    """The values where they are wanted; nobody waits for the copy to a GPU."""
    if values.device == device:  # asking torch to move nothing takes 4 us in the middle of a step
        return values
    if values.is_cpu and torch.device(device).type == "cuda":
        # From pages that may be moved a copy waits, whatever it is told.
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def input_shape_of(image_shape: tuple[int, ...]) -> tuple[int, ...]:
    """(height, width, channels) at rest -> (channels, height, width) in a network."""
    return (image_shape[-1], *image_shape[:-1])
