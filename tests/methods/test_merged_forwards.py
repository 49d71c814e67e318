"""One forward over several sets of samples ends in the step that several forwards end in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from learn_builders import CLASSES, SHAPE, labelled, make_learner
from torch import Tensor, nn

from driftwise import rng
from driftwise.learner import Learner
from driftwise.methods import (
    CLSER,
    ER,
    ERACE,
    SER,
    DERpp,
    Method,
)
from driftwise.methods.base import Inputs
from driftwise.models.layers import treats_samples_independently

METHODS: dict[str, Callable[[], Method]] = {
    "er": ER,
    "er-ace": ERACE,
    "der++": lambda: DERpp(),
    "ser": lambda: SER(),
    "cls-er": lambda: CLSER(),
}


def known_layers(attempt: int) -> nn.Module:
    height, width, channels = SHAPE
    with rng.as_global(rng.fork(7, "network", attempt)):
        hidden, head = nn.Linear(height * width * channels, 6), nn.Linear(6, CLASSES)
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), head)


class Unknown(nn.Sequential):
    """The same layers in a class of which nobody knows what it does: nothing is merged."""


def unknown_layers(attempt: int) -> nn.Module:
    return Unknown(*known_layers(attempt).children())


def two_tasks(make: Callable[[int], nn.Module], method: str) -> tuple[Learner, list[float]]:
    """Two tasks of steps, full and short ones, and what each of them lost."""
    learner = make_learner(METHODS[method](), make=make, capacity=8)
    losses = []
    for classes in ((0, 1), (2, 3)):
        learner.begin_task(classes)
        for step in range(4):
            samples = labelled(10 * classes[0] + step, *(3 * list(classes))[: 5 - step])
            losses.append(learner.observe(samples).loss)
        learner.end_task()
    return learner, losses


@pytest.mark.parametrize("method", METHODS)
def test_merged_forwards_learn_what_single_ones_do(method: str) -> None:
    merged, losses = two_tasks(known_layers, method)
    single, expected = two_tasks(unknown_layers, method)
    assert treats_samples_independently(merged.network)
    assert not treats_samples_independently(single.network)
    assert losses == pytest.approx(expected, rel=1e-5)
    for mine, theirs in zip(merged.networks, single.networks, strict=True):
        for name, weight in theirs.state_dict().items():
            torch.testing.assert_close(mine.state_dict()[name], weight)


@pytest.mark.parametrize("make", [known_layers, unknown_layers])
def test_the_frozen_network_sees_the_images_that_the_trained_one_sees(
    make: Callable[[int], nn.Module],
) -> None:
    learner = make_learner(
        METHODS["ser"](), make=make, capacity=8, augmentation="crop-flip", minibatch_size=4
    )
    learner.begin_task((0, 1))
    learner.observe(labelled(1, 0, 1, 0, 1))
    learner.begin_task((2, 3))
    seen: list[Tensor] = []
    for network in learner.networks:
        network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    learner.observe(labelled(2, 2, 3, 2, 3))
    trained, frozen = seen[0], seen[-1]
    assert torch.equal(trained[: len(frozen)], frozen)


def test_samples_become_floats_once_whoever_asks_first() -> None:
    calls: list[int] = []

    def convert(images: Tensor, *counts: int) -> Tensor:
        assert counts in ((), (2, 3)), "it knows of which parts the whole is made"
        calls.append(len(images))
        return images.float() + len(calls)  # another answer every time, as an augmentation has

    def inputs(samples: int) -> Inputs:
        y = torch.zeros(samples, dtype=torch.int64)
        return Inputs(torch.zeros(samples, 2, dtype=torch.uint8), y, {}, convert=convert)

    first, second, third = inputs(2), inputs(3), inputs(1)
    whole = Inputs.together(first, second)
    assert calls == [5]
    assert torch.equal(torch.cat([first.x, second.x]), whole)
    assert torch.equal(Inputs.together(third, first), torch.cat([third.x, first.x]))
    assert calls == [5, 1]
