"""How many classes a network has outputs for, and whether it can get more."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from driftwise.models.head import find_head, growing_head_of, num_outputs
from driftwise.models.inputs import to_input


def outputs_of(network: nn.Module, images: Tensor) -> int:
    """The outputs of a network for samples as they came; 0: it gives none that are any good."""
    return num_outputs(network, to_input(images[:1]))


def can_grow(network: nn.Module, images: Tensor | None = None) -> bool:
    """Whether a linear layer makes the network's outputs, so that it can make more.

    `images`: samples as they came, for a network whose head has not been looked for yet.
    """
    if images is not None:
        network = copy.deepcopy(network)
        find_head(network, to_input(images))
    return growing_head_of(network) is not None
