"""FLOPs of everything a network computes, from one measurement on a throwaway copy.

A forward costs the same for every sample of one shape, so a network is measured once and afterwards
only its samples are counted. Counted are matrix products, convolutions and attention (a multiplication
and an addition are two FLOPs); activations and normalisation are not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from driftwise import rng

_NUM_SAMPLES = 2
"""Batch norm in training cannot work on a single sample."""


@dataclass(frozen=True, kw_only=True)
class FlopsPerSample:
    """What one sample costs."""

    forward: int
    backward: int
    """beyond the forward; 0 if no parameter can be trained"""


def per_sample(network: nn.Module, sample_shape: tuple[int, ...]) -> FlopsPerSample:
    """Measure a network on samples of `sample_shape` (float, no batch dimension), leaving it as it is.

    >>> per_sample(nn.Linear(8, 4), (8,))
    FlopsPerSample(forward=64, backward=64)
    """
    # Training mode throughout: in eval mode some layers take a fused path that counts as nothing.
    probe = copy.deepcopy(network).cpu().train()
    for module in probe.modules():
        # A hook may collect or record what it gets, and a copied hook still writes to the original.
        module._forward_hooks.clear()
    samples = torch.zeros(_NUM_SAMPLES, *sample_shape)
    counter = FlopCounterMode(display=False)
    # Fused attention counts as nothing on a CPU; dropout would draw from the global state.
    math_attention = sdpa_kernel(SDPBackend.MATH)
    with rng.as_global(rng.fork(0, "flops")), torch.enable_grad(), math_attention, counter:
        outputs = probe(samples)
        forward = counter.get_total_flops()
        if outputs.requires_grad:
            outputs.sum().backward()
        total = counter.get_total_flops()
    return FlopsPerSample(
        forward=forward // _NUM_SAMPLES, backward=(total - forward) // _NUM_SAMPLES
    )


def of_call(call: Callable[[], object]) -> int:
    """What a call computes without gradients, whatever networks it uses; it is called twice."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        call()  # a first one may look for the head of a network, which later ones know
        with counter:
            call()
    return int(counter.get_total_flops())


class FlopMeter:
    """Records the FLOPs of every call of the networks it is attached to, by counting their samples."""

    def __init__(self, book: Callable[[int], None]) -> None:
        """`book` is called with the FLOPs of each call, e.g. `ledger.add_flops`."""
        self._book = book

    def attach(self, network: nn.Module, sample_shape: tuple[int, ...]) -> None:
        """Count every call `network(samples)` from now on, and the calls of copies made from it.

        A call in training mode with gradients enabled includes the backward that will follow.
        A network, or a copy of it, that is attached once more counts once.
        """
        hooks = network._forward_hooks.values()
        if not any(isinstance(hook, _CountSamples) and hook.book == self._book for hook in hooks):
            network.register_forward_hook(
                _CountSamples(self._book, per_sample(network, sample_shape))
            )


class _CountSamples:
    """A forward hook. It holds nothing of the network, so one object serves all copies of it."""

    only_counts = True
    """the hook changes no output"""

    def __init__(self, book: Callable[[int], None], cost: FlopsPerSample) -> None:
        self.book = book
        self._forward = cost.forward
        self._forward_and_backward = cost.forward + cost.backward

    def __call__(self, module: nn.Module, _inputs: object, outputs: Tensor) -> None:
        learns = module.training and torch.is_grad_enabled()
        self.book(len(outputs) * (self._forward_and_backward if learns else self._forward))

    def __deepcopy__(self, memo: object) -> _CountSamples:
        # Copies of a network record to the same ledger.
        return self
