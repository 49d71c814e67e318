from __future__ import annotations

from typing import Any

import pytest
import torch
from learn_builders import (
    MINIBATCH,
    Formula,
    TinyNet,
    all_stored,
    as_floats,
    assert_step_is,
    batch,
    labelled,
    make_learner,
    slow_cross_entropy,
    slow_distance,
    slow_logits,
    stream_alone,
    tiny,
)
from torch import Tensor

from driftwise.errors import UserError
from driftwise.memory import ReplayBuffer, Stored
from driftwise.memory.policies import Reservoir
from driftwise.methods import DERpp
from driftwise.types import Samples


def dark(alpha: float, beta: float) -> Formula:
    """Stream, one draw for its logits, another for its labels: three forwards, in this order."""

    def formula(net: TinyNet, memory: ReplayBuffer, samples: Samples) -> Tensor:
        loss = slow_cross_entropy(slow_logits(net, as_floats(samples)), samples.labels)
        recalled = memory.sample(MINIBATCH)
        again = slow_logits(net, as_floats(recalled.samples))
        loss = loss + alpha * slow_distance(again, recalled.extras["logits"])
        labels = memory.sample(MINIBATCH).samples
        return loss + beta * slow_cross_entropy(slow_logits(net, as_floats(labels)), labels.labels)

    return formula


@pytest.mark.parametrize(("alpha", "beta"), [(0.2, 0.5), (1.5, 0.0), (0.0, 2.0)])
def test_a_step_is_the_stream_and_two_draws_in_forwards_of_their_own(
    alpha: float, beta: float
) -> None:
    learner = make_learner(DERpp(alpha=alpha, beta=beta), capacity=12)
    assert_step_is(learner, batch(0), stream_alone)
    for number in range(1, 5):  # from the second step of the first task on
        assert_step_is(learner, batch(number, samples=3 + number), dark(alpha, beta))


def at_once(net: TinyNet, memory: ReplayBuffer, samples: Samples) -> Tensor:
    """Stream and one draw in one forward, the draw for its logits and for its labels."""
    drawn = memory.sample(MINIBATCH)
    outputs = slow_logits(net, torch.cat([as_floats(samples), as_floats(drawn.samples)]))
    logits, again = outputs[: len(samples)], outputs[len(samples) :]
    loss = slow_cross_entropy(logits, samples.labels)
    loss = loss + 0.2 * slow_distance(again, drawn.extras["logits"])
    return loss + 0.5 * slow_cross_entropy(again, drawn.samples.labels)


def test_one_forward_takes_one_draw_for_both_terms() -> None:
    learner = make_learner(DERpp(one_forward=True), capacity=12)
    assert_step_is(learner, batch(0), stream_alone)
    for number in range(1, 5):
        assert_step_is(learner, batch(number, samples=3 + number), at_once)


def test_the_published_weights_are_the_default() -> None:
    learner = make_learner(DERpp(), capacity=12)
    learner.observe(batch(0))
    assert_step_is(learner, batch(1), dark(0.2, 0.5))


def test_no_weight_may_be_negative() -> None:
    wrongs: tuple[dict[str, Any], ...] = ({"alpha": -0.1}, {"beta": -0.1})
    for wrong in wrongs:
        with pytest.raises(UserError, match="at least 0; got"):
            DERpp(**wrong)


class Recording(ReplayBuffer):
    """Writes down the images of every draw."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, policy=Reservoir(), seed=0)
        self.drawn: list[set[bytes]] = []

    def sample(self, count: int) -> Stored:
        stored = super().sample(count)
        self.drawn.append({image.numpy().tobytes() for image in stored.samples.images})
        return stored


def test_the_two_draws_of_a_step_are_independent() -> None:
    memory = Recording(20)
    memory.offer(batch(0, samples=20), {"logits": torch.zeros(20, 5)})
    learner = make_learner(DERpp(), memory=memory)
    steps = 200
    for number in range(steps):
        learner.observe(labelled(1 + number, 0, 1))
    first, second = memory.drawn[0::2], memory.drawn[1::2]
    assert len(first) == len(second) == steps
    assert all(len(each) == 4 for each in memory.drawn)
    assert all(one != other for one, other in zip(first, second, strict=True))
    # Of 4 samples out of 20, 4 others drawn independently share 0.8, with a variance of 0.539.
    shared = sum(len(one & other) for one, other in zip(first, second, strict=True))
    assert abs(shared - 0.8 * steps) < 4 * (0.539 * steps) ** 0.5


def test_samples_are_kept_with_the_logits_of_the_network_while_training_before_it_moved() -> None:
    learner = make_learner(DERpp(), capacity=100)
    outputs: list[Tensor] = []
    for number in range(3):
        samples = batch(number)
        outputs.append(slow_logits(tiny(learner.network).train(), as_floats(samples)).detach())
        learner.observe(samples)
    moved = slow_logits(tiny(learner.network).train(), as_floats(batch(2))).detach()
    samples, logits = all_stored(learner.buffer)
    assert samples.ids.tolist() == [100 * number + i for number in range(3) for i in range(5)]
    torch.testing.assert_close(logits, torch.cat(outputs), rtol=1e-4, atol=1e-5)
    assert float((logits[-5:] - moved).abs().max()) > 1e-2
    assert not logits.requires_grad
