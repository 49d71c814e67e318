from __future__ import annotations

from collections.abc import Sequence

import pytest
from learn_builders import (
    CLASSES,
    MINIBATCH,
    Formula,
    TinyNet,
    as_floats,
    assert_step_is,
    labelled,
    make_learner,
    play_tasks,
    slow_cross_entropy,
    slow_logits,
    stream_alone,
    tiny,
)
from torch import Tensor

from driftwise.memory import ReplayBuffer
from driftwise.methods import ERACE
from driftwise.types import Samples


def asymmetric(*competing: int, replays: bool = True) -> Formula:
    """Stream samples against some classes, a draw against all of them, each in its own forward."""

    def formula(net: TinyNet, memory: ReplayBuffer, samples: Samples) -> Tensor:
        outputs = slow_logits(net, as_floats(samples))
        loss = slow_cross_entropy(outputs, samples.labels, competing)
        if replays:
            drawn = memory.sample(MINIBATCH).samples
            assert len(drawn) == MINIBATCH
            loss = loss + slow_cross_entropy(slow_logits(net, as_floats(drawn)), drawn.labels)
        return loss

    return formula


def test_the_first_task_is_plain_cross_entropy_without_replay() -> None:
    learner = make_learner(ERACE())
    learner.begin_task((0, 1))
    assert_step_is(learner, labelled(1, 0, 1, 1), stream_alone)
    assert len(learner.buffer) == 3
    assert_step_is(learner, labelled(2, 0, 0, 1), stream_alone)


@pytest.mark.parametrize(
    ("tasks", "now", "earlier", "labels", "competing"),
    [
        pytest.param([(0, 1)], (2,), (), (2, 2, 2), (2, 3, 4), id="new and still to come"),
        pytest.param([(0,)], (1, 2), (), (1, 2, 1), (1, 2, 3, 4), id="the batch counts itself"),
        pytest.param([(0,)], (1, 2), (2,), (1, 1), (1, 2, 3, 4), id="highest seen, not present"),
        pytest.param([(0, 1)], (2, 3), (2, 3), (0, 1, 0), (0, 1, 3, 4), id="only old classes"),
        pytest.param([(0, 3)], (1,), (), (1, 1), (1, 2, 4), id="a label below an old one"),
        pytest.param([(4, 2)], (3, 0), (), (3, 3), (0, 1, 3), id="in an order of its own"),
        pytest.param([(4, 2)], (3, 0), (0,), (3, 3), (0, 1, 3), id="newest seen, not present"),
        pytest.param([(), (0, 1)], (2,), (), (2, 2, 2), (2, 3, 4), id="after an empty task"),
        pytest.param([(0, 1), (2,)], (3, 4), (), (3, 4, 3), (3, 4), id="last label in the batch"),
        pytest.param([(0, 1)], (2, 4), (4,), (2, 1), (1, 2, 3, 4), id="one is never announced"),
        pytest.param([(0, 1, 3)], (2, 4), (4,), (2, 1), (1, 2), id="last class before the batch"),
        pytest.param([(4, 3, 2)], (1, 0), (0,), (1, 4, 1), (1, 4), id="the last has label 0"),
        pytest.param([(0, 1), (2, 3)], (4,), (), (4, 4), (4,), id="nobody competes"),
    ],
)
def test_stream_samples_compete_with_classes_present_or_still_to_come(
    tasks: list[tuple[int, ...]],
    now: tuple[int, ...],
    earlier: tuple[int, ...],
    labels: tuple[int, ...],
    competing: Sequence[int],
) -> None:
    learner = make_learner(ERACE())
    play_tasks(learner, *tasks)
    learner.begin_task(now)
    if earlier:
        learner.observe(labelled(1, *earlier))
    assert_step_is(learner, labelled(2, *labels), asymmetric(*competing))


def test_an_empty_buffer_adds_nothing() -> None:
    learner = make_learner(ERACE())
    play_tasks(learner, (0, 1))
    for label in (0, 1):
        learner.buffer.drop(label)
    learner.begin_task((2,))
    assert_step_is(learner, labelled(1, 2, 2), asymmetric(2, 3, 4, replays=False))


@pytest.mark.parametrize("empty", [1, 2])
def test_tasks_before_any_class_has_come_do_not_count(empty: int) -> None:
    learner = make_learner(ERACE())
    play_tasks(learner, *[()] * empty)
    learner.begin_task((0, 1))
    for number in range(3):
        assert_step_is(learner, labelled(number, 0, 1, 1), stream_alone)
    learner.end_task()
    learner.begin_task(())
    assert_step_is(learner, labelled(9, 1, 1), asymmetric(1, 2, 3, 4))


def test_classes_that_do_not_compete_are_left_alone_by_the_stream() -> None:
    learner = make_learner(ERACE())
    play_tasks(learner, (0, 1))
    for label in (0, 1):
        learner.buffer.drop(label)
    learner.begin_task((2,))
    learner.observe(labelled(1, 2, 2))
    gradient = dict(learner.network.named_parameters())["head.bias"].grad
    assert gradient is not None
    assert [bool(gradient[label] != 0) for label in range(CLASSES)] == [False, False] + [True] * 3


def test_unannounced_classes_begin_the_second_task() -> None:
    learner = make_learner(ERACE())
    assert_step_is(learner, labelled(1, 0, 1, 1), stream_alone)
    assert_step_is(learner, labelled(2, 1, 0, 0), stream_alone)
    assert_step_is(learner, labelled(3, 2, 2, 0), asymmetric(0, 2, 3, 4, replays=True))


def test_a_restart_is_no_first_task() -> None:
    learner = make_learner(ERACE())
    play_tasks(learner, (0, 1), (2,))
    learner.restart()
    assert_step_is(learner, labelled(1, 1, 1, 1), asymmetric(1, 2, 3, 4))


def test_correct_means_right_among_all_classes() -> None:
    learner = make_learner(ERACE())
    play_tasks(learner, (0, 4), (2, 3))
    learner.begin_task((1,))
    samples = labelled(1, *[1] * 8)  # masked, nothing but the truth would be left to predict
    predicted = slow_logits(tiny(learner.network).train(), as_floats(samples)).argmax(dim=1)
    right = int((predicted == 1).sum())
    assert right < 8
    assert learner.observe(samples).correct == right
