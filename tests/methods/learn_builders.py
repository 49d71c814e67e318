"""A tiny network, learners around it, and forwards and losses written out by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from same_state import same
from torch import Tensor, nn

from driftwise import rng
from driftwise.learner import Learner, TrainSettings
from driftwise.memory import ReplayBuffer
from driftwise.memory.policies import Reservoir
from driftwise.methods import ER, Method
from driftwise.models.head import find_head
from driftwise.types import Samples

CLASSES = 5
SHAPE = (4, 4, 2)
"""Height, width and channels of an image."""
LR = 0.1
MINIBATCH = 4

Formula = Callable[["TinyNet", ReplayBuffer, Samples], Tensor]
"""The loss of a step: a network, whose statistics move by the forwards; a memory; the batch."""
Move = Callable[[Learner], object]


class TinyNet(nn.Module):
    """A convolution, a batch norm and a head."""

    def __init__(self, maps: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, maps, 3)
        self.norm = nn.BatchNorm2d(maps)
        self.head = nn.Linear(maps, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.conv(x)).relu().mean(dim=(2, 3)))
        return logits


def make_network(attempt: int) -> TinyNet:
    with rng.as_global(rng.fork(7, "network", attempt)):
        network = TinyNet()
    find_head(network, torch.zeros(2, 2, 4, 4))
    return network


def make_learner(
    method: Method | None = None,
    *,
    make: Callable[[int], nn.Module] = make_network,
    memory: ReplayBuffer | None = None,
    capacity: int = 6,
    lr: float = LR,
    momentum: float = 0.0,
    minibatch_size: int = MINIBATCH,
    seed: int = 0,
    **train_settings: Any,
) -> Learner:
    return Learner(
        make,
        method or ER(),
        buffer=memory or ReplayBuffer(capacity, policy=Reservoir(), seed=0),
        optimiser=lambda net: torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum),
        settings=TrainSettings(minibatch_size=minibatch_size, **train_settings),
        seed=seed,
    )


def labelled(number: int, *labels: int) -> Samples:
    """Random images with these labels, other ones for every number."""
    samples = len(labels)
    draw = rng.fork(number, "batch")
    return Samples(
        images=torch.randint(256, (samples, *SHAPE), generator=draw, dtype=torch.uint8),
        labels=torch.tensor(labels, dtype=torch.int64),
        ids=torch.arange(samples) + 100 * number,
        concepts=torch.zeros(samples, dtype=torch.int64),
    )


def batch(number: int, samples: int = 5) -> Samples:
    """The same with random labels."""
    draw = rng.fork(number, "labels")
    return labelled(number, *torch.randint(CLASSES, (samples,), generator=draw).tolist())


def play_tasks(learner: Learner, *tasks: Sequence[int]) -> None:
    """Tasks with these new classes, from their beginning to their end, in two steps each."""
    for number, classes in enumerate(tasks, start=1):
        learner.begin_task(classes)
        for step in (1, 2) if classes else ():
            learner.observe(labelled(1000 * number + step, *(4 * list(classes))[:4]))
        learner.end_task()


def tiny(network: nn.Module) -> TinyNet:
    """A copy of the network, in the same mode and on a graph of its own."""
    copied = copy.deepcopy(network)
    assert isinstance(copied, TinyNet)
    return copied


def twin_of(memory: Any) -> ReplayBuffer:
    """Another memory with the same samples, which will draw the same ones."""
    twin = ReplayBuffer(memory.capacity, policy=Reservoir(), seed=123)
    twin.load_state_dict(memory.state_dict())
    return twin


def all_stored(memory: Any) -> tuple[Samples, Tensor]:
    """Every sample and the logits beside it, ordered by identity; the memory's own draws stay."""
    stored = twin_of(memory).sample(len(memory))
    order = stored.samples.ids.argsort()
    return stored.samples[order], stored.extras["logits"][order]


def weights_of(network: nn.Module) -> dict[str, Any]:
    """A copy of parameters and statistics."""
    return copy.deepcopy(dict(network.state_dict()))


def state_of(learner: Learner) -> dict[str, Any]:
    """A copy of everything that may change, the modes of all modules and global states included."""
    return copy.deepcopy(
        {
            **learner.state_dict(),
            "modes": [m.training for network in learner.networks for m in network.modules()],
            "torch": torch.get_rng_state(),
            "numpy": repr(np.random.get_state()),  # noqa: NPY002  (the state that must not change)
        }
    )


# --- forwards and losses, written out -----------------------------------------------------------


def as_floats(samples: Samples) -> Tensor:
    """(samples, h, w, c) bytes -> (samples, c, h, w) between 0 and 1, pixel by pixel."""
    height, width, channels = SHAPE
    x = torch.empty(len(samples), channels, height, width)
    for i, image in enumerate(samples.images.tolist()):
        for h in range(height):
            for w in range(width):
                for c in range(channels):
                    x[i, c, h, w] = image[h][w][c] / 255
    return x


def slow_logits(net: TinyNet, x: Tensor) -> Tensor:
    """The forward; in training mode it also moves the batch norm's statistics, all by hand."""
    maps = net.conv(x)
    norm = net.norm
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    if norm.training:
        count = maps.numel() // maps.shape[1]
        mean = maps.sum(dim=(0, 2, 3)) / count
        variance = ((maps - mean[:, None, None]) ** 2).sum(dim=(0, 2, 3)) / count
        norm.running_mean.mul_(0.9).add_(0.1 * mean.detach())
        norm.running_var.mul_(0.9).add_(0.1 * variance.detach() * count / (count - 1))
        norm.num_batches_tracked.add_(1)
    else:
        mean, variance = norm.running_mean, norm.running_var
    normed = (maps - mean[:, None, None]) / (variance + norm.eps).sqrt()[:, None, None]
    normed = normed * norm.weight[:, None, None] + norm.bias[:, None, None]
    logits: Tensor = normed.clamp(min=0).mean(dim=(2, 3)) @ net.head.weight.T + net.head.bias
    return logits


def slow_cross_entropy(
    logits: Tensor, labels: Tensor, competing: Sequence[int] = range(CLASSES)
) -> Tensor:
    """Mean over samples of -log(exp(true logit) / sum of exp(logit) over the competing classes)."""
    total = torch.zeros(())
    for sample, label in zip(logits, labels.tolist(), strict=True):
        others = torch.zeros(())
        for each in competing:
            others = others + torch.exp(sample[each])
        total = total - torch.log(torch.exp(sample[label]) / others)
    return total / len(logits)


def slow_distance(outputs: Tensor, target: Tensor) -> Tensor:
    """Mean over samples and classes of the squared difference."""
    assert outputs.shape == target.shape
    total = torch.zeros(())
    for i in range(outputs.shape[0]):
        for j in range(outputs.shape[1]):
            total = total + (outputs[i, j] - target[i, j]) ** 2
    return total / outputs.numel()


def stream_alone(net: TinyNet, memory: ReplayBuffer, samples: Samples) -> Tensor:
    """The formula of a step that draws nothing."""
    return slow_cross_entropy(slow_logits(net, as_floats(samples)), samples.labels)


# --- laws that every method is held to ----------------------------------------------------------


def assert_step_is(learner: Learner, samples: Samples, formula: Formula) -> None:
    """The learner's next step descends the gradient of the formula, and draws and counts alike."""
    net = tiny(learner.network).train()
    twin = twin_of(learner.buffer)
    expected = formula(net, twin, samples)
    expected.backward()  # type: ignore[no-untyped-call]

    report = learner.observe(samples)
    assert report.loss == pytest.approx(float(expected.detach()), rel=1e-5, abs=1e-7)
    after = dict(learner.network.named_parameters())
    assert len(after) == 6
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(after[name].grad, parameter.grad, rtol=1e-4, atol=1e-6)
        moved = parameter.detach() - LR * parameter.grad
        torch.testing.assert_close(after[name].detach(), moved, rtol=1e-4, atol=1e-6)
    assert_same_statistics(learner.network, net)
    drawn = [memory.state_dict()["generators"]["sample"] for memory in (learner.buffer, twin)]
    assert torch.equal(*drawn), "the step must draw exactly as often as the formula"


def assert_same_statistics(network: nn.Module, other: nn.Module) -> None:
    """Equal running means and variances, from equally many batches."""
    mine, theirs = dict(network.named_buffers()), dict(other.named_buffers())
    assert list(mine) == list(theirs) == [f"norm.{name}" for name in _STATISTICS]
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-5, atol=1e-6)


_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def assert_pauses_change_nothing(make: Callable[[], Learner], moves: Sequence[Move]) -> None:
    """Saved before every move and taken up by another learner, it ends in the same bits."""
    whole, paused = make(), make()
    for number, move in enumerate(moves):
        saved = copy.deepcopy(paused.state_dict())
        paused = make()
        paused.observe(labelled(77, 4, 1, 4))  # whatever it did before must not matter
        paused.end_task()
        paused.restart()
        paused.load_state_dict(saved)
        for learner in (whole, paused):
            move(learner)
        assert same(paused.state_dict(), whole.state_dict()), f"paused before move {number}"
    asked = batch(500).images
    assert torch.equal(paused.logits(asked), whole.logits(asked))
    assert not same(dict(whole.network.state_dict()), dict(make().network.state_dict()))


def observing(number: int, *labels: int) -> Move:
    """One step, as a move."""
    return lambda learner: learner.observe(labelled(number, *labels))


def two_tasks_and_a_restart() -> list[Move]:
    """Announced and unannounced boundaries, steps before and after each, a network made anew."""
    return [
        lambda learner: learner.begin_task((0, 1)),
        lambda learner: learner.begin_epoch(1, 2),
        observing(1, 0, 1, 1, 0, 1),
        lambda learner: learner.begin_epoch(2, 2),
        observing(2, 1, 0, 0),
        lambda learner: learner.end_task(),
        observing(3, 2, 2, 0),  # nobody announced 2
        observing(4, 2, 1, 2, 2),
        observing(5, 1, 0, 1),
        observing(6, 3, 2, 3),  # nor 3, and nobody ended the task before
        lambda learner: learner.restart(),
        observing(7, 3, 3, 1),
        lambda learner: learner.end_task(),
        lambda learner: learner.begin_task((4,)),
        observing(8, 4, 4, 4),
        observing(9, 0, 4),
        observing(10, 1, 0, 1),  # only old ones
    ]
