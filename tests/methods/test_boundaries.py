from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from learn_builders import (
    LR,
    Move,
    assert_pauses_change_nothing,
    batch,
    labelled,
    make_learner,
    make_network,
    observing,
    state_of,
    tiny,
    two_tasks_and_a_restart,
    weights_of,
)
from same_state import same
from torch import nn

from driftwise.learner import Learner, TrainSettings
from driftwise.methods import ER, Draw, Inputs, Outcome


class Recording(ER):
    """Records every call."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def attach(self, network: nn.Module, seed: int) -> None:
        self.calls.append(("attach", seed))

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        self.calls.append(("begin", tuple(classes)))

    def end_task(self, network: nn.Module) -> None:
        self.calls.append("end")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls.append("loaded")

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        self.calls.append(("step", stream.y.tolist()))
        return super().outcome(network, stream, draw)


class RecordingFromScratch(Recording):
    starts_afresh = True


def rate_of(learner: Learner) -> float:
    (group,) = learner.state_dict()["optimiser"]["param_groups"]
    return float(group["lr"])


# --- tasks --------------------------------------------------------------------------------------


def test_unannounced_classes_end_the_task_and_begin_one_with_those_that_are_new() -> None:
    recording = Recording()
    learner = make_learner(recording)
    learner.observe(labelled(1, 1, 0, 1))
    learner.observe(labelled(2, 0, 1))
    learner.observe(labelled(3, 4, 0, 2, 4))
    learner.observe(labelled(4, 2, 1))
    learner.end_task()
    learner.observe(labelled(5, 3))
    assert recording.calls[1:] == [
        ("begin", (0, 1)),
        ("step", [1, 0, 1]),
        ("step", [0, 1]),
        "end",
        ("begin", (2, 4)),
        ("step", [4, 0, 2, 4]),
        ("step", [2, 1]),
        "end",
        ("begin", (3,)),
        ("step", [3]),
    ]


def test_announced_classes_begin_nothing_by_themselves() -> None:
    recording = Recording()
    learner = make_learner(recording, seed=11)
    learner.begin_task((0, 1))
    learner.observe(labelled(1, 1, 1))
    learner.observe(labelled(2, 0, 2))  # the task was announced in part
    learner.end_task()
    learner.begin_task(())  # without new classes it is a task as well
    learner.observe(labelled(3, 0, 1))
    learner.end_task()
    assert recording.calls == [
        ("attach", 11),
        ("begin", (0, 1)),
        ("step", [1, 1]),
        "end",
        ("begin", (2,)),
        ("step", [0, 2]),
        "end",
        ("begin", ()),
        ("step", [0, 1]),
        "end",
    ]


def test_known_classes_stay_known_over_a_pause() -> None:
    learner = make_learner(Recording())
    learner.begin_task((0, 1))
    learner.observe(labelled(1, 2))
    learner.begin_task((3,))
    for in_task in (True, False):
        if not in_task:
            learner.end_task()
        recording = Recording()
        resumed = make_learner(recording)
        resumed.load_state_dict(learner.state_dict())
        resumed.observe(labelled(2, 0, 1, 2, 3))
        resumed.observe(labelled(3, 4))
        ending = ["end"] if in_task else []
        assert recording.calls[2:] == [
            ("step", [0, 1, 2, 3]),
            *ending,
            ("begin", (4,)),
            ("step", [4]),
        ]


# --- starting over ------------------------------------------------------------------------------


def test_methods_that_start_afresh_do_so_at_every_task_but_the_first() -> None:
    recording = RecordingFromScratch()
    learner = make_learner(recording, momentum=0.9)
    learner.begin_task((0, 1))
    assert same(weights_of(learner.network), weights_of(make_network(0)))
    learner.observe(labelled(1, 0, 1))
    learner.end_task()
    for attempt, label in ((1, 2), (2, 3)):
        learner.begin_task((label,))
        assert recording.calls[-2:] == [("attach", 0), ("begin", (label,))], "first the weights"
        assert same(weights_of(learner.network), weights_of(make_network(attempt)))
        assert not learner.state_dict()["optimiser"]["state"], "no momentum of other weights"
        learner.observe(labelled(attempt + 1, label, 0))
        learner.end_task()


@pytest.mark.parametrize("method", [Recording, RecordingFromScratch])
def test_a_task_that_is_to_begin_from_scratch_restarts_once(method: type[Recording]) -> None:
    recording = method()
    learner = make_learner(recording, momentum=0.9)
    learner.begin_task((0, 1))
    learner.observe(labelled(1, 0, 1))
    learner.begin_task((2,), from_scratch=True)
    assert recording.calls[-3:] == ["end", ("attach", 0), ("begin", (2,))]
    assert recording.calls.count(("attach", 0)) == 2
    assert same(weights_of(learner.network), weights_of(make_network(1)))


def test_a_restart_attaches_the_method_anew_and_is_no_boundary() -> None:
    recording = Recording()
    learner = make_learner(recording, seed=11)
    learner.observe(labelled(1, 0, 1))
    learner.restart()
    learner.observe(labelled(2, 1, 0))
    steps = [("step", [0, 1]), ("attach", 11), ("step", [1, 0])]
    assert recording.calls == [("attach", 11), ("begin", (0, 1)), *steps]
    assert learner.steps == 2


# --- epochs -------------------------------------------------------------------------------------


def falling(epoch: int, epochs: int) -> float:
    return 1 / (epoch * epochs)


def test_steps_are_as_long_as_the_epochs_rate() -> None:
    learner = make_learner(rate=falling)
    for epoch in (1, 2, 3):
        learner.begin_epoch(epoch, 3)
        before = tiny(learner.network)
        learner.observe(batch(epoch))
        for was, now in zip(before.parameters(), learner.network.parameters(), strict=True):
            assert now.grad is not None
            moved = was.detach() - LR / (3 * epoch) * now.grad
            torch.testing.assert_close(now.detach(), moved, rtol=1e-5, atol=1e-7)


def test_the_rate_is_set_for_every_group_of_parameters() -> None:
    def two_groups(network: nn.Module) -> torch.optim.Optimizer:
        first, *rest = network.parameters()
        groups: list[dict[str, Any]] = [{"params": [first], "lr": 0.5}, {"params": rest}]
        return torch.optim.SGD(groups, lr=0.2)

    learner = Learner(
        make_network,
        ER(),
        buffer=make_learner().buffer,
        optimiser=two_groups,
        settings=TrainSettings(minibatch_size=4, rate=falling),
        seed=0,
    )
    for epoch in (1, 2):
        learner.begin_epoch(epoch, 2)
        groups = learner.state_dict()["optimiser"]["param_groups"]
        assert [group["lr"] for group in groups] == pytest.approx([0.25 / epoch, 0.1 / epoch])


def test_without_a_schedule_epochs_change_nothing_but_notes() -> None:
    learner = make_learner()
    learner.observe(batch(0))
    before = state_of(learner)
    learner.begin_epoch(40, 50)
    after = state_of(learner)
    assert rate_of(learner) == LR
    assert (before["pictures_return"], after["pictures_return"]) == (False, True)
    noted = {"optimiser": None, "pictures_return": None}
    assert same({**after, **noted}, {**before, **noted})


def test_a_restart_keeps_the_rate_of_the_epoch_and_the_next_epoch_starts_from_the_full_one() -> (
    None
):
    learner = make_learner(rate=falling, momentum=0.9)
    learner.begin_epoch(2, 5)
    learner.observe(batch(0))
    learner.restart()
    assert rate_of(learner) == pytest.approx(LR / 10)
    learner.begin_epoch(1, 5)
    assert rate_of(learner) == pytest.approx(LR / 5)


# --- pauses -------------------------------------------------------------------------------------


def test_a_pause_in_the_middle_of_an_epoch_keeps_its_rate_and_the_full_one() -> None:
    moves: list[Move] = [
        lambda learner: learner.begin_task((0, 1)),
        lambda learner: learner.begin_epoch(2, 3),
        observing(1, 0, 1, 1),
        observing(2, 1, 1, 0),
        lambda learner: learner.begin_epoch(3, 3),
        observing(3, 0, 0, 1),
        lambda learner: learner.end_task(),
    ]

    def make() -> Learner:
        return make_learner(rate=falling, momentum=0.9)

    assert_pauses_change_nothing(make, moves)
    learner = make()
    for move in moves:
        move(learner)
    assert rate_of(learner) == pytest.approx(LR / 9)


@pytest.mark.parametrize("method", [Recording, RecordingFromScratch])
def test_a_pause_anywhere_repeats_no_call_and_leaves_none_out(method: type[Recording]) -> None:
    calls: list[list[object]] = []

    def make() -> Learner:
        recording = method()
        calls.append(recording.calls)
        return make_learner(recording, rate=falling, momentum=0.9)

    assert_pauses_change_nothing(make, two_tasks_and_a_restart())
    whole, _, *resumed = calls
    assert len(resumed) == len(two_tasks_and_a_restart()) + 1
    since = [call for each in resumed[:-1] for call in each[each.index("loaded") + 1 :]]
    assert since == whole[1:]
