"""Random changes to training images that leave their class as it is."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

Augmentation = Literal["none", "flip", "crop", "crop-flip"]


def augment(x: Tensor, how: Augmentation, generator: torch.Generator) -> Tensor:
    """Every sample shifted by up to an eighth of its height (`crop`) and mirrored or not (`flip`).

    Floats (samples, channels, height, width); what a shift uncovers is black.
    """
    if how == "none" or x.ndim != 4:  # samples that are no images have no left and right
        return x
    samples, _, height, width = x.shape
    margin = height // 8 if "crop" in how else 0
    top, left = torch.randint(2 * margin + 1, (2, samples, 1), generator=generator)
    mirrored = torch.rand(samples, 1, generator=generator) < (0.5 if "flip" in how else 0.0)
    across = torch.arange(width).expand(samples, width)
    across = torch.where(mirrored, across.flip(1), across) + left
    down = torch.arange(height) + top
    padded = F.pad(x, (margin,) * 4)
    picked = padded[
        torch.arange(samples, device=x.device)[:, None, None],
        :,
        down[:, :, None].to(x.device),
        across[:, None, :].to(x.device),
    ]  # (samples, height, width, channels): the order that advanced indexing gives
    # By the strides: grey images pass for contiguous in either order, and come out of a clone in
    # the one asked for (see `to_input`).
    layout = torch.channels_last if x.stride(1) == 1 else torch.contiguous_format
    return picked.permute(0, 3, 1, 2).clone(memory_format=layout)
