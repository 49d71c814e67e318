"""Rehearsing: a step of which nothing is kept."""

from __future__ import annotations

import copy

import pytest
import torch
from learn_builders import (
    LR,
    as_floats,
    labelled,
    make_learner,
    slow_cross_entropy,
    slow_logits,
    tiny,
    twin_of,
    weights_of,
)
from same_state import same

from driftwise.types import Samples


def test_rehearsing_is_one_step_on_a_draw_from_the_buffer_and_another_draw_beside_it() -> None:
    learner = make_learner()
    learner.observe(labelled(1, 0, 1, 2, 3, 4, 0))
    net, twin = tiny(learner.network).train(), twin_of(learner.buffer)
    stream, replay = twin.sample(4).samples, twin.sample(4).samples
    both = Samples.concat([stream, replay])
    expected = slow_cross_entropy(slow_logits(net, as_floats(both)), both.labels)
    expected.backward()  # type: ignore[no-untyped-call]
    report = learner.rehearse()
    assert report.loss == pytest.approx(float(expected.detach()), rel=1e-5)
    for mine, theirs in zip(learner.network.parameters(), net.parameters(), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(mine.detach(), theirs.detach() - LR * theirs.grad)


def test_nothing_that_is_rehearsed_is_kept() -> None:
    learner = make_learner()
    learner.observe(labelled(1, 0, 1, 2))
    before = copy.deepcopy(learner.buffer.state_dict())
    learner.rehearse(labelled(2, 3, 4))
    learner.rehearse()
    after = learner.buffer.state_dict()
    for name in ("slots", "columns", "seen"):
        assert same(after[name], before[name]), name
    assert learner.steps == 3


def test_rehearsing_given_samples_moves_the_network_as_observing_them_would() -> None:
    one, other = make_learner(), make_learner()
    for learner in (one, other):
        learner.observe(labelled(1, 0, 1, 2))
    one.observe(labelled(2, 0, 1, 2))
    other.rehearse(labelled(2, 0, 1, 2))
    assert same(weights_of(one.network), weights_of(other.network))
    assert len(one.buffer) > len(other.buffer)


def test_an_empty_buffer_has_nothing_to_rehearse() -> None:
    with pytest.raises(ValueError, match="the buffer is empty"):
        make_learner().rehearse()
