"""Compiled forwards: for full steps alone, and nothing else notices.

The graphs are run as they are (torch's backend `eager`): what a C++ compiler makes of them is not
this project's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from learn_builders import MINIBATCH, batch, make_learner, state_of, two_tasks_and_a_restart
from run_tools import complaint
from same_state import same
from torch import nn

from driftwise.compiled import Compiled
from driftwise.config.learners import make_learner as learner_of
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.methods import (
    CLSER,
    ER,
    SER,
    DERpp,
    Method,
)

ROWS = 4
FULL = (ROWS, MINIBATCH, ROWS + MINIBATCH)
METHODS: dict[str, Callable[[], Method]] = {
    "er": ER,
    "der++": lambda: DERpp(),
    "ser": lambda: SER(),
    "cls-er": lambda: CLSER(stable_update_freq=0.5),
}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The samples of every graph that is compiled."""
    made: list[int] = []
    compile_with = torch.compile

    def noting(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        made.append(next(len(each) for each in inputs if each.shape[1:] == (2, 4, 4)))
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", lambda f, **how: compile_with(f, backend=noting, **how))
    return made


def test_a_short_batch_never_compiles(graphs: list[int]) -> None:
    learner = make_learner(compiled_samples=FULL, capacity=20)
    for step, samples in enumerate((4, 4, 4, 3, 4, 1, 2, 4, 3)):
        learner.observe(batch(step, samples))
    assert sorted(graphs) == [4, 8]  # the first step, when nothing was there to draw; all others


def test_a_task_with_a_short_last_batch_makes_one_graph(graphs: list[int]) -> None:
    learner = make_learner(compiled_samples=FULL, capacity=20)
    learner.buffer.offer(batch(100, 20))
    for epoch in range(3):
        for step, samples in enumerate((4, 4, 4, 3)):
            learner.observe(batch(10 * epoch + step, samples))
    assert graphs == [8]


@pytest.mark.parametrize("method", METHODS)
def test_it_changes_nothing_but_how_forwards_are_computed(method: str, graphs: list[int]) -> None:
    plain = make_learner(METHODS[method]())
    compiled = make_learner(METHODS[method](), compiled_samples=FULL)
    for learner in (plain, compiled):
        for move in two_tasks_and_a_restart():
            move(learner)
    assert graphs
    assert same(state_of(plain), state_of(compiled))


def test_hooks_see_every_forward_and_stay_outside_of_the_graphs(graphs: list[int]) -> None:
    learner = make_learner(compiled_samples=FULL, capacity=20)
    calls: list[int] = []
    learner.network.register_forward_hook(lambda _, inputs, __: calls.append(len(inputs[0])))
    for step in range(4):
        learner.observe(batch(step, ROWS))
    assert calls == [4, 8, 8, 8]
    assert sorted(graphs) == [4, 8]
    assert "forward" not in vars(learner.network)


def test_cuda_graphs_are_recorded_anew_for_each_step_and_their_outputs_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As far as that can be seen without CUDA: what torch is asked for, and where a step begins."""
    asked: list[Any] = []

    def as_it_is(forward: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        asked.append(how)
        return forward

    monkeypatch.setattr(torch, "compile", as_it_is)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: asked.append("step"))
    plain, recorded = (
        make_learner(compiled_samples=FULL, cuda_graphs=graphs) for graphs in (False, True)
    )
    for learner in (plain, recorded):
        for step in range(2):
            learner.observe(batch(step, ROWS))
    ways = [{"dynamic": False, "mode": mode} for mode in (None, "reduce-overhead")]
    assert asked == [*ways, "step", "step"]
    x = torch.zeros(ROWS, 2, 4, 4)
    recorded.network.forward = lambda _: x
    compiled = Compiled(recorded.network, FULL, cuda_graphs=True)
    assert compiled(x) is not x
    assert same(state_of(plain), state_of(recorded))


def test_without_a_compiler_or_with_narrow_convolutions_it_is_refused_in_one_line(
    graphs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(**settings: Any) -> nn.Module:
        config = resolve(RunConfig(compile=True, device="cpu", **settings))
        return learner_of(config, (8, 8, 1), 10).network

    narrow: dict[str, Any] = {"backbone": "resnet18", "options": {"backbone": {"width": 4}}}
    assert "at least 8 maps" in complaint(lambda: made(**narrow))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "needs a C++ compiler" in complaint(lambda: made(backbone="mlp"))
    assert graphs == []
