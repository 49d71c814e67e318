"""More outputs for a network, for classes that were unknown before; its weights are kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from driftwise.errors import UserError
from driftwise.models.head import growing_head_of, padded, widen


def grow_head(network: nn.Module, outputs: int) -> dict[Tensor, Tensor]:
    """Give a network more outputs; its old parameters -> those that took their place.

    New outputs begin at 0 for every image: the outputs for old classes stay as they were.
    """
    head = growing_head_of(network)
    if head is None:
        raise UserError(
            "a network whose outputs no nn.Linear of its own makes cannot take on new classes; "
            "give it enough outputs from the start"
        )
    return widen(head, outputs) if outputs > head.out_features else {}


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
