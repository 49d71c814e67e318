"""A-GEM, a custom method that shapes gradients between backward and the optimiser's step."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from learn_builders import LR, MINIBATCH, batch, labelled, make_learner, twin_of, weights_of
from same_state import same
from torch import nn
from torch.nn.functional import cross_entropy

from driftwise.config.registry import CATALOGUE, needs_vectors
from driftwise.methods import ER, Method
from driftwise.models.inputs import to_input

FILE = Path(__file__).parents[2] / "examples" / "agem.py"


@pytest.fixture(scope="module")
def agem() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("agem", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["agem"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["agem"]


def gradients(network: nn.Module, samples: Any) -> torch.Tensor:
    """Of the cross-entropy on these samples, in one vector."""
    x = to_input(samples.images, torch.device("cpu"))
    loss = cross_entropy(network(x), samples.labels)
    found = torch.autograd.grad(loss, list(network.parameters()))
    return torch.cat([each.reshape(-1) for each in found])


def flat(network: nn.Module) -> torch.Tensor:
    return torch.cat([weight.detach().reshape(-1) for weight in network.parameters()])


def linear(attempt: int) -> nn.Module:
    torch.manual_seed(attempt)
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 5))


def test_a_step_moves_along_the_projected_gradient(agem: Any) -> None:
    learner = make_learner(agem.AGEM(samples=MINIBATCH), make=linear, capacity=20, lr=LR)
    learner.observe(labelled(1, 0, 1, 0, 1, 0))
    learner.begin_task((2, 3))
    bent = 0
    for step in range(2, 8):
        samples = labelled(step, 2, 3, 2, 3, 2)
        drawn = twin_of(learner.buffer).sample(MINIBATCH).samples
        g, r = gradients(learner.network, samples), gradients(learner.network, drawn)
        if (g * r).sum() < 0:
            g = g - (g * r).sum() / (r * r).sum() * r
            bent += 1
        before = flat(learner.network)
        learner.observe(samples)
        torch.testing.assert_close(flat(learner.network), before - LR * g, rtol=1e-4, atol=1e-6)
    assert bent


@pytest.mark.parametrize("how", [{"bf16": True}, {"compiled_samples": (5, MINIBATCH)}], ids=str)
def test_gradients_are_shaped_under_every_way_of_making_steps(
    agem: Any, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_with = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, **more: compile_with(f, backend="eager", **more)
    )
    projected: list[int] = []
    project = agem.project

    def noting(gradient: Any, reference: Any) -> None:
        assert all(each.dtype == torch.float32 for each in (*gradient, *reference))
        assert any(each.abs().sum() > 0 for each in reference)
        projected.append(len(gradient))
        project(gradient, reference)

    monkeypatch.setattr(agem, "project", noting)
    learner = make_learner(agem.AGEM(samples=MINIBATCH), capacity=20, **how)
    for step in range(4):
        learner.observe(batch(step))
    assert projected == [len(list(learner.network.parameters()))] * len(projected)
    assert projected


class Scales(ER):
    """Halves every gradient."""

    def after_backward(self, network: nn.Module) -> None:
        for weight in network.parameters():
            assert weight.grad is not None
            weight.grad.mul_(0.5)


class Unchanged(ER):
    """Changes nothing."""

    def after_backward(self, network: nn.Module) -> None:
        pass


def test_what_a_method_writes_into_gradients_is_what_the_optimiser_takes() -> None:
    plain, halved = make_learner(ER(), lr=LR), make_learner(Scales(), lr=2 * LR)
    unchanged = make_learner(Unchanged(), lr=LR)
    for step in range(4):
        for learner in (plain, halved, unchanged):
            learner.observe(batch(step))
    assert same(weights_of(plain.network), weights_of(unchanged.network))
    assert same(weights_of(plain.network), weights_of(halved.network))


def test_no_built_in_method_pays_for_it() -> None:
    for name, entry in CATALOGUE["method"].items():
        assert needs_vectors(name) or entry.factory().after_backward is Method.after_backward
    assert not make_learner(ER())._shapes_gradients
    assert make_learner(Unchanged())._shapes_gradients
