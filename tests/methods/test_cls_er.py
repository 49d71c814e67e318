from __future__ import annotations

from typing import Any

import pytest
import torch
from learn_builders import (
    MINIBATCH,
    Formula,
    TinyNet,
    as_floats,
    assert_same_statistics,
    assert_step_is,
    batch,
    labelled,
    make_learner,
    make_network,
    slow_cross_entropy,
    slow_distance,
    slow_logits,
    state_of,
    stream_alone,
    tiny,
    twin_of,
    weights_of,
)
from same_state import same
from torch import Tensor, nn

from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.memory import ReplayBuffer
from driftwise.methods import CLSER
from driftwise.types import Samples

ALWAYS: dict[str, Any] = {"stable_update_freq": 1.0, "plastic_update_freq": 1.0}
NEVER: dict[str, Any] = {"stable_update_freq": 0.0, "plastic_update_freq": 0.0}


def cls_learner(**options: Any) -> Learner:
    return make_learner(CLSER(**options), capacity=12)


def averages_of(learner: Learner) -> tuple[TinyNet, TinyNet]:
    """Copies of the stable and of the plastic average."""
    stable, plastic = learner.method.copies()
    return tiny(stable), tiny(plastic)


def probability(logits: Tensor, label: int) -> float:
    return float(torch.exp(logits[label]) / sum(torch.exp(each) for each in logits))


def better(stable: Tensor, plastic: Tensor, labels: Tensor) -> tuple[Tensor, list[str]]:
    """Sample by sample the logits of the average that gives the true class more; a tie is plastic's."""
    chosen, names = [], []
    for one, other, label in zip(stable, plastic, labels.tolist(), strict=True):
        trust_stable = probability(one, label) > probability(other, label)
        chosen.append(one if trust_stable else other)
        names.append("stable" if trust_stable else "plastic")
    return torch.stack(chosen), names


def complementary(
    stable: TinyNet, plastic: TinyNet, weight: float, chosen: list[str] | None = None
) -> Formula:
    """Two forwards of the working network; both averages, in training mode, see the draw."""

    def formula(net: TinyNet, memory: ReplayBuffer, samples: Samples) -> Tensor:
        replay = memory.sample(MINIBATCH).samples
        x = as_floats(replay)
        assert stable.training
        assert plastic.training
        with torch.no_grad():
            outputs = slow_logits(stable, x), slow_logits(plastic, x)
            target, names = better(*outputs, replay.labels)
        if chosen is not None:
            chosen.extend(names)
        distance = slow_distance(slow_logits(net, x), target)
        both = Samples.concat([samples, replay])
        return slow_cross_entropy(slow_logits(net, as_floats(both)), both.labels) + (
            weight * distance
        )

    return formula


def assert_follows(average: nn.Module, before: nn.Module, network: nn.Module, keep: float) -> None:
    """The parameters of an average are `keep` of what they were and the rest the network's."""
    was, now = dict(before.named_parameters()), dict(network.named_parameters())
    assert len(was) == 6
    for name, parameter in average.named_parameters():
        expected = keep * was[name] + (1 - keep) * now[name]
        torch.testing.assert_close(parameter.detach(), expected.detach(), rtol=1e-5, atol=1e-6)


# --- the loss -----------------------------------------------------------------------------------


def test_both_averages_begin_as_the_network_and_train_on_nothing() -> None:
    learner = cls_learner()
    assert len(learner.method.copies()) == 2
    for average in learner.method.copies():
        assert average is not learner.network
        assert same(weights_of(average), weights_of(make_network(0)))
        assert all(module.training for module in average.modules())
        assert not any(parameter.requires_grad for parameter in average.parameters())
    assert all(parameter.requires_grad for parameter in learner.network.parameters())


def test_a_step_is_one_cross_entropy_and_the_distance_to_the_better_average_of_each_sample() -> (
    None
):
    learner = cls_learner(reg_weight=0.6, **ALWAYS, stable_alpha=0.9, plastic_alpha=0.6)
    assert_step_is(learner, batch(0), stream_alone)
    for each, other in zip(learner.method.copies(), (3, 4), strict=True):
        each.load_state_dict(make_network(other).state_dict())  # such as disagree
    chosen: list[str] = []
    for number in range(1, 6):
        stable, plastic = averages_of(learner)
        before = averages_of(learner)
        samples = batch(number, samples=2 + number)
        assert_step_is(learner, samples, complementary(stable, plastic, 0.6, chosen))
        for average, was, seen in zip(
            learner.method.copies(), before, (stable, plastic), strict=True
        ):
            assert_same_statistics(average, seen)
            alpha = 0.9 if seen is stable else 0.6
            assert_follows(average, was, learner.network, min(1 - 1 / (number + 2), alpha))
    draws = [chosen[i : i + MINIBATCH] for i in range(0, len(chosen), MINIBATCH)]
    assert any(set(draw) == {"stable", "plastic"} for draw in draws), (
        "sample by sample, not by draw"
    )


def test_where_both_averages_are_equally_sure_the_plastic_one_teaches() -> None:
    learner = cls_learner(reg_weight=0.6, **NEVER)
    learner.observe(batch(0))
    with torch.no_grad():
        for average, height in zip(learner.method.copies(), (0.0, 1.0), strict=True):
            assert isinstance(average, TinyNet)
            average.head.weight.zero_()  # one and the same probability for every class
            average.head.bias.fill_(height)
    stable, plastic = averages_of(learner)
    chosen: list[str] = []
    assert_step_is(learner, batch(1), complementary(stable, plastic, 0.6, chosen))
    assert chosen == ["plastic"] * MINIBATCH


def test_correct_counts_the_stream_samples_of_the_forward_they_share_with_the_draw() -> None:
    learner = cls_learner(**NEVER)
    learner.observe(batch(0))
    net, drawn = tiny(learner.network).train(), twin_of(learner.buffer).sample(MINIBATCH).samples
    samples = batch(1, samples=30)
    predicted = slow_logits(net, as_floats(Samples.concat([samples, drawn])))[:30].argmax(dim=1)
    report = learner.observe(samples)
    assert (report.correct, report.samples) == (int((predicted == samples.labels).sum()), 30)


def test_without_buffer_samples_a_step_is_the_stream_alone_and_no_average_sees_it() -> None:
    learner = cls_learner(**NEVER)
    learner.observe(labelled(0, 0, 1))
    for label in (0, 1):
        learner.buffer.drop(label)
    before = averages_of(learner)
    assert_step_is(learner, labelled(1, 0, 1, 1), stream_alone)
    for average, was in zip(learner.method.copies(), before, strict=True):
        assert same(weights_of(average), weights_of(was))


def test_buffer_samples_carry_no_logits() -> None:
    learner = cls_learner()
    learner.observe(batch(0))
    assert learner.buffer.sample(3).extras == {}
    assert learner.annotate(batch(1)) == {}


def test_the_published_weights_are_the_default() -> None:
    options = CLSER()
    assert (options.stable_update_freq, options.stable_alpha) == (0.1, 0.999)
    assert (options.plastic_update_freq, options.plastic_alpha) == (0.9, 0.999)
    learner = cls_learner()
    learner.observe(batch(0))
    assert_step_is(learner, batch(1), complementary(*averages_of(learner), weight=0.15))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reg_weight": -0.1}, "reg_weight must be at least 0; got -0.1"),
        ({"stable_update_freq": 1.1}, "stable_update_freq must lie between 0 and 1; got 1.1"),
        ({"plastic_update_freq": -1.0}, "plastic_update_freq must lie between 0 and 1; got -1.0"),
        ({"stable_alpha": 2.0}, "stable_alpha must lie between 0 and 1; got 2.0"),
        ({"plastic_alpha": float("nan")}, "plastic_alpha must lie between 0 and 1; got nan"),
    ],
)
def test_options_out_of_range_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CLSER(**wrong)  # type: ignore[arg-type]


# --- how the averages move ----------------------------------------------------------------------


@pytest.mark.parametrize(("stable", "plastic"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (1.0, 1.0)])
def test_certain_averages_always_move_and_impossible_ones_never(
    stable: float, plastic: float
) -> None:
    learner = cls_learner(stable_update_freq=stable, plastic_update_freq=plastic)
    for number in range(6):
        before = averages_of(learner)
        learner.observe(batch(number))
        for average, was, chance in zip(
            learner.method.copies(), before, (stable, plastic), strict=True
        ):
            keep = 1 - 1 / (number + 2) if chance else 1.0
            assert_follows(average, was, learner.network, keep)


class Chances:
    """An method whose averages become the network whenever they move."""

    def __init__(self, stable: float, plastic: float, *, seed: int = 3) -> None:
        self.network = nn.Linear(1, 1, bias=False)
        self.method = CLSER(
            stable_update_freq=stable,
            plastic_update_freq=plastic,
            stable_alpha=0.0,
            plastic_alpha=0.0,
        )
        self.method.attach(self.network, seed)
        self._height = 0

    def moves(self, steps: int) -> list[tuple[bool, bool]]:
        """At each step, whether the stable and whether the plastic average moved."""
        moved = []
        for _ in range(steps):
            self._height += 1
            nn.init.constant_(self.network.weight, self._height)
            self.method.after_step(self.network)
            stable, plastic = (
                float(next(each.parameters()).detach()) == self._height
                for each in self.method.copies()
            )
            moved.append((stable, plastic))
        return moved


@pytest.mark.parametrize(("stable", "plastic"), [(0.1, 0.9), (0.5, 0.5), (0.8, 0.3)])
def test_averages_move_as_often_as_asked_and_independently(stable: float, plastic: float) -> None:
    moved = Chances(stable, plastic).moves(2000)
    in_a_sample = [one[0] and other[0] for one, other in zip(moved[::2], moved[1::2], strict=True)]
    for found, chance in (
        ([one for one, _ in moved], stable),
        ([other for _, other in moved], plastic),
        ([one and other for one, other in moved], stable * plastic),
        (in_a_sample, stable**2),
    ):
        sigma = (len(found) * chance * (1 - chance)) ** 0.5
        assert abs(sum(found) - len(found) * chance) < 4 * sigma


def test_a_seed_decides_at_which_steps_the_averages_move_also_over_a_restart() -> None:
    moved = Chances(0.5, 0.5, seed=3).moves(50)
    assert Chances(0.5, 0.5, seed=3).moves(50) == moved
    assert Chances(0.5, 0.5, seed=4).moves(50) != moved
    whole, restarted = Chances(0.5, 0.5), Chances(0.5, 0.5)
    assert whole.moves(30) == restarted.moves(30)
    restarted.method.attach(restarted.network, seed=3)
    assert whole.moves(30) == restarted.moves(30)


def test_steps_at_which_an_average_stays_count_too() -> None:
    learner = cls_learner(stable_update_freq=0.3, plastic_update_freq=0.6)
    moved = {"stable": 0, "plastic": 0}
    for step in range(1, 21):
        before = averages_of(learner)
        learner.observe(batch(step))
        for name, average, was in zip(moved, learner.method.copies(), before, strict=True):
            parameters = [list(each.parameters()) for each in (average, was)]
            if not all(map(torch.equal, *parameters)):
                moved[name] += 1
                assert_follows(average, was, learner.network, 1 - 1 / (step + 1))
    assert all(3 <= times <= 17 for times in moved.values())


def test_an_average_keeps_more_of_itself_from_step_to_step_up_to_alpha() -> None:
    network = nn.Linear(1, 1, bias=False)
    method = CLSER(**ALWAYS, stable_alpha=0.7, plastic_alpha=0.3)
    nn.init.constant_(network.weight, 0.0)
    method.attach(network, seed=0)
    nn.init.constant_(network.weight, 1.0)
    kept = {"stable": 1.0, "plastic": 1.0}
    for stable, plastic in ((1 / 2, 0.3), (2 / 3, 0.3), (0.7, 0.3), (0.7, 0.3)):
        method.after_step(network)
        kept = {"stable": kept["stable"] * stable, "plastic": kept["plastic"] * plastic}
        found = [float(next(each.parameters()).detach()) for each in method.copies()]
        assert found == pytest.approx([1 - kept["stable"], 1 - kept["plastic"]], rel=1e-5)


# --- who predicts, starting over, going on ------------------------------------------------------


@pytest.mark.parametrize("predict", [None, "stable", "working"])
def test_the_stable_average_predicts_unless_the_working_network_is_requested(
    predict: str | None,
) -> None:
    learner = cls_learner(stable_update_freq=0.5, **({"predict": predict} if predict else {}))
    for number in range(5):
        learner.observe(batch(number))
    stable, plastic = averages_of(learner)
    expected, *others = (stable, plastic, tiny(learner.network))
    if predict == "working":
        *others, expected = (stable, plastic, tiny(learner.network))
    before = state_of(learner)
    logits = learner.logits(batch(9).images)
    assert same(state_of(learner), before)
    x = as_floats(batch(9))
    outputs = slow_logits(expected.eval(), x).detach()
    torch.testing.assert_close(logits, outputs, rtol=1e-4, atol=1e-5)
    for other in others:
        assert float((slow_logits(other.eval(), x).detach() - logits).abs().max()) > 1e-3


def test_a_restart_makes_averages_begin_anew_with_the_network() -> None:
    learner = cls_learner(reg_weight=0.6, **ALWAYS)
    for number in range(4):
        learner.observe(batch(number))
    learner.restart()
    for average in learner.method.copies():
        assert same(weights_of(average), weights_of(make_network(1)))
        assert all(module.training for module in average.modules())
        assert not any(parameter.requires_grad for parameter in average.parameters())
    for number, keep in ((4, 1 / 2), (5, 2 / 3)):
        stable, plastic = averages_of(learner)
        before = averages_of(learner)
        assert_step_is(learner, batch(number), complementary(stable, plastic, 0.6))
        for average, was in zip(learner.method.copies(), before, strict=True):
            assert_follows(average, was, learner.network, keep)
