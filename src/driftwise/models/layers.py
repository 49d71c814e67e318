"""Batch norms for streams, and what is known of a network's layers.

In a stream a batch may be a single sample, which torch's own batch norms refuse. Methods merge or
repeat forwards only where that changes nothing: where layers draw no random numbers and samples do
not affect each other. Only known layers are trusted: a network with a custom layer, or with a hook
that is not marked `only_counts`, gets every forward separately.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class _TakesOneValue(_BatchNorm):
    """torch's batch norm, bit for bit, except that it also learns from one value per channel.

    One sample alone is a batch that a stream can send, and while the memory is empty nothing is
    replayed beside it; deep in a network such a sample has shrunk to one pixel. One value has no
    spread, and torch refuses to train on it. Here it is normalised by the running statistics
    instead, as in evaluation, and they are not updated.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(samples, channels, ...) -> the same."""
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        one_value_each = input.numel() == input.shape[1]
        if self.training and one_value_each and self.running_mean is not None:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)


class BatchNorm1d(_TakesOneValue, nn.BatchNorm1d):
    """For vectors, (samples, channels).

    >>> import torch
    >>> BatchNorm1d(3, eps=0).train()(torch.ones(1, 3)).tolist()
    [[1.0, 1.0, 1.0]]
    """


class BatchNorm2d(_TakesOneValue, nn.BatchNorm2d):
    """For maps, (samples, channels, height, width).

    >>> import torch
    >>> BatchNorm2d(3, eps=0).train()(torch.ones(1, 3, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """


_OURS: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: BatchNorm1d,
    nn.BatchNorm2d: BatchNorm2d,
}


def take_single_samples(network: nn.Module) -> None:
    """Make torch's own batch norms in a network behave as those here, weights and all in place."""
    for module in network.modules():
        if (ours := _OURS.get(type(module))) is not None:
            module.__class__ = ours


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


def evaluates_samples_independently(network: nn.Module) -> bool:
    """The same in evaluation mode, in which batch norms use their running statistics.

    >>> evaluates_samples_independently(nn.BatchNorm1d(2)), evaluates_samples_independently(
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
        hooks = [
            hook
            for module in modules
            for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        ]
        quiet = quiet and all(getattr(hook, "only_counts", False) for hook in hooks)
        norms = [module for module in modules if isinstance(module, _BatchNorm)]
        has_statistics = all(norm.running_mean is not None for norm in norms)
        nature = _known[network] = (quiet, quiet and not norms, quiet and has_statistics)
    return nature


def _is_ours(kind: type[nn.Module]) -> bool:
    return kind.__module__.startswith("driftwise.models.")
