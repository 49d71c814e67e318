"""Only what is known of a network's layers is taken for granted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.metrics.flops import FlopMeter
from driftwise.models import MLP, ResNet18, SmallCNN, ViTTiny
from driftwise.models.layers import draws_nothing, treats_samples_independently


class Own(nn.Module):
    """Nobody knows what it does."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class OwnLinear(nn.Linear):
    """It may do anything, too."""


def hooked_layer() -> nn.Module:
    linear = nn.Linear(16, 2)
    linear.register_forward_hook(lambda _, __, outputs: outputs + torch.rand_like(outputs))
    return nn.Sequential(linear)


def counted() -> nn.Module:
    network = nn.Sequential(nn.Linear(16, 2))
    FlopMeter(lambda _: None).attach(network, (16,))
    return network


def centred() -> nn.Module:
    network = nn.Sequential(nn.Linear(16, 2))
    network.register_forward_hook(lambda _, __, outputs: outputs - outputs.mean(dim=0))
    return network


SHAPE = (3, 16, 16)
NETWORKS = {
    "MLP": (lambda: MLP(input_shape=SHAPE), True, True),
    "ResNet-18": (lambda: ResNet18(input_shape=SHAPE, width=8), True, False),
    "CNN": (lambda: SmallCNN(input_shape=SHAPE), True, False),
    "ViT with dropout": (lambda: ViTTiny(input_shape=SHAPE), False, False),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), True, True),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), True, False),
    "dropout": (lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5)), False, False),
    "one's own": (lambda: nn.Sequential(Own()), False, False),
    "a hook on a layer": (hooked_layer, False, False),
    "a hook on the network": (centred, False, False),
    "FLOPs counted": (counted, True, True),
    "a subclass": (lambda: OwnLinear(16, 2), False, False),
}


@pytest.mark.parametrize(("make", "quiet", "apart"), NETWORKS.values(), ids=NETWORKS.keys())
def test_a_network_is_trusted_as_far_as_its_layers_are_known(make, quiet, apart) -> None:  # type: ignore[no-untyped-def]
    with rng.as_global(rng.fork(0)):
        network = make().train()
    assert (draws_nothing(network), treats_samples_independently(network)) == (quiet, apart)
    x = torch.rand(6, *SHAPE, generator=rng.fork(1))
    if quiet:
        before = torch.get_rng_state()
        network(x)
        assert torch.equal(torch.get_rng_state(), before)
    if apart:
        torch.testing.assert_close(network(x)[:2], network(x[:2]))
