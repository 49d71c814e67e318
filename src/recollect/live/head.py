"""How many classes a network has outputs for, and whether it can get more."""

from __future__ import annotations

from torch import Tensor, nn

from recollect.errors import UserError
from recollect.learn.growth import head_of, num_outputs
from recollect.models.inputs import to_input


def outputs_of(network: nn.Module, images: Tensor) -> int:
    """The outputs of a network for rows as they came; 0: it gives none that are any good."""
    return num_outputs(network, to_input(images[:1]))


def can_grow(network: nn.Module, outputs: int) -> bool:
    """Whether a linear layer gives the network's outputs, so that it can give more."""
    try:
        return head_of(network).out_features == outputs
    except UserError:
        return False
