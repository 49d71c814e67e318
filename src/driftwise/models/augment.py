"""Random changes to training pictures that leave their class as it is."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor

Augmentation = Literal["none", "flip", "crop", "crop-flip"]


def augment(x: Tensor, how: Augmentation, generator: torch.Generator) -> Tensor:
    """Every row shifted by up to an eighth of its height (`crop`) and mirrored or not (`flip`).

    Floats (rows, channels, height, width); what a shift uncovers is black.
    """
    if how == "none" or x.ndim != 4:  # rows that are no pictures have no left and right
        return x
    rows, _, height, width = x.shape
    margin = height // 8 if "crop" in how else 0
    top, left = torch.randint(2 * margin + 1, (2, rows, 1), generator=generator)
    mirrored = torch.rand(rows, 1, generator=generator) < (0.5 if "flip" in how else 0.0)
    across = torch.arange(width).expand(rows, width)
    across = torch.where(mirrored, across.flip(1), across) + left
    down = torch.arange(height) + top
    padded = F.pad(x, (margin,) * 4)
    picked = padded[
        torch.arange(rows, device=x.device)[:, None, None],
        :,
        down[:, :, None].to(x.device),
        across[:, None, :].to(x.device),
    ]  # (rows, height, width, channels): the order that advanced indexing gives
    # By the strides: grey pictures pass for contiguous in either order, and come out of a clone in
    # the one asked for (see `to_input`).
    layout = torch.channels_last if x.stride(1) == 1 else torch.contiguous_format
    return picked.permute(0, 3, 1, 2).clone(memory_format=layout)
