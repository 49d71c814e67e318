"""Whether forwards can be merged or repeated: does a network draw, do samples affect each other?

Methods merge forwards only where that changes nothing. Only known layers are trusted: a network
with a custom layer, or with a hook that is not marked `only_counts`, gets every forward separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_KNOWN: frozenset[type[nn.Module]] = frozenset(
    {
        nn.Sequential,
        nn.ModuleList,
        nn.Identity,
        nn.Flatten,
        nn.Linear,
        nn.Conv2d,
        nn.ReLU,
        nn.GELU,
        nn.SiLU,
        nn.Tanh,
        nn.Sigmoid,
        nn.MaxPool2d,
        nn.AvgPool2d,
        nn.AdaptiveAvgPool2d,
        nn.LayerNorm,
        nn.GroupNorm,
        nn.BatchNorm1d,
        nn.BatchNorm2d,
    }
)
"""Layers of torch that draw no random numbers; subclasses of them may."""

_known: WeakKeyDictionary[nn.Module, tuple[bool, bool, bool]] = WeakKeyDictionary()


def draws_nothing(network: nn.Module) -> bool:
    """Whether a forward surely draws no random numbers.

    >>> draws_nothing(nn.Linear(2, 2)), draws_nothing(nn.Sequential(nn.Dropout(0.5)))
    (True, False)
    """
    return _nature(network)[0]


def treats_samples_independently(network: nn.Module) -> bool:
    """Whether the output for a sample surely depends on that sample alone, in training mode.

    >>> [treats_samples_independently(layer) for layer in (nn.Linear(2, 2), nn.BatchNorm1d(2))]
    [True, False]
    """
    return _nature(network)[1]


def asks_samples_apart(network: nn.Module) -> bool:
    """The same in evaluation mode, in which batch norms use their running statistics.

    >>> asks_samples_apart(nn.BatchNorm1d(2)), asks_samples_apart(
    ...     nn.BatchNorm1d(2, track_running_stats=False)
    ... )
    (True, False)
    """
    return _nature(network)[2]


def _nature(network: nn.Module) -> tuple[bool, bool, bool]:
    """Looked up once for each network: walking over a ResNet-18 takes 60 us."""
    nature = _known.get(network)
    if nature is None:
        modules = list(network.modules())
        kinds = {type(module) for module in modules}
        quiet = all(kind in _KNOWN or _is_ours(kind) for kind in kinds)
        quiet = quiet and all(getattr(hook, "only_counts", False) for hook in _hooks(modules))
        norms = [module for module in modules if isinstance(module, _BatchNorm)]
        has_statistics = all(norm.running_mean is not None for norm in norms)
        nature = _known[network] = (quiet, quiet and not norms, quiet and has_statistics)
    return nature


def _hooks(modules: Sequence[nn.Module]) -> Iterator[object]:
    for module in modules:
        yield from module._forward_hooks.values()
        yield from module._forward_pre_hooks.values()


def _is_ours(kind: type[nn.Module]) -> bool:
    return kind.__module__.startswith("driftwise.models.")
