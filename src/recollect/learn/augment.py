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
    # A clone, for the sake of the strides of grey pictures (see `to_input`).
    return picked.permute(0, 3, 1, 2).clone(memory_format=_layout(x))


def _layout(x: Tensor) -> torch.memory_format:
    if x.is_contiguous():
        return torch.contiguous_format
    return torch.channels_last
