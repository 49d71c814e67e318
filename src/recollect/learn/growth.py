"""A head that grows: outputs for classes that nobody knew of, nothing learned is lost."""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from recollect import rng
from recollect.errors import UserError

_NO_HEAD = "_gives_no_outputs"
"""what a linear layer is marked with that was found not to be the head; copies have it as well"""

_heads: WeakKeyDictionary[nn.Module, str | None] = WeakKeyDictionary()


def head_of(network: nn.Module) -> nn.Linear:
    """The layer whose outputs are the classes: the last linear one that `find_head` let pass."""
    if network not in _heads:  # once for each network: walking over a ResNet-18 takes 200 us
        names = [name for name, layer in _linear(network) if not hasattr(layer, _NO_HEAD)]
        _heads[network] = names[-1] if names else None
    if (name := _heads[network]) is None:
        raise UserError(
            "a network whose last layer is not nn.Linear cannot take on new classes; give it "
            "enough outputs from the start"
        )
    return _named(network, name)


def find_head(network: nn.Module, x: Tensor) -> None:
    """Have `head_of` go by the layer that makes the outputs, whatever is listed behind it.

    `x` is an input that the network takes. Layers are tried out on copies, the last one first: with
    the head one output wider, so is what the network says. Where that is true of none, it has no
    head. Copies of the network know as much; its weights, statistics and mode are left alone.
    """
    outputs = num_outputs(network, x)
    for name, layer in reversed(_linear(network)):
        if layer.out_features == outputs and num_outputs(network, x, wider=name) == outputs + 1:
            break
        setattr(layer, _NO_HEAD, True)
    _heads.pop(network, None)


@torch.no_grad()
def num_outputs(network: nn.Module, x: Tensor, *, wider: str | None = None) -> int:
    """How many outputs a copy of a network gives an input; 0: none that are any good.

    `wider`: the name of a linear layer that has one more in the copy.
    """
    try:
        probe = copy.deepcopy(network).cpu().eval()
        if wider is not None:
            layer = _named(probe, wider)
            _widen(layer, layer.out_features + 1)
        with rng.as_global(rng.fork(0, "probe")):
            said = probe(x)
    except Exception:  # anybody's code runs here; what is wrong is told where the learner is made
        return 0
    return int(said.shape[-1]) if isinstance(said, Tensor) and said.ndim == 2 else 0


def grow_head(network: nn.Module, outputs: int) -> dict[Tensor, Tensor]:
    """Give a network more outputs; its old parameters -> those that took their place.

    New outputs begin at 0 for every picture: the network says of old classes what it said before.
    """
    return _widen(head_of(network), outputs)


def _linear(network: nn.Module) -> list[tuple[str, nn.Linear]]:
    """All linear layers by their names, in the order in which they are listed."""
    return [(name, each) for name, each in network.named_modules() if isinstance(each, nn.Linear)]


def _named(network: nn.Module, name: str) -> nn.Linear:
    layer = network.get_submodule(name)
    assert isinstance(layer, nn.Linear), f"{name} was a linear layer"
    return layer


def _widen(layer: nn.Linear, outputs: int) -> dict[Tensor, Tensor]:
    replaced: dict[Tensor, Tensor] = {}
    for name in ("weight", "bias"):
        old = getattr(layer, name)
        if old is None:
            continue
        grown = nn.Parameter(padded(old.detach(), outputs), requires_grad=old.requires_grad)
        setattr(layer, name, grown)
        replaced[old] = grown
    layer.out_features = outputs
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
