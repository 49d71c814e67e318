from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from learn_builders import (
    CLASSES,
    MINIBATCH,
    TinyNet,
    as_floats,
    assert_step_is,
    batch,
    labelled,
    make_learner,
    make_network,
    slow_cross_entropy,
    slow_logits,
    state_of,
    tiny,
    weights_of,
)
from run_tools import complaint
from same_state import same
from torch import Tensor, nn

from driftwise.errors import RunFailure
from driftwise.memory import ReplayBuffer
from driftwise.methods import ER, Draw, Inputs, Method, Outcome
from driftwise.types import Extras, Samples

# --- experience replay, written out -------------------------------------------------------------


def replay_together(net: TinyNet, memory: ReplayBuffer, samples: Samples) -> Tensor:
    """One mean over the batch and a draw, in one forward."""
    if len(memory):
        samples = Samples.concat([samples, memory.sample(MINIBATCH).samples])
    return slow_cross_entropy(slow_logits(net, as_floats(samples)), samples.labels)


@pytest.mark.parametrize("steps_before", [0, 1, 4], ids=["empty memory", "filling", "full"])
def test_er_takes_the_gradient_of_one_mean_over_stream_and_buffer_samples(
    steps_before: int,
) -> None:
    learner = make_learner()
    for number in range(steps_before):
        learner.observe(batch(number))
    assert_step_is(learner, batch(99), replay_together)


def test_a_step_reports_the_logits_of_the_network_before_it_moved() -> None:
    learner = make_learner()
    learner.observe(batch(0))
    samples = batch(1, samples=20)
    before = copy.deepcopy(learner)
    twin = copy.deepcopy(before.network).train()
    replay = before.buffer.sample(4).samples
    x = as_floats(Samples.concat([samples, replay]))
    outputs = twin(x)[:20].argmax(dim=1)
    report = learner.observe(samples)
    assert (report.samples, report.correct) == (20, int((outputs == samples.labels).sum()))


# --- the order of things ------------------------------------------------------------------------


class Spy(Method):
    """ER that keeps what it saw, and whose memory samples carry the logits of their step."""

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

    def state_dict(self) -> dict[str, Any]:
        return {}  # what it saw is nobody's state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        self.calls.append(("begin", tuple(classes)))

    def end_task(self, network: nn.Module) -> None:
        self.calls.append("end")

    def after_step(self, network: nn.Module) -> None:
        self.calls.append("after")


def test_the_batch_is_offered_to_the_buffer_only_after_its_own_step() -> None:
    spy = Spy()
    learner = make_learner(spy, capacity=100, minibatch_size=100)
    for number in range(3):
        learner.observe(batch(number))
        assert len(learner.buffer) == 5 * (number + 1)
    assert spy.draws[0] is None
    for number, draw in enumerate(spy.draws[1:], start=1):
        assert draw is not None
        expected = sorted(int(label) for i in range(number) for label in batch(i).labels)
        assert sorted(draw.y.tolist()) == expected


def test_the_method_is_notified_of_tasks_and_of_every_move() -> None:
    spy = Spy()
    learner = make_learner(spy)
    classes = tuple(range(CLASSES))
    learner.begin_task(classes)
    learner.observe(batch(0))
    learner.observe(batch(1))
    learner.end_task()
    assert spy.calls == [("begin", classes), "outcome", "after", "outcome", "after", "end"]


def test_a_draw_is_as_large_as_asked_for_and_never_larger_than_the_buffer() -> None:
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


@pytest.mark.parametrize("samples", [0, 1, 600], ids=["none", "one", "more than a portion"])
@pytest.mark.parametrize("training", [True, False])
def test_predicting_and_annotating_change_nothing(samples: int, training: bool) -> None:
    learner = make_learner(Spy(), make=lambda attempt: Dropping())
    learner.network.eval()
    with torch.random.fork_rng():
        learner.observe(batch(0))
    learner.network.train(training)
    before = state_of(learner)
    asked = batch(1, samples=samples)
    logits = learner.logits(asked.images)
    extras = learner.annotate(asked)
    assert same(state_of(learner), before)
    assert logits.shape == (samples, CLASSES)
    assert not logits.requires_grad
    assert not extras["logits"].requires_grad
    torch.testing.assert_close(extras["logits"], logits)


@pytest.mark.parametrize("samples", [5, 700])
def test_the_published_way_to_annotate_is_one_training_forward_of_the_batch(samples: int) -> None:
    learner = make_learner(Spy(), annotate_in_training=True)
    learner.observe(batch(0))
    fresh = batch(1, samples=samples)
    twin = tiny(learner.network).train()
    with torch.no_grad():
        wanted = twin(as_floats(fresh))
    before = weights_of(learner.network)
    found = learner.annotate(fresh)["logits"]
    assert not found.requires_grad
    torch.testing.assert_close(found, wanted)
    after = weights_of(learner.network)
    assert same(after, weights_of(twin)), "batch norm saw the batch once"
    assert not torch.equal(after["norm.running_mean"], before["norm.running_mean"])
    assert not torch.allclose(found, learner.logits(fresh.images))


class Unsteady(TinyNet):
    """Draws from the global state whatever its mode."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), 0.5, training=True)


def test_a_network_that_draws_while_it_is_asked_moves_no_random_state_and_repeats_itself() -> None:
    learner = make_learner(Spy(), make=lambda attempt: Unsteady())
    learner.observe(batch(0))
    before = state_of(learner)
    asked = batch(1, samples=20)
    outputs = learner.logits(asked.images)
    assert (outputs == 0).any(), "it does draw"
    assert (outputs != 0).any()
    for again in (
        learner.logits(asked.images),
        learner.encode(asked.images).logits,
        learner.annotate(asked)["logits"],
    ):
        assert torch.equal(again, outputs)
    assert same(state_of(learner), before)


def test_predictions_do_not_depend_on_the_samples_beside_them() -> None:
    learner = make_learner()
    learner.observe(batch(0))
    images = batch(1, samples=1030).images
    alone = torch.cat([learner.logits(images[i : i + 1]) for i in (0, 511, 512, 1029)])
    torch.testing.assert_close(learner.logits(images)[[0, 511, 512, 1029]], alone)


# --- starting over, failing, going on -----------------------------------------------------------


def test_a_restart_forgets_weights_statistics_and_momentum_and_keeps_the_buffer() -> None:
    learner = make_learner(momentum=0.9)
    for number in range(3):
        learner.observe(batch(number))
    memory = copy.deepcopy(learner.buffer.state_dict())
    network = learner.network
    learner.restart()
    assert learner.network is network, "hooks and references to the network must survive"
    assert same(dict(network.state_dict()), dict(make_network(1).state_dict()))
    assert not same(dict(network.state_dict()), dict(make_network(0).state_dict()))
    assert same(learner.buffer.state_dict(), memory)

    fresh = make_learner(momentum=0.9, make=lambda attempt: make_network(attempt + 1))
    fresh.buffer.load_state_dict(memory)
    for number in (3, 4):
        assert learner.observe(batch(number)).loss == fresh.observe(batch(number)).loss
    learner.restart()
    assert same(dict(network.state_dict()), dict(make_network(2).state_dict()))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step(bad: float) -> None:
    class Breaks(ER):
        def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
            sound = super().outcome(network, stream, draw)
            factor = 1.0 if len(learner.buffer) < 6 else bad
            return Outcome(loss=sound.loss * factor, logits=sound.logits)

    learner = make_learner(Breaks())
    learner.observe(batch(0))
    learner.observe(batch(1))
    weights = copy.deepcopy(list(learner.network.parameters()))
    with pytest.raises(RunFailure, match=rf"the loss became {bad} at step 3; .*learning rate"):
        learner.observe(batch(2))
    assert same(list(learner.network.parameters()), weights)
    assert learner.buffer.seen == 10


class Bursts(Spy):
    """Sends a weight to infinity after its third step."""

    def after_step(self, network: nn.Module) -> None:
        super().after_step(network)
        if self.calls.count("after") == 3:
            next(network.parameters()).data[0] = float("-inf")


@pytest.mark.parametrize("ended_by", ["the loop", "a new class"])
def test_weights_that_a_last_step_has_made_diverge_end_no_task_and_are_reported(
    ended_by: str,
) -> None:
    spy = Bursts()
    learner = make_learner(spy)
    learner.begin_task((0, 1))
    for number in range(3):
        assert math.isfinite(learner.observe(labelled(number, 0, 1)).loss)
    message = "weights were not finite after step 3; try a lower learning rate"
    ending: dict[str, Callable[[], object]] = {
        "the loop": learner.end_task,
        "a new class": lambda: learner.observe(labelled(4, 2)),
    }
    assert complaint(ending[ended_by], RunFailure) == message
    assert "end" not in spy.calls


class Restless(nn.Module):
    """Its norm keeps no statistics, so that it has nothing to go by for a single sample."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(32, CLASSES)
        self.norm = nn.BatchNorm1d(CLASSES, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.norm(self.head(x.flatten(1)))
        return logits


def test_a_norm_that_cannot_learn_from_a_single_sample_is_reported_in_one_line() -> None:
    learner = make_learner(make=lambda attempt: Restless())
    learner.observe(batch(0))
    learner.observe(batch(1, samples=1))  # beside samples from memory
    for label in range(CLASSES):
        learner.buffer.drop(label)
    message = complaint(lambda: learner.observe(batch(2, samples=1)))
    assert message.startswith("the network's batch norm cannot learn from a single sample")
    assert "choose a batch_size that leaves no sample over" in message


def test_an_empty_batch_is_refused_before_anything_moves() -> None:
    learner = make_learner()
    learner.observe(batch(0))
    before = state_of(learner)
    with pytest.raises(ValueError, match="at least one sample"):
        learner.observe(batch(1, samples=0))
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


def test_a_method_without_state_refuses_the_state_of_another() -> None:
    ER().load_state_dict({})
    with pytest.raises(ValueError, match="keeps no state; got \\['ema'\\]"):
        ER().load_state_dict({"ema": 1})


def test_columns_are_never_asked_about_a_table_without_samples_or_classes() -> None:
    class Sure(Spy):
        def columns(self, logits: Tensor) -> Extras:
            return {"sure": logits.softmax(1).max(1).values}

    learner = make_learner(Sure())
    learner.observe(batch(0))
    assert learner.annotate(batch(1))["sure"].shape == (5,)
