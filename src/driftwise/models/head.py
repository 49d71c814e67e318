"""The head of a network and the features it reads: the one definition, by what a forward does.

The head is the last layer called that makes the outputs: with one more output of its own, the
network has one more. Features are what the head reads. `find_head` searches once and marks the layer,
so that copies of the network and what is wrapped around it know the head as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from driftwise import rng
from driftwise.errors import UserError, unknown_name
from driftwise.types import Encoding

Features = str | Callable[[nn.Module, Tensor], Tensor]
"""Where features come from: the name of the layer that gives them, or a function of the network and
its input."""

_GROWS = "_head_can_grow"
"""marks the head; the value: whether it can be given more outputs"""
_GIVEN = "_features_given"
"""marks the layer whose output is the features (None), or the network that a function is for"""

_sources: WeakKeyDictionary[nn.Module, _Source] = WeakKeyDictionary()


def find_head(network: nn.Module, x: Tensor) -> None:
    """Mark the head of a network, if it has one; `x` is an input that it takes, two samples or more.

    Layers are tried on a copy, the last one called first. The network's weights, statistics, modes
    and hooks are left alone, and so is the global random state. A network that several processes share
    (FSDP2) cannot be copied: it is tried itself, in evaluation mode, by all of them together.
    """
    for module in network.modules():
        vars(module).pop(_GROWS, None)
    _sources.pop(network, None)
    probe = _probe_of(network)
    if probe is None:
        return
    calls: dict[str, int] = {}
    handles = [
        layer.register_forward_hook(_counting(calls, name, len(x)))
        for name, layer in probe.named_modules()
        if _has_weight_matrix(layer)
    ]
    outputs = _num_outputs(probe, x)
    for handle in handles:
        handle.remove()
    for name, count in reversed(calls.items()):
        layer = probe.get_submodule(name)
        handle = layer.register_forward_hook(_widening(outputs, call=count, dim=_dim_of(layer)))
        makes_outputs = _num_outputs(probe, x) == outputs + 1
        handle.remove()
        if makes_outputs:
            grows = (
                probe is not network
                and _owns_weights(probe, layer)
                and (
                    (type(layer) is nn.Linear and count == 1)
                    or _can_widen(probe, layer, x, outputs)
                )
            )
            setattr(network.get_submodule(name), _GROWS, grows)
            return


def head_of(network: nn.Module) -> nn.Module | None:
    """The layer that `find_head` marked in this network, or in the one it was copied from."""
    name = _source_of(network).head
    return None if name is None else network.get_submodule(name)


def growing_head_of(network: nn.Module) -> nn.Linear | None:
    """The head, where it can be given more outputs."""
    head = head_of(network)
    return head if isinstance(head, nn.Linear) and getattr(head, _GROWS) else None


def is_sharded(network: nn.Module) -> bool:
    """Whether processes keep a part of the weights each (`torch.distributed.fsdp.fully_shard`)."""
    kinds = {base.__name__ for module in network.modules() for base in type(module).__mro__}
    return "FSDPModule" in kinds


def num_outputs(network: nn.Module, x: Tensor) -> int:
    """How many outputs a copy of a network gives an input; 0: none that are any good."""
    probe = _probe_of(network)
    return 0 if probe is None else _num_outputs(probe, x)


def with_features(network: object, features: Features) -> nn.Module:
    """A copy of a network with declared features, for want of a head or instead of it.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 2), nn.BatchNorm1d(2))
    >>> encode(with_features(network, "1").eval(), torch.zeros(5, 4)).features.shape
    torch.Size([5, 3])
    """
    if not isinstance(network, nn.Module):
        raise UserError(
            f"features can be given along with a torch module as network; got {network!r:.200}"
        )
    if isinstance(features, nn.Module):
        raise UserError(
            "features must be the name of a layer or a function of (network, input), since the "
            "network is copied; got a module"
        )
    network = copy.deepcopy(network)
    for module in network.modules():
        vars(module).pop(_GIVEN, None)
    if callable(features):
        setattr(network, _GIVEN, features)
        return network
    layers = dict(network.named_modules())
    if features not in layers:
        raise unknown_name("layer", features, list(filter(None, layers))[-20:])
    setattr(layers[features], _GIVEN, None)
    return network


def has_features(network: nn.Module) -> bool:
    """Whether it is known where the features of a network come from."""
    source = _source_of(network)
    return source.head is not None or source.given is not None


class Listener:
    """Takes down the features of a network's forwards while it is entered."""

    def __init__(self, network: nn.Module, x: Tensor) -> None:
        """`x` is an input that the network takes, in case its head is still to be found."""
        if not has_features(network):
            find_head(network, x[:2])
            if not has_features(network):
                raise no_features("the network")
        head, given = _source_of(network)
        self._layer = network.get_submodule((head if given is None else given) or "")
        self._is_given = given is not None
        self._read: Callable[[], Tensor] | None = None
        self._handle: RemovableHandle | None = None

    def __enter__(self) -> Listener:
        self._handle = self._layer.register_forward_hook(self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._handle is not None
        self._handle.remove()

    def _listen(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        # The last call counts: a layer may also serve further down in the network.
        if not self._is_given:
            self._read = lambda: _as_read(inputs[0], output, _dim_of(layer))
        elif (function := getattr(layer, _GIVEN)) is None:
            self._read = lambda: output
        else:
            self._read = lambda: function(layer, inputs[0])

    def features(self, samples: int) -> Tensor:
        """Floats (samples, d) of the last forward; UserError where they are none."""
        try:
            found = None if self._read is None else self._read()
        except Exception as error:  # anybody's code runs here, and may raise anything
            raise _bad_features(samples, f"{type(error).__name__}: {error}") from error
        if not isinstance(found, Tensor):
            raise _bad_features(samples, type(found).__name__)
        if not found.ndim or len(found) != samples:
            raise _bad_features(samples, f"the shape {tuple(found.shape)}")
        return found.flatten(1).float() if found.ndim > 1 else found[:, None].float()


def no_features(name: str) -> UserError:
    """The error for a network of which nobody knows what its features are."""
    return UserError(
        f"{name} has no head that can be found: no layer makes its outputs alone, so that it is "
        "not known what its features are; pass features=, the name of the layer that gives them "
        "or a function of (network, input); code that makes the network returns "
        "driftwise.models.head.with_features(network, features)"
    )


def _bad_features(samples: int, came: str) -> UserError:
    return UserError(
        f"features must be a tensor with an entry for each of {samples} samples; got "
        f"{came.splitlines()[0][:200]}: give the name of a layer that a forward calls, or a "
        "function of (network, input)"
    )


def encode(network: nn.Module, x: Tensor) -> Encoding:
    """Logits and features of a network's input, (samples, channels, height, width), as floats.

    The network itself is called, so that hooks on it (counting FLOPs) see the call. UserError where
    it has no head and its features were not declared.
    """
    with Listener(network, x) as listener:
        logits: Tensor = network(x)
    return Encoding(logits=logits.float(), features=listener.features(len(logits)))


@torch.no_grad()
def encode_all(network: nn.Module, parts: list[Tensor]) -> Encoding:
    """The same for several inputs one after the other (at least one), without gradients."""
    return Encoding.concat([encode(network, part) for part in parts])


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


def widen(layer: nn.Linear, outputs: int) -> dict[Tensor, Tensor]:
    """Give a layer more outputs, which begin at 0; its old parameters -> those in their place."""
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


def padded(values: Tensor, length: int) -> Tensor:
    """More entries along the first dimension, all 0."""
    more = values.new_zeros(length - len(values), *values.shape[1:])
    return torch.cat([values, more])


class _Source(NamedTuple):
    """Names of layers; None: there is none."""

    head: str | None
    given: str | None
    """what was marked by `with_features`"""


def _source_of(network: nn.Module) -> _Source:
    """Looked up once for each network: walking over a ResNet-18 takes 200 us."""
    source = _sources.get(network)
    if source is None:
        names = {
            mark: next((n for n, each in network.named_modules() if mark in vars(each)), None)
            for mark in (_GROWS, _GIVEN)
        }
        source = _sources[network] = _Source(head=names[_GROWS], given=names[_GIVEN])
    return source


def _probe_of(network: nn.Module) -> nn.Module | None:
    """A copy to try things on; None: it cannot be copied, which is reported where it is taken over."""
    if is_sharded(network):
        return network if not network.training else None
    try:
        probe = copy.deepcopy(network).cpu().eval()
    except Exception:  # anybody's code runs here
        return None
    for module in probe.modules():
        for key, hook in list(module._forward_hooks.items()):
            if getattr(hook, "only_counts", False):  # a copied one books to the original's ledger
                del module._forward_hooks[key]
    return probe


@torch.no_grad()
def _num_outputs(probe: nn.Module, x: Tensor) -> int:
    try:
        with rng.as_global(rng.fork(0, "probe")):
            output = probe(x if is_sharded(probe) else x.cpu())
    except (
        Exception
    ):  # anybody's code runs here; what is wrong is reported where the learner is made
        return 0
    return int(output.shape[-1]) if isinstance(output, Tensor) and output.ndim == 2 else 0


def _has_weight_matrix(layer: nn.Module) -> bool:
    """Whether it can be a head: linear, a convolution, or one's own with a single matrix."""
    if isinstance(layer, nn.Linear | _ConvNd):
        return True
    matrices = [weight for weight in layer.parameters() if weight.ndim > 1]
    return len(matrices) == 1 and next(layer.children(), None) is None


def _dim_of(layer: nn.Module) -> int:
    """The dimension of its outputs that classes are counted along."""
    return 1 if isinstance(layer, _ConvNd) else -1


def _counting(calls: dict[str, int], name: str, samples: int) -> Callable[..., None]:
    """Counts the calls of a layer, in the order of their last ones."""

    def hook(_: nn.Module, inputs: tuple[Any, ...], __: Any) -> None:
        is_read_by_sample = (
            bool(inputs) and isinstance(inputs[0], Tensor) and len(inputs[0]) == samples
        )
        if is_read_by_sample:
            calls[name] = calls.pop(name, 0) + 1

    return hook


def _widening(outputs: int, *, call: int, dim: int) -> Callable[..., Tensor | None]:
    """One more output of the layer's last call, which is enough to follow it to the end."""
    seen = 0

    def hook(_: nn.Module, __: tuple[Any, ...], output: Any) -> Tensor | None:
        nonlocal seen
        seen += 1
        if seen != call or not isinstance(output, Tensor) or output.shape[dim] != outputs:
            return None
        return torch.cat([output, output.narrow(dim, 0, 1)], dim=dim)

    return hook


def _owns_weights(probe: nn.Module, layer: nn.Module) -> bool:
    """Whether the layer is linear and no other one shares its weights."""
    if not isinstance(layer, nn.Linear):
        return False
    users = (m for m in probe.modules() if any(w is layer.weight for w in m.parameters(False)))
    return len(list(users)) == 1


def _can_widen(probe: nn.Module, layer: nn.Module, x: Tensor, outputs: int) -> bool:
    """Whether more weights of the layer give the network more outputs; changes the probe."""
    assert isinstance(layer, nn.Linear)
    try:
        widen(layer, outputs + 1)
    except Exception:  # anybody's code runs here
        return False
    return _num_outputs(probe, x) == outputs + 1


def _as_read(read: Tensor, output: Tensor, dim: int) -> Tensor:
    """What the head reads, one vector a sample: the mean over places where it answers at several."""
    places = output.movedim(dim, 1).flatten(2) if output.ndim > 2 else None
    if places is None or places.shape[2] == 1:
        return read
    return read.movedim(dim, 1).flatten(2).mean(dim=2)
