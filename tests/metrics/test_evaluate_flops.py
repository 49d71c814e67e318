"""FLOPs by formula, and measuring that leaves everything as it was."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from driftwise import rng
from driftwise.metrics import FlopMeter, FlopsPerSample, Ledger, per_sample


class Attention(nn.Module):
    """Self-attention over `tokens` tokens of width 8, 2 heads of 4."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, samples: Tensor) -> Tensor:
        query, key, value = (
            self.project(samples).view(len(samples), -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        )
        return functional.scaled_dot_product_attention(query, key, value).flatten(1)


def conv_net() -> nn.Sequential:
    """With everything that a forward could disturb: batch statistics and random draws."""
    layers = (nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.Dropout(0.5), nn.ReLU())
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(5 * 6 * 6, 2))


class Precise(nn.Module):
    """Frozen, and in float64 inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 4).double().requires_grad_(False)

    def forward(self, samples: Tensor) -> Tensor:
        return functional.linear(samples.double(), self.inner.weight, self.inner.bias).float()


HIDDEN = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
STRIDED = 2 * (3 * 3 * 3) * 5 * 3 * 3


@pytest.mark.parametrize(
    ("network", "shape", "forward", "backward"),
    [
        # The gradient of the weights only: that of the input is not needed.
        (nn.Linear(8, 4), (8,), 2 * 8 * 4, 2 * 8 * 4),
        (nn.Linear(8, 4).requires_grad_(False), (8,), 64, 0),
        # A hidden layer costs the gradient of its input, too.
        (HIDDEN, (8,), 64 + 24, 64 + 2 * 24),
        (nn.Conv2d(3, 5, 3, stride=2, padding=1), (3, 6, 6), STRIDED, STRIDED),
        (Precise(), (8,), 64, 0),
    ],
)
def test_flops_by_formula(
    network: nn.Module, shape: tuple[int, ...], forward: int, backward: int
) -> None:
    expected = FlopsPerSample(forward=forward, backward=backward)
    assert per_sample(network, shape) == expected
    with torch.no_grad():
        assert per_sample(network, shape) == expected


def test_attention_is_counted() -> None:
    projection = 2 * 7 * 8 * 24
    products = 2 * (2 * 7 * 4 * 7) * 2  # queries with keys, weights with values; two heads
    assert per_sample(Attention(), (7, 8)).forward == projection + products


def test_an_encoder_layer_costs_the_same_in_both_modes() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    in_training = per_sample(layer.train(), (5, 8))
    assert per_sample(layer.eval().requires_grad_(False), (5, 8)).forward == in_training.forward > 0


@pytest.mark.parametrize("training", [True, False])
def test_measuring_leaves_network_and_randomness_bit_identical(training: bool) -> None:
    network = conv_net().train(training)
    network(torch.ones(3, 3, 6, 6)).sum().backward()  # so that there are gradients to disturb
    state = copy.deepcopy(network.state_dict())
    grads = [parameter.grad for parameter in network.parameters()]
    grad_values = [None if grad is None else grad.clone() for grad in grads]
    random_state = torch.get_rng_state()

    FlopMeter(lambda count: None).attach(network, (3, 6, 6))

    assert torch.equal(torch.get_rng_state(), random_state)
    assert network.training is training
    assert all(torch.equal(state[name], value) for name, value in network.state_dict().items())
    for parameter, grad, value in zip(network.parameters(), grads, grad_values, strict=True):
        assert parameter.grad is grad is not None
        assert value is not None
        assert torch.equal(grad, value)


def test_a_metered_network_computes_bit_for_bit_what_it_would_have() -> None:
    free = conv_net()
    monitored = copy.deepcopy(free)
    booked: list[int] = []
    FlopMeter(booked.append).attach(monitored, (3, 6, 6))
    samples = torch.randn(4, 3, 6, 6, generator=rng.fork(0, "rows"))
    for network in (free, monitored):
        with rng.as_global(rng.fork(0, "dropout")):
            network(samples).square().sum().backward()
    assert booked != []
    for one, other in zip(free.parameters(), monitored.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_calls_book_samples_times_cost_and_the_backward_only_when_learning() -> None:
    network = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    cost = per_sample(network, (8,))
    booked: list[int] = []
    FlopMeter(booked.append).attach(network, (8,))
    assert booked == []
    network.train()(torch.zeros(5, 8))
    with torch.no_grad():
        network(torch.zeros(5, 8))
    network.eval()(torch.zeros(7, 8))
    with torch.inference_mode():
        network(torch.zeros(1, 8))
        network(torch.zeros(0, 8))
    learning = cost.forward + cost.backward
    assert booked == [5 * learning, 5 * cost.forward, 7 * cost.forward, cost.forward, 0]


def test_copies_of_a_metered_network_count_in_the_same_ledger() -> None:
    ledger, network = Ledger(), nn.Linear(8, 4)
    meter = FlopMeter(ledger.add_flops)
    meter.attach(network, (8,))
    second: list[int] = []
    FlopMeter(second.append).attach(network, (8,))
    average = copy.deepcopy(network)
    meter.attach(average, (8,))  # already metered: nothing may count twice
    meter.attach(network, (8,))
    assert ledger.flops["detect"] == 0
    with ledger.phase("detect"), torch.no_grad():
        average(torch.zeros(1, 8))
        network(torch.zeros(1, 8))
    assert ledger.flops == {"train": 0, "detect": 2 * 64, "adapt": 0, "evaluate": 0}
    assert second == [64, 64], "two meters count the whole each"


def test_measuring_does_not_run_the_hooks_of_others() -> None:
    network = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    features: list[Tensor] = []
    network[0].register_forward_hook(lambda module, inputs, output: features.append(output))
    per_sample(network, (8,))
    assert features == []
    network(torch.zeros(1, 8))
    assert len(features) == 1


class Marked(nn.Linear):
    """Nobody else's layers are of this type, so any left over is a leak."""


def test_a_meter_keeps_neither_network_nor_copy_alive() -> None:
    meter = FlopMeter(lambda count: None)
    network = Marked(8, 4)
    meter.attach(network, (8,))
    gone = weakref.ref(network)
    del network
    gc.collect()
    assert gone() is None
    assert not [thing for thing in gc.get_objects() if type(thing) is Marked]
