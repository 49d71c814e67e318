"""One head: features, growth and everything else go by the layer that makes the outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from run_tools import complaint
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from driftwise.models import MLP, ResNet18, SmallCNN, ViTTiny
from driftwise.models.head import (
    encode,
    find_head,
    growing_head_of,
    has_features,
    head_of,
    num_outputs,
    with_features,
)
from driftwise.models.inputs import Prepared

X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
MAPS = torch.randn(5, 2, 8, 8, generator=torch.Generator().manual_seed(0))


class Listed(nn.Module):
    """A body and a head of one width, listed in any order, and a forward of one's own."""

    body: nn.Linear
    head: nn.Linear
    aux: nn.Linear

    def __init__(self, *order: str, forward: Callable[[Any, Tensor], Any] | None = None) -> None:
        super().__init__()
        for name in order or ("head", "body"):
            setattr(self, name, nn.Linear(6 if name == "body" else 3, 3))
        self.says = forward or (lambda self, x: self.head(self.body(x).relu()))

    def forward(self, x: Tensor) -> Any:
        return self.says(self, x)


class Cosine(nn.Module):
    """A head of one's own: the cosine to a direction per class."""

    def __init__(self) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(3, 4))
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        normal = nn.functional.normalize
        return self.temperature * normal(x) @ normal(self.directions).T


class Tokens(nn.Module):
    """A head that answers at every place; the answers are averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.embed = nn.Linear(4, 3), nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(x.view(-1, 3, 2))).mean(dim=1)
        return logits


def shared() -> nn.Module:
    """One layer that serves twice: inside, and as the head."""
    square = nn.Linear(3, 3)
    return nn.Sequential(nn.Linear(6, 3), square, nn.ReLU(), square)


def normed() -> nn.Module:
    """A head whose weights are computed from others."""
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), weight_norm(nn.Linear(4, 3)))


HEADS: dict[str, tuple[Callable[[], Any], Callable[[Any], nn.Module], bool]] = {
    "listed first": (Listed, lambda net: net.head, True),
    "beside an unused one": (lambda: Listed("body", "head", "aux"), lambda net: net.head, True),
    "in a sequence": (
        lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 3)),
        lambda net: net[2],
        True,
    ),
    "before a softmax": (
        lambda: nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3), nn.LogSoftmax(dim=1)),
        lambda net: net[1],
        True,
    ),
    "behind dropout and norm": (
        lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3)),
        lambda net: net[3],
        True,
    ),
    "the whole network": (lambda: nn.Linear(6, 3), lambda net: net, True),
    "called twice, within and at the end": (shared, lambda net: net[1], False),
    "with computed weights": (normed, lambda net: net[2], False),
    "of one's own": (
        lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), Cosine()),
        lambda net: net[2],
        False,
    ),
    "at every place": (Tokens, lambda net: net.head, True),
}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("wrapped", ["as it is", "copied", "prepared", "in training"])
def test_the_head_is_the_layer_that_makes_the_outputs(kind: str, wrapped: str) -> None:
    make, head, grows = HEADS[kind]
    network = make().train(wrapped == "in training")
    find_head(network, X)
    outer = network
    if wrapped == "copied":
        outer = network = copy.deepcopy(network)
    elif wrapped == "prepared":
        outer = nn.Sequential(network)
    assert head_of(outer) is head(network)
    assert (growing_head_of(outer) is not None) is grows
    read: list[Tensor] = []
    head(network).register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    outputs = encode(outer.eval(), X)
    features = read[-1] if read[-1].ndim == 2 else read[-1].mean(dim=1)
    assert torch.equal(outputs.features, features)
    assert torch.equal(outputs.logits, outer(X))


def test_of_a_head_listed_first_the_features_are_not_the_raw_input() -> None:
    network = Listed("head", "body").eval()
    features = encode(network, X).features  # nobody has looked for the head before
    assert torch.equal(features, network.body(X).relu())


@pytest.mark.parametrize("side", [8, 1])
def test_a_convolution_may_be_the_head(side: int) -> None:
    kernel = 1 if side == 8 else 8
    pool = nn.AdaptiveAvgPool2d(1)
    network = nn.Sequential(nn.Conv2d(2, 4, 1), nn.Conv2d(4, 3, kernel), pool, nn.Flatten()).eval()
    maps = network[0](MAPS)
    features = encode(network, MAPS).features
    assert head_of(network) is network[1]
    assert growing_head_of(network) is None
    # Where it answers at every place and the answers are averaged, the mean is what it reads.
    expected = maps.flatten(2).mean(dim=2) if kernel == 1 else maps.flatten(1)
    assert torch.equal(features, expected)


HEADLESS: dict[str, Callable[[], nn.Module]] = {
    "two layers make the outputs": lambda: Listed(
        "body", "head", "aux", forward=lambda net, x: net.head(net.body(x)) + net.aux(net.body(x))
    ),
    "one head for two views": lambda: Listed(
        forward=lambda net, x: net.head(net.body(x)) + net.head(net.body(-x))
    ),
    "a head per task": lambda: Listed(
        "body",
        "head",
        "aux",
        forward=lambda net, x: torch.cat([net.head(x[:, :3]), net.body(x)], 1),
    ),
    "a norm behind it": lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)),
    "no layer": nn.Flatten,
    "a tuple": lambda: Listed(forward=lambda net, x: (net.head(net.body(x)), x)),
    "an error": lambda: Listed(forward=lambda net, x: net.missing(x)),
}


@pytest.mark.parametrize("kind", HEADLESS)
def test_a_network_without_a_head_is_refused_and_with_what_to_do(kind: str) -> None:
    network = HEADLESS[kind]()
    find_head(network, X)
    assert head_of(network) is None
    assert not has_features(network)
    if kind not in ("a tuple", "an error"):
        assert "pass features=" in complaint(lambda: encode(network.eval(), X))


@pytest.mark.parametrize("features", ["body", lambda network, x: network.body(x)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_features_can_be_given(features: Any, wrapped: bool) -> None:
    bare = HEADLESS["two layers make the outputs"]()
    network = with_features(bare, features).eval()
    find_head(network, X)
    outer = copy.deepcopy(nn.Sequential(network)) if wrapped else network
    outputs = encode(outer, X)
    assert torch.equal(outputs.features, network.get_submodule("body")(X))
    assert torch.equal(outputs.logits, bare(X))
    assert not has_features(bare), "the network that was given stays as it was"


def test_given_features_take_the_place_of_what_the_head_reads() -> None:
    network = with_features(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)), "1").eval()
    find_head(network, X)
    assert torch.equal(encode(network, X).features, network(X))
    assert growing_head_of(network) is network.get_submodule("1")


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ("bodi", "did you mean 'body'"),
        (lambda network, x: None, "got NoneType"),
        (lambda network, x: network.body(x)[:2], "for each of 5 samples; got the shape (2, 3)"),
        (lambda network, x: network.missing, "got AttributeError"),
        ("aux", "the name of a layer that a forward calls"),
    ],
)
def test_features_that_are_none_are_refused(features: Any, words: str) -> None:
    network = Listed("body", "head", "aux")
    assert words in complaint(lambda: encode(with_features(network, features), X))


def test_a_module_as_features_is_refused_since_the_network_is_copied() -> None:
    network = Listed()
    assert "the name of a layer" in complaint(lambda: with_features(network, network.body))
    assert "a torch module as network" in complaint(lambda: with_features("mlp", "body"))


@pytest.mark.parametrize("kind", [MLP, SmallCNN, ResNet18, ViTTiny])
def test_built_in_networks_have_the_features_that_they_say(kind: Any) -> None:
    small = {"width": 2} if kind is ResNet18 else {"depth": 1} if kind is ViTTiny else {}
    network = kind(input_shape=(2, 8, 8), num_classes=3, **small)
    assert num_outputs(network, MAPS) == 3
    prepared = Prepared(network, channels=2).eval()
    assert torch.equal(encode(prepared, MAPS).features, network.features(MAPS))
    assert growing_head_of(prepared) is network.head


def test_the_head_is_searched_for_once() -> None:
    network = Listed().eval()
    calls: list[int] = []
    network.register_forward_pre_hook(lambda *_: calls.append(1))
    encode(network, X)
    first = len(calls)
    encode(network, X)
    assert len(calls) == first + 1


def test_looking_for_the_head_books_nothing() -> None:
    booked: list[int] = []

    class Books:
        only_counts = True

        def __call__(self, *_: object) -> None:
            booked.append(1)

        def __deepcopy__(self, memo: object) -> Books:
            return self

    network = Listed().eval()
    network.register_forward_hook(Books())
    encode(network, X)
    assert len(booked) == 1
