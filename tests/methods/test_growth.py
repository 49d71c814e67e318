"""A head that grows: old classes are answered as before, and learning goes on where it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from learn_builders import CLASSES, LR, batch, labelled, make_learner, make_network
from run_tools import complaint
from same_state import same
from torch import Tensor, nn

from driftwise.methods import CLSER, ER, ERACE, SER, DERpp, Method
from driftwise.models.head import (
    find_head,
    grow_head,
    grow_optimiser,
    growing_head_of,
    head_of,
)

METHODS: dict[str, Any] = {
    "er": ER,
    "er-ace": ERACE,
    "der++": lambda: DERpp(),
    "ser": lambda: SER(),
    "cls-er": lambda: CLSER(stable_update_freq=0.5),
}
GROWN = CLASSES + 3


def two_tasks(method: Method, **kind: Any) -> Any:
    """A learner in the middle of its second task."""
    learner = make_learner(method, **kind)
    learner.observe(labelled(1, 0, 1, 0, 1))
    learner.observe(labelled(2, 2, 3, 2, 3))
    learner.observe(labelled(3, 2, 1, 2, 3))
    return learner


def assert_same_but_for_rounding(now: Tensor, before: Tensor) -> None:
    """A wider matrix is multiplied in another order: the weights are equal, last digits may not."""
    torch.testing.assert_close(now, before, rtol=1e-6, atol=1e-7)


class Branched(nn.Module):
    """A body and a head, with a layer of the head's size listed behind it or the body itself."""

    def __init__(self, *, last: str) -> None:
        super().__init__()
        body = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
        if last == "aux":
            self.body = body
        self.head = nn.Linear(3, 3)
        if last == "aux":
            self.aux = nn.Linear(3, 3)
        else:
            self.body = body

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


class Noisy(nn.Module):
    """Outputs that no linear layer makes alone, and a draw of random numbers in either mode."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.left(x) + self.right(x)
        return logits + torch.rand_like(logits)


@pytest.mark.parametrize("last", ["aux", "body"])
def test_the_head_is_found_by_what_it_does_and_copies_know_it_too(last: str) -> None:
    network = Branched(last=last)
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(3))
    find_head(network, x)
    for each in (network, copy.deepcopy(network), nn.Sequential(copy.deepcopy(network))):
        inner = each if isinstance(each, Branched) else each[0]
        assert head_of(each) is inner.head
        before = each.eval()(x)
        grow_head(each, 5)
        assert_same_but_for_rounding(each(x)[:, :3], before)
        assert not each(x)[:, 3:].any()
        assert head_of(each) is inner.head
    find_head(network, x)
    assert head_of(network) is network.head, "what has grown may be searched again"


def test_a_network_whose_outputs_no_linear_layer_makes_alone_has_no_head() -> None:
    network = Noisy()
    find_head(network, torch.zeros(2, 6))
    for each in (network, copy.deepcopy(network)):
        assert head_of(each) is None
        assert "cannot take on new classes" in complaint(lambda: grow_head(each, 5))  # noqa: B023


@pytest.mark.parametrize("make", [lambda: Branched(last="aux"), Noisy])
def test_searching_the_head_leaves_the_network_and_chance_as_they_were(make: Any) -> None:
    network = make().train()
    weights, chance = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    find_head(network, torch.ones(2, 6))
    assert same(network.state_dict(), weights)
    assert torch.equal(torch.get_rng_state(), chance)
    assert all(module.training for module in network.modules())
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("bias", [True, False])
def test_new_outputs_begin_at_zero_and_the_weights_of_old_ones_stay(bias: bool) -> None:
    body, head = nn.Linear(6, 5).requires_grad_(False), nn.Linear(5, 3, bias=bias)
    network = nn.Sequential(body, nn.ReLU(), head)
    find_head(network, torch.zeros(2, 6))
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(3))
    before, weight = network(x), head.weight.detach().clone()
    replaced = grow_head(network, 7)
    after = network(x)
    assert after.shape == (20, 7)
    assert torch.equal(head.weight[:3], weight)
    assert_same_but_for_rounding(after[:, :3], before)
    assert torch.equal(after[:, 3:], torch.zeros(20, 4))
    assert len(replaced) == 1 + bias
    assert [p.requires_grad for p in network.parameters()] == [False, False] + [True] * (1 + bias)


@pytest.mark.parametrize("method", METHODS)
def test_right_after_growing_old_classes_are_answered_and_predicted_as_before(method: str) -> None:
    learner = two_tasks(METHODS[method]())
    asked = batch(9, samples=7).images
    before = [learner._evaluate(network, asked) for network in learner.networks]
    outputs = learner.logits(asked)
    learner.grow(GROWN)
    for network, was in zip(learner.networks, before, strict=True):
        now = learner._evaluate(network, asked)
        assert_same_but_for_rounding(now[:, :CLASSES], was)
        assert torch.equal(now[:, :CLASSES].argmax(dim=1), was.argmax(dim=1))
        assert not now[:, CLASSES:].any()
    assert_same_but_for_rounding(learner.logits(asked)[:, :CLASSES], outputs)


@pytest.mark.parametrize("method", ["der++", "ser"])
def test_logits_kept_in_the_buffer_are_widened_by_zeros(method: str) -> None:
    learner = two_tasks(METHODS[method]())
    before = copy.deepcopy(learner.buffer).sample(6)
    learner.grow(GROWN)
    after = copy.deepcopy(learner.buffer).sample(6)
    assert torch.equal(after.samples.ids, before.samples.ids)
    assert torch.equal(after.extras["logits"][:, :CLASSES], before.extras["logits"])
    assert not after.extras["logits"][:, CLASSES:].any()


@pytest.mark.parametrize("method", METHODS)
def test_what_has_grown_goes_on_learning_old_classes_and_new(method: str) -> None:
    learner = two_tasks(METHODS[method]())
    learner.grow(GROWN)
    for number in range(20):
        learner.observe(labelled(50 + number % 2, 7, 7, 2, 7))
    logits = learner.logits(labelled(50, 7, 7, 2, 7).images)
    assert logits.shape == (4, GROWN)
    assert learner.network.head.weight.grad is not None
    assert learner.buffer.counts().get(7, 0) > 0


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_an_optimiser_keeps_what_it_knew_of_grown_weights(kind: str) -> None:
    def make(network: nn.Module) -> torch.optim.Optimizer:
        if kind == "adam":
            return torch.optim.Adam(network.parameters(), lr=LR)
        return torch.optim.SGD(network.parameters(), lr=LR, momentum=0.9)

    network = make_network(0)
    optimiser = make(network)
    x = torch.rand(6, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        optimiser.zero_grad()
        network(x).square().sum().backward()
        optimiser.step()
    twin = copy.deepcopy(network)
    twin_optimiser = make(twin)
    twin_optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    grow_optimiser(optimiser, grow_head(network, GROWN))
    for model, mine in ((network, optimiser), (twin, twin_optimiser)):
        mine.zero_grad()
        # Sums over the old outputs alone: the new ones get no gradient to speak of.
        model(x)[:, :CLASSES].square().sum().backward()
        mine.step()
    assert_same_but_for_rounding(network.head.weight[:CLASSES], twin.head.weight)
    assert_same_but_for_rounding(network.conv.weight, twin.conv.weight)
    assert not network.head.weight[CLASSES:].any()
    assert len(optimiser.state) == len(twin_optimiser.state)


def test_growing_to_no_more_than_there_is_changes_nothing() -> None:
    learner = two_tasks(ER())
    before = copy.deepcopy(learner.state_dict())
    learner.grow(CLASSES)
    learner.grow(2)
    assert same(learner.state_dict(), before)


@pytest.mark.parametrize("method", METHODS)
def test_a_grown_learner_saved_and_loaded_ends_in_the_same_bits(method: str) -> None:
    whole = two_tasks(METHODS[method](), momentum=0.9)
    whole.grow(GROWN)
    whole.observe(labelled(20, 7, 6, 1, 7))
    loaded = make_learner(METHODS[method](), momentum=0.9)
    loaded.load_state_dict(copy.deepcopy(whole.state_dict()))
    for learner in (whole, loaded):
        learner.observe(labelled(21, 7, 5, 0, 3))
        learner.restart()
        learner.observe(labelled(22, 7, 5, 0, 3))
    assert same(loaded.state_dict(), whole.state_dict())
    head = growing_head_of(loaded.network)
    assert head is not None
    assert head.out_features == GROWN


def test_a_grown_network_made_anew_has_as_many_outputs() -> None:
    learner = two_tasks(ER())
    learner.grow(GROWN)
    learner.restart()
    assert learner.logits(batch(1).images).shape[1] == GROWN
