"""Classes that arrive at any time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import STABLE, engine_of, feed, live_learner, small_network
from run_tools import complaint
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import driftwise
from driftwise.models.head import with_features

METHODS = ("er", "er-ace", "der++", "ser", "cls-er")
QUICK = {"stable_update_freq": 0.9, "stable_alpha": 0.9, "plastic_alpha": 0.9}
"""averages that keep pace with so short a stream"""


@pytest.mark.parametrize("method", METHODS)
def test_classes_that_arrive_in_mid_stream_are_learned_and_old_ones_kept(method: str) -> None:
    early, late = STABLE.labels < 3, STABLE.labels == 5
    options = {"method": QUICK} if method == "cls-er" else {}
    mine = live_learner(method=method, lr=0.1, options=options)
    for samples in np.array_split(np.flatnonzero(early)[:300], 30):
        mine.observe(STABLE.images[samples], STABLE.labels[samples])
    images = STABLE.images[early][300:400]
    before = mine.predict_proba(images)
    assert before.shape[1] == 3
    engine = engine_of(mine)
    kept = engine.learner.logits(torch.from_numpy(images))
    engine.learner.grow(6)  # what the next batch is going to do first
    engine.outputs = 6
    grown = engine.learner.logits(torch.from_numpy(images))
    torch.testing.assert_close(grown[:, :3], kept, rtol=1e-6, atol=1e-6)
    assert np.array_equal(engine.predict(torch.from_numpy(images)), before.argmax(axis=1))

    both = np.flatnonzero(late | early)[300:]
    seen = mine.observe(STABLE.images[late][:20], STABLE.labels[late][:20])
    assert seen.new_classes == (5,)
    for samples in np.array_split(np.tile(both, 2), 150):
        mine.observe(STABLE.images[samples], STABLE.labels[samples])
    assert mine.classes == (0, 1, 2, 5)
    proba = mine.predict_proba(STABLE.images[late])
    assert proba.shape == (late.sum(), 6)
    assert not proba[:, 3:5].any(), "classes that nobody has seen are not predicted"
    assert (mine.predict(STABLE.images[late]) == 5).mean() > 0.7
    assert (mine.predict(images) == STABLE.labels[early][300:400]).mean() > 0.7


def test_a_given_network_grows_and_its_original_is_left_alone() -> None:
    network = small_network(3)
    before = [weight.clone() for weight in network.parameters()]
    mine = live_learner(network, lr=0.1)
    feed(mine, STABLE, samples=200)
    assert mine.classes == tuple(range(10))
    assert mine.predict_proba(STABLE.images[:4]).shape == (4, 10)
    assert all(map(torch.equal, before, network.parameters()))


def test_all_outputs_of_a_network_that_was_given_may_be_predicted_before_anything_is_seen() -> None:
    network = small_network(4)
    mine = live_learner(network)
    with torch.no_grad():
        logits = network(torch.from_numpy(STABLE.images[:50]).permute(0, 3, 1, 2).float() / 255)
    assert np.array_equal(mine.predict(STABLE.images[:50]), logits.argmax(dim=1).numpy())
    seen = mine.observe(STABLE.images[:50])
    assert np.array_equal(seen.predicted, logits.argmax(dim=1).numpy())
    assert mine.classes == ()


def normed() -> nn.Module:
    """A head whose weights are made of others."""
    network = small_network(3)
    weight_norm(network.get_submodule("3"))
    return network


FIXED: list[tuple[Callable[[], nn.Module], dict[str, Any]]] = [
    (lambda: small_network(3), {"grow": False}),
    (lambda: nn.Sequential(nn.Conv2d(1, 3, 8), nn.Flatten()), {}),
    (lambda: with_features(Summed("body", "head", "aux"), "body"), {}),
    (normed, {}),
]


@pytest.mark.parametrize(("make", "settings"), FIXED, ids=["grow=False", "conv", "summed", "norm"])
def test_a_network_that_cannot_or_must_not_grow_takes_its_own_classes_and_no_others(
    make: Callable[[], nn.Module], settings: dict[str, Any]
) -> None:
    images = STABLE.images
    mine = live_learner(make(), **settings)
    for number in range(2):
        assert "labels are at most 2 here; got 4" in complaint(
            lambda: mine.observe(images[:2], [1, 4])
        )
        assert mine.num_samples == 3 * number, "nothing was used of the batch"
        mine.observe(images[:3], [0, 1, 2])
    assert "at most 2" in complaint(lambda: mine.answer([0], [3]))
    assert mine.classes == (0, 1, 2)


def test_one_mistaken_label_does_not_cost_gigabytes() -> None:
    mine = live_learner()
    assert "labels are at most 9999 here; got 1e+09" in complaint(
        lambda: mine.observe(STABLE.images[:1], [10**9])
    )
    mine.observe(STABLE.images[:1], [1])
    assert "at most 9999" in complaint(lambda: mine.observe(STABLE.images[:1], [10_000]))


class Listed(nn.Module):
    """Three outputs of a head behind a body, and the layers listed in any order."""

    body: nn.Linear
    head: nn.Linear
    aux: nn.Linear

    def __init__(self, *order: str) -> None:
        super().__init__()
        layers = {"body": (64, 3), "head": (3, 3), "aux": (3, 3)}
        for name in order:
            setattr(self, name, nn.Linear(*layers[name]))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x.flatten(1)).relu())
        return logits


class Summed(Listed):
    """Outputs that two layers make together: to widen one of them is not enough."""

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x.flatten(1)).relu()
        logits: Tensor = self.head(features) + self.aux(features)
        return logits


ORDERS = [("body", "head", "aux"), ("head", "body"), ("aux", "head", "body"), ("body", "head")]


@pytest.mark.parametrize(
    ("order", "method"), list(zip((*ORDERS, ORDERS[0]), METHODS, strict=True)), ids=str
)
def test_the_layer_that_makes_the_outputs_grows_wherever_it_is_listed(
    order: tuple[str, ...], method: str
) -> None:
    few = STABLE.labels < 3
    network = Listed(*order)
    mine = live_learner(network, method=method, momentum=0.9, normalise=True)
    mine.observe(STABLE.images[few][:20], STABLE.labels[few][:20])
    learner = engine_of(mine).learner
    for start in range(0, 40, 10):
        mine.observe(STABLE.images[start : start + 10], STABLE.labels[start : start + 10])
    learner.restart()
    mine.observe(STABLE.images[:10], STABLE.labels[:10])
    assert mine.predict_proba(STABLE.images[:4]).shape == (4, 10)
    for each in learner.networks:
        shapes = {name: tuple(weight.shape) for name, weight in each.state_dict().items()}
        assert {shape for name, shape in shapes.items() if "head.weight" in name} == {(10, 3)}
        assert {shape for name, shape in shapes.items() if "aux.weight" in name} <= {(3, 3)}
    assert network.head.out_features == 3, "the original is left alone"


@pytest.mark.parametrize(
    ("order", "grown"), list(zip(ORDERS, (False, True, True, False), strict=True)), ids=str
)
def test_a_loaded_live_learner_still_knows_which_layer_grows(
    order: tuple[str, ...], grown: bool, tmp_path: Path
) -> None:
    images, network = STABLE.images, Listed(*order)
    with live_learner(network, folder=tmp_path / "kept", momentum=0.9) as mine:
        mine.observe(images[:5], [0, 1, 2, 1, 4 if grown else 2])
    with driftwise.LiveLearner.load(tmp_path / "kept", network) as loaded:
        loaded.observe(images[:2], [0, 6])
        assert loaded.predict_proba(images[:4]).shape == (4, 7)


class Backbone(Listed):
    """Made by its name, with a layer of the head's size behind it."""

    def __init__(self, *, input_shape: tuple[int, ...], num_classes: int) -> None:
        assert (math.prod(input_shape), num_classes) == (64, 3)
        super().__init__("body", "head", "aux")


def test_a_custom_backbone_grows_where_it_makes_its_outputs() -> None:
    images = STABLE.images
    mine = live_learner(f"{__name__}:Backbone")
    mine.observe(images[:3], [0, 1, 2])
    mine.observe(images[:2], [0, 4])
    engine_of(mine).learner.restart()
    mine.observe(images[:2], [0, 4])
    assert mine.predict_proba(images[:4]).shape == (4, 5)


def test_a_live_learner_changes_nothing_about_an_ordinary_network() -> None:
    network = small_network(3)
    mine = live_learner(network)
    chance = torch.get_rng_state()
    mine.observe(STABLE.images[:3], [0, 1, 2])
    assert torch.equal(torch.get_rng_state(), chance)
    layers = [vars(each) for each in engine_of(mine).learner.network.modules()]
    more = [
        vars_.keys() - given.keys()
        for vars_, given in zip(layers, map(vars, network.modules()), strict=True)
    ]
    assert more == [set()] * (len(layers) - 1) + [{"_head_can_grow"}], "a mark on our copy's head"
