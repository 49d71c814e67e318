"""A head that grows: outputs for classes that nobody knew of, nothing learned is lost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from recollect.errors import UserError


def head_of(network: nn.Module) -> nn.Linear:
    """The layer whose outputs are the classes: the last linear one."""
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UserError(
            "a network whose last layer is not nn.Linear cannot take on new classes; give it "
            "enough outputs from the start"
        )
    return layers[-1]


def grow_head(network: nn.Module, outputs: int) -> dict[Tensor, Tensor]:
    """Give a network more outputs; its old parameters -> those that took their place.

    New outputs begin at 0 for every picture: the network says of old classes what it said before.
    """
    head = head_of(network)
    replaced: dict[Tensor, Tensor] = {}
    for name in ("weight", "bias"):
        old = getattr(head, name)
        if old is None:
            continue
        grown = nn.Parameter(padded(old.detach(), outputs), requires_grad=old.requires_grad)
        setattr(head, name, grown)
        replaced[old] = grown
    head.out_features = outputs
    return replaced


def grow_optimiser(optimiser: torch.optim.Optimizer, replaced: dict[Tensor, Tensor]) -> None:
    """Let an optimiser go on with grown parameters; what it keeps of them grows along."""
    for group in optimiser.param_groups:
        group["params"] = [replaced.get(each, each) for each in group["params"]]
    for old, grown in replaced.items():
        if old in optimiser.state:
            kept: dict[str, Any] = optimiser.state.pop(old)
            optimiser.state[grown] = {
                name: padded(value, len(grown))
                if isinstance(value, Tensor) and value.shape == old.shape
                else value
                for name, value in kept.items()
            }


def padded(values: Tensor, length: int) -> Tensor:
    """More entries along the first dimension, all 0."""
    more = values.new_zeros(length - len(values), *values.shape[1:])
    return torch.cat([values, more])
