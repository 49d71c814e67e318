from __future__ import annotations

import pytest
import torch
from learn_builders import (
    MINIBATCH,
    Formula,
    TinyNet,
    all_stored,
    as_floats,
    assert_step_is,
    labelled,
    make_learner,
    play_tasks,
    slow_cross_entropy,
    slow_distance,
    slow_logits,
    stream_alone,
    tiny,
    weights_of,
)
from same_state import same
from torch import Tensor

from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.memory import ReplayBuffer
from driftwise.methods import SER
from driftwise.types import Samples

ALPHA, BETA = 0.3, 0.7


def strong(frozen: TinyNet | None, alpha: float = ALPHA, beta: float = BETA) -> Formula:
    """Stream and a draw as large, each near its own past; the frozen network in evaluation mode."""

    def formula(net: TinyNet, memory: ReplayBuffer, samples: Samples) -> Tensor:
        outputs = slow_logits(net, as_floats(samples))
        loss = slow_cross_entropy(outputs, samples.labels)
        if len(memory):
            replay = memory.sample(len(samples))
            again = slow_logits(net, as_floats(replay.samples))
            loss = loss + slow_cross_entropy(again, replay.samples.labels)
            loss = loss + alpha * slow_distance(again, replay.extras["logits"])
        if frozen is not None:
            assert not frozen.training
            before = slow_logits(frozen, as_floats(samples)).detach()
            loss = loss + beta * slow_distance(outputs, before)
        return loss

    return formula


def ser_learner(capacity: int = 12) -> Learner:
    return make_learner(SER(alpha=ALPHA, beta=BETA), capacity=capacity)


def test_the_first_task_is_plain_cross_entropy_without_replay() -> None:
    learner = ser_learner()
    learner.begin_task((0, 1))
    for number in range(3):
        assert_step_is(learner, labelled(number, 0, 1, 1), stream_alone)
    assert len(learner.buffer) == 9


def test_from_the_second_task_on_a_step_is_all_four_terms() -> None:
    learner = ser_learner()
    play_tasks(learner, (0, 1))
    for number, classes in enumerate([(2,), (3, 4)], start=1):
        frozen = tiny(learner.network).eval()
        learner.begin_task(classes)
        for step in range(3):
            samples = labelled(10 * number + step, *(3 * classes)[:3], 0)
            assert_step_is(learner, samples, strong(frozen))
        learner.end_task()


def test_tasks_before_any_class_has_come_do_not_count() -> None:
    learner = ser_learner()
    play_tasks(learner, ())
    learner.begin_task((0, 1))
    for number in range(3):
        assert_step_is(learner, labelled(number, 0, 1, 1), stream_alone)
    learner.end_task()
    frozen = tiny(learner.network).eval()
    learner.begin_task(())
    assert_step_is(learner, labelled(9, 1, 0), strong(frozen))


def test_the_published_weights_are_the_default() -> None:
    learner = make_learner(SER(), capacity=12)
    play_tasks(learner, (0, 1))
    frozen = tiny(learner.network).eval()
    assert_step_is(learner, labelled(1, 2, 0, 2), strong(frozen, alpha=0.2, beta=0.2))


def test_no_weight_may_be_negative() -> None:
    for wrong in ({"alpha": -0.1}, {"beta": -0.1}):
        with pytest.raises(UserError, match="at least 0; got"):
            SER(**wrong)


@pytest.mark.parametrize(("samples", "drawn"), [(2, 2), (MINIBATCH, MINIBATCH), (7, 7), (11, 8)])
def test_a_draw_is_as_large_as_the_batch_whatever_the_minibatch_size(
    samples: int, drawn: int
) -> None:
    learner = ser_learner()
    play_tasks(learner, (0, 1))
    assert len(learner.buffer) == 8
    learner.begin_task((2,))
    sizes: list[int] = []
    learner.network.register_forward_hook(lambda module, given, out: sizes.append(len(out)))
    learner.observe(labelled(1, *[2] * samples))
    assert sizes == [samples, drawn]


def test_the_frozen_network_is_the_one_that_ended_the_task_and_never_moves() -> None:
    learner = ser_learner()
    learner.begin_task((0, 1))
    learner.observe(labelled(1, 0, 1, 1))
    learner.end_task()
    ended = weights_of(learner.network)
    learner.begin_task((2,))
    for number in range(2, 6):
        learner.observe(labelled(number, 2, 2, 0))
        (frozen,) = learner.method.copies()
        assert same(weights_of(frozen), ended), "statistics included"
        assert not any(module.training for module in frozen.modules())
        assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert not same(weights_of(learner.network), ended)
    learner.end_task()
    (frozen,) = learner.method.copies()
    assert same(weights_of(frozen), weights_of(learner.network))
    assert not any(module.training for module in frozen.modules())


def test_an_unannounced_task_freezes_the_network_as_the_one_before_left_it() -> None:
    learner = ser_learner()
    learner.observe(labelled(1, 0, 1))
    learner.observe(labelled(2, 1, 0))
    frozen = tiny(learner.network).eval()
    assert_step_is(learner, labelled(3, 2, 0, 2), strong(frozen))
    assert_step_is(learner, labelled(4, 2, 1, 2), strong(frozen))


def test_an_empty_buffer_leaves_the_frozen_network_alone_to_hold_on() -> None:
    learner = ser_learner()
    play_tasks(learner, (0, 1))
    for label in (0, 1):
        learner.buffer.drop(label)
    frozen = tiny(learner.network).eval()
    learner.begin_task((2,))
    assert_step_is(learner, labelled(1, 2, 2), strong(frozen))


def test_a_restart_forgets_the_frozen_network_until_a_task_ends_and_goes_on_replaying() -> None:
    learner = ser_learner()
    play_tasks(learner, (0, 1), (2,))
    learner.restart()
    learner.begin_task((3,))
    assert_step_is(learner, labelled(1, 3, 0, 3), strong(None))
    frozen = tiny(learner.network).eval()
    learner.end_task()
    learner.begin_task((4,))
    assert_step_is(learner, labelled(2, 4, 4), strong(frozen))


def test_samples_are_kept_with_their_logits_from_the_first_task_on() -> None:
    learner = ser_learner(capacity=100)
    outputs = []
    for number, labels in enumerate([(0, 1, 0), (1, 1, 0), (2, 2, 1)]):
        samples = labelled(number, *labels)
        outputs.append(slow_logits(tiny(learner.network).train(), as_floats(samples)).detach())
        learner.observe(samples)
    _, logits = all_stored(learner.buffer)
    torch.testing.assert_close(logits, torch.cat(outputs), rtol=1e-4, atol=1e-5)
