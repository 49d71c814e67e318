"""How many classes a network has outputs for, and whether it can get more."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from recollect.errors import UserError
from recollect.learn.growth import head_of
from recollect.models.inputs import to_input


def outputs_of(network: nn.Module, images: Tensor) -> int:
    """The outputs of a network for rows as they came; 0: it gives none that are any good."""
    try:
        probe = copy.deepcopy(network).cpu().eval()
        with torch.no_grad():
            said = probe(to_input(images[:1]))
    except Exception:  # anybody's code runs here; what is wrong is told where the learner is made
        return 0
    return int(said.shape[-1]) if isinstance(said, Tensor) and said.ndim == 2 else 0


def can_grow(network: nn.Module, outputs: int) -> bool:
    """Whether the network's last linear layer is what gives the outputs."""
    try:
        return head_of(network).out_features == outputs
    except UserError:
        return False
