from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from same_state import same
from torch import Tensor, nn

from recollect import rng
from recollect.errors import RunFailure
from recollect.learn import ER, Draw, Inputs, Learner, Objective, Outcome, Practice
from recollect.memory import Memory
from recollect.memory.policies import Reservoir
from recollect.types import Extras, Rows

CLASSES = 3
SHAPE = (4, 4, 2)
"""Height, width and channels of a picture."""


class TinyNet(nn.Module):
    """A convolution, a batch norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.conv(x)).relu().mean(dim=(2, 3)))
        return logits


def make_network(attempt: int) -> nn.Module:
    with rng.as_global(rng.fork(7, "network", attempt)):
        return TinyNet()


def make_learner(
    objective: Objective | None = None,
    *,
    make: Callable[[int], nn.Module] = make_network,
    capacity: int = 6,
    momentum: float = 0.0,
    minibatch_size: int = 4,
) -> Learner:
    return Learner(
        make_network=make,
        make_optimiser=lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum),
        memory=Memory(capacity, policy=Reservoir(), seed=0),
        objective=objective or ER(),
        practice=Practice(minibatch_size=minibatch_size),
        seed=0,
    )


def batch(number: int, rows: int = 5) -> Rows:
    """Random pictures, other ones for every number."""
    draw = rng.fork(number, "batch")
    return Rows(
        images=torch.randint(256, (rows, *SHAPE), generator=draw, dtype=torch.uint8),
        labels=torch.randint(CLASSES, (rows,), generator=draw),
        ids=torch.arange(rows) + 100 * number,
        concepts=torch.zeros(rows, dtype=torch.int64),
    )


def state_of(learner: Learner) -> dict[str, Any]:
    """A copy of everything that may change, the modes of all modules and global states included."""
    return copy.deepcopy(
        {
            **learner.state_dict(),
            "modes": [module.training for module in learner.network.modules()],
            "torch": torch.get_rng_state(),
            "numpy": repr(np.random.get_state()),  # noqa: NPY002  (the state that must not change)
        }
    )


# --- experience replay, written out -------------------------------------------------------------


def as_floats(rows: Sequence[Rows]) -> tuple[Tensor, list[int]]:
    """(rows, h, w, c) bytes -> (rows, c, h, w) between 0 and 1, pixel by pixel."""
    images = [image for part in rows for image in part.images.tolist()]
    height, width, channels = SHAPE
    x = torch.empty(len(images), channels, height, width)
    for i, image in enumerate(images):
        for h in range(height):
            for w in range(width):
                for c in range(channels):
                    x[i, c, h, w] = image[h][w][c] / 255
    return x, [int(label) for part in rows for label in part.labels]


def slow_loss(net: TinyNet, x: Tensor, y: list[int]) -> Tensor:
    """Mean cross-entropy; also moves the batch norm's statistics of `net`, all by hand."""
    maps = net.conv(x)
    mean = maps.mean(dim=(0, 2, 3))
    centred = maps - mean[:, None, None]
    count = maps.numel() // 3
    variance = (centred**2).sum(dim=(0, 2, 3)) / count
    scale = (variance + net.norm.eps).sqrt()
    normed = centred / scale[:, None, None]
    normed = normed * net.norm.weight[:, None, None] + net.norm.bias[:, None, None]
    logits = normed.clamp(min=0).mean(dim=(2, 3)) @ net.head.weight.T + net.head.bias
    terms = []
    for row, label in zip(logits, y, strict=True):
        terms.append(torch.log(sum((row - row[label]).exp(), start=torch.zeros(()))))
    statistics = net.norm
    assert statistics.running_mean is not None
    assert statistics.running_var is not None
    statistics.running_mean.mul_(0.9).add_(0.1 * mean.detach())
    statistics.running_var.mul_(0.9).add_(0.1 * variance.detach() * count / (count - 1))
    return sum(terms, start=torch.zeros(())) / len(terms)


@pytest.mark.parametrize("steps_before", [0, 1, 4], ids=["empty memory", "filling", "full"])
def test_er_takes_the_gradient_of_one_mean_over_stream_and_memory_rows(steps_before: int) -> None:
    learner = make_learner()
    for number in range(steps_before):
        learner.observe(batch(number))
    net = copy.deepcopy(learner.network)
    assert isinstance(net, TinyNet)
    twin = Memory(6, policy=Reservoir(), seed=0)
    twin.load_state_dict(learner.memory.state_dict())
    replayed = [twin.sample(4).rows] if steps_before else []
    assert sum(map(len, replayed)) == (4 if steps_before else 0)

    report = learner.observe(batch(99))
    x, y = as_floats([batch(99), *replayed])
    expected = slow_loss(net, x, y)
    expected.backward()  # type: ignore[no-untyped-call]

    assert report.loss == pytest.approx(float(expected.detach()), rel=1e-5)
    after = dict(learner.network.named_parameters())
    assert len(after) == 6
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(after[name].grad, parameter.grad, rtol=1e-4, atol=1e-6)
        moved = parameter.detach() - 0.1 * parameter.grad
        torch.testing.assert_close(after[name].detach(), moved, rtol=1e-4, atol=1e-6)
    there = dict(learner.network.named_buffers())
    for name, buffer in net.named_buffers():
        if name != "norm.num_batches_tracked":
            torch.testing.assert_close(there[name], buffer, rtol=1e-5, atol=1e-6)
    assert int(there["norm.num_batches_tracked"]) == steps_before + 1


def test_a_step_reports_what_the_network_said_before_it_moved() -> None:
    learner = make_learner()
    learner.observe(batch(0))
    rows = batch(1, rows=20)
    before = copy.deepcopy(learner)
    twin = copy.deepcopy(before.network).train()
    replay = before.memory.sample(4).rows
    x, _ = as_floats([rows, replay])
    said = twin(x)[:20].argmax(dim=1)
    report = learner.observe(rows)
    assert (report.rows, report.correct) == (20, int((said == rows.labels).sum()))


# --- the order of things ------------------------------------------------------------------------


class Spy(Objective):
    """ER that keeps what it saw, and whose memory rows carry the logits of their step."""

    def __init__(self) -> None:
        self.draws: list[Inputs | None] = []
        self.logits: list[Tensor] = []
        self.calls: list[object] = []

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        self.calls.append("outcome")
        self.draws.append(draw())
        outcome = ER().outcome(network, stream, lambda count=None: self.draws[-1])
        self.logits.append(outcome.logits.detach().clone())
        return outcome

    def columns(self, logits: Tensor) -> Extras:
        return {"logits": logits}

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        self.calls.append(("begin", tuple(classes)))

    def end_task(self, network: nn.Module) -> None:
        self.calls.append("end")

    def after_step(self, network: nn.Module) -> None:
        self.calls.append("after")


def test_the_batch_is_offered_to_memory_only_after_its_own_step() -> None:
    spy = Spy()
    learner = make_learner(spy, capacity=100, minibatch_size=100)
    for number in range(3):
        learner.observe(batch(number))
        assert len(learner.memory) == 5 * (number + 1)
    assert spy.draws[0] is None
    for number, draw in enumerate(spy.draws[1:], start=1):
        assert draw is not None
        expected = sorted(int(label) for i in range(number) for label in batch(i).labels)
        assert sorted(draw.y.tolist()) == expected


def test_rows_in_memory_carry_their_step_and_what_the_network_said_in_it() -> None:
    spy = Spy()
    learner = make_learner(spy, capacity=100)
    for number in range(3):
        learner.observe(batch(number))
    stored = learner.memory.sample(100)
    for identity, step, said in zip(
        stored.rows.ids.tolist(), stored.steps.tolist(), stored.extras["logits"], strict=True
    ):
        number, row = divmod(identity, 100)
        assert step == number + 1
        assert torch.equal(said, spy.logits[number][row])


def test_the_method_is_told_of_tasks_and_of_every_move() -> None:
    spy = Spy()
    learner = make_learner(spy)
    learner.begin_task([1, 2])
    learner.observe(batch(0))
    learner.observe(batch(1))
    learner.end_task()
    assert spy.calls == [("begin", (1, 2)), "outcome", "after", "outcome", "after", "end"]


def test_a_draw_is_as_large_as_asked_for_and_never_larger_than_the_memory() -> None:
    sizes = []

    class Draws(ER):
        def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
            for count in (None, 2, 50):
                drawn = draw() if count is None else draw(count)
                sizes.append(0 if drawn is None else len(drawn.y))
            return super().outcome(network, stream, draw)

    learner = make_learner(Draws())
    learner.observe(batch(0))
    learner.observe(batch(1))
    assert sizes == [0, 0, 0, 4, 2, 5]


# --- asking changes nothing ---------------------------------------------------------------------


class Dropping(TinyNet):
    """Has a layer that would draw from the global state, and one that stays in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.norm.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.drop(super().forward(x))
        return logits

    def train(self, mode: bool = True) -> Dropping:
        super().train(mode)
        self.norm.eval()
        return self


@pytest.mark.parametrize("rows", [0, 1, 600], ids=["none", "one", "more than a portion"])
@pytest.mark.parametrize("training", [True, False])
def test_predicting_and_annotating_change_nothing(rows: int, training: bool) -> None:
    learner = make_learner(Spy(), make=lambda attempt: Dropping())
    learner.network.eval()
    with torch.random.fork_rng():
        learner.observe(batch(0))
    learner.network.train(training)
    before = state_of(learner)
    asked = batch(1, rows=rows)
    logits = learner.logits(asked.images)
    extras = learner.annotate(asked)
    assert same(state_of(learner), before)
    assert logits.shape == (rows, CLASSES)
    assert not logits.requires_grad
    assert not extras["logits"].requires_grad
    torch.testing.assert_close(extras["logits"], logits)


def test_predictions_do_not_depend_on_the_rows_beside_them() -> None:
    learner = make_learner()
    learner.observe(batch(0))
    images = batch(1, rows=1030).images
    alone = torch.cat([learner.logits(images[i : i + 1]) for i in (0, 511, 512, 1029)])
    torch.testing.assert_close(learner.logits(images)[[0, 511, 512, 1029]], alone)


def test_the_network_that_predicts_may_be_another_than_the_one_that_is_trained() -> None:
    other = make_network(5)

    class Averaged(ER):
        def predictor(self, network: nn.Module) -> nn.Module:
            return other

    learner = make_learner(Averaged())
    x, _ = as_floats([batch(0)])
    with torch.no_grad():
        expected = copy.deepcopy(other).eval()(x)
    torch.testing.assert_close(learner.logits(batch(0).images), expected)
    assert other.training


# --- starting over, failing, going on -----------------------------------------------------------


def test_a_restart_forgets_weights_statistics_and_momentum_and_keeps_the_memory() -> None:
    learner = make_learner(momentum=0.9)
    for number in range(3):
        learner.observe(batch(number))
    memory = copy.deepcopy(learner.memory.state_dict())
    network = learner.network
    learner.restart()
    assert learner.network is network, "hooks and references to the network must survive"
    assert same(dict(network.state_dict()), dict(make_network(1).state_dict()))
    assert not same(dict(network.state_dict()), dict(make_network(0).state_dict()))
    assert same(learner.memory.state_dict(), memory)

    fresh = make_learner(momentum=0.9, make=lambda attempt: make_network(attempt + 1))
    fresh.memory.load_state_dict(memory)
    for number in (3, 4):
        assert learner.observe(batch(number)).loss == fresh.observe(batch(number)).loss
    learner.restart()
    assert same(dict(network.state_dict()), dict(make_network(2).state_dict()))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step(bad: float) -> None:
    class Breaks(ER):
        def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
            sound = super().outcome(network, stream, draw)
            factor = 1.0 if len(learner.memory) < 6 else bad
            return Outcome(loss=sound.loss * factor, logits=sound.logits)

    learner = make_learner(Breaks())
    learner.observe(batch(0))
    learner.observe(batch(1))
    weights = copy.deepcopy(list(learner.network.parameters()))
    with pytest.raises(RunFailure, match=rf"the loss became {bad} at step 3; .*learning rate"):
        learner.observe(batch(2))
    assert same(list(learner.network.parameters()), weights)
    assert learner.memory.seen == 10


def test_an_empty_batch_is_refused_before_anything_moves() -> None:
    learner = make_learner()
    learner.observe(batch(0))
    before = state_of(learner)
    with pytest.raises(ValueError, match="at least one row"):
        learner.observe(batch(1, rows=0))
    assert same(state_of(learner), before)


def test_going_on_from_a_saved_state_equals_never_having_stopped() -> None:
    whole = make_learner(Spy(), momentum=0.9)
    for number in range(4):
        whole.observe(batch(number))
    whole.restart()
    whole.observe(batch(4))
    saved = copy.deepcopy(whole.state_dict())

    resumed = make_learner(Spy(), momentum=0.9)
    resumed.observe(batch(77))  # whatever it did before must not matter
    resumed.load_state_dict(saved)
    for learner in (whole, resumed):
        for number in range(5, 9):
            learner.observe(batch(number))
        learner.restart()
        learner.observe(batch(9))
    assert same(resumed.state_dict(), whole.state_dict())


def test_training_leaves_the_global_random_state_alone() -> None:
    learner = make_learner()
    before = state_of(learner)
    for number in range(3):
        learner.observe(batch(number))
    after = state_of(learner)
    assert same([after["torch"], after["numpy"]], [before["torch"], before["numpy"]])


def test_a_method_without_state_refuses_the_state_of_another() -> None:
    ER().load_state_dict({})
    with pytest.raises(ValueError, match="keeps no state; got \\['ema'\\]"):
        ER().load_state_dict({"ema": 1})
