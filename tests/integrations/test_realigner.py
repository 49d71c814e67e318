"""The core of the integrations, in a bare PyTorch loop."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import nn
from trainer_cases import EPOCHS, LR, Digits, make_network, own_loop

from driftwise.detect import KS, Always, Sequential
from driftwise.errors import UserError
from driftwise.integrations.realigner import Realigner
from driftwise.testing import same

X, Y = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2


def realigner_of(**settings: Any) -> Realigner:
    return Realigner(nn.Linear(4, 2), current=lambda: (X + 1, Y), buffer=10, **settings)


def test_a_bare_loop_has_weights_buffer_and_costs_of_our_own_loop_bit_for_bit() -> None:
    digits = Digits()
    network = make_network()
    optimiser = torch.optim.SGD(network.parameters(), lr=LR)
    realigner = Realigner(network, **digits.settings())
    for task in digits.stream.tasks():
        digits.task = task
        realigner.begin_task()
        for epoch in range(1, EPOCHS + 1):
            for batch in digits.batches(epoch):
                x, y = realigner.extend(batch)
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                realigner.offer(batch, repeated=epoch > 1)
        realigner.end_task()
    loop, faa = own_loop()
    for mine, ours in zip(network.parameters(), loop.learner.network.parameters(), strict=True):
        assert torch.equal(mine, ours)
    assert realigner.buffer.counts() == loop.learner.buffer.counts()
    assert realigner.ledger.labels == loop.ledger.labels
    assert realigner.ledger.labels["adaptation"] > 0
    assert abs(digits.accuracy(network) - faa) < 1e-4


def test_samples_between_tasks_are_refused_since_their_classes_would_never_be_checked() -> None:
    realigner = realigner_of()
    for call in (realigner.extend, realigner.offer):
        with pytest.raises(UserError, match="call begin_task before"):
            call((X, Y))
    realigner.begin_task()
    realigner.offer((X, Y))
    realigner.end_task()
    with pytest.raises(UserError, match="call begin_task before offer"):
        realigner.offer((X, Y))
    assert realigner.known_classes == (0, 1)


def test_a_step_may_change_its_first_batch_in_place_before_it_is_offered() -> None:
    realigner = realigner_of()
    realigner.begin_task()
    batch = (X[:8].clone(), Y[:8].clone())
    inputs, labels = realigner.extend(batch)
    inputs.add_(100)
    labels.zero_()
    assert torch.equal(batch[0], X[:8])
    assert torch.equal(batch[1], Y[:8])


def test_a_state_is_loaded_with_the_parts_that_it_came_from_and_a_copy_goes_on_alike() -> None:
    realigner = realigner_of(detector=Sequential())
    realigner.begin_task()
    realigner.offer((X[:20], Y[:20]))
    with pytest.raises(UserError, match=r"detector Sequential; this one has KS: make it with the"):
        realigner_of(detector=KS()).load_state_dict(realigner.state_dict())
    twin = copy.deepcopy(realigner)
    for each in (realigner, twin):
        each.offer((X[20:], Y[20:]))
    assert same(twin.buffer.state_dict(), realigner.buffer.state_dict())


def test_names_are_refused_where_objects_are_expected() -> None:
    for settings in ({"detector": "ks"}, {"adaptation": "amr"}):
        (name,) = settings.values()
        with pytest.raises(UserError, match=f"must be an object, .* got the name '{name}'"):
            realigner_of(**settings)


def test_monitored_samples_that_were_trained_on_are_noticed_and_held_out_ones_are_not(
    recwarn: pytest.WarningsRecorder,
) -> None:
    held_out = X + 1
    for current, found in ((X, ["100 %", "100 %"]), (held_out, [])):
        recwarn.clear()
        realigner = Realigner(
            nn.Linear(4, 2), current=itertools.repeat((current, Y)).__next__, buffer=10
        )
        realigner.begin_task()
        realigner.offer((X, Y))
        realigner.end_task()  # as a reference
        realigner.begin_task()  # monitored
        texts = [str(each.message) for each in recwarn]
        assert [text.partition(" of the buffer's samples are also")[0] for text in texts] == found


def test_fresh_samples_taken_from_the_monitored_ones_are_no_training_data_of_the_users(
    recwarn: pytest.WarningsRecorder,
) -> None:
    now = [X + 1]
    realigner = Realigner(
        nn.Linear(4, 2), current=lambda: (now[0], Y), buffer=10, detector=Always()
    )
    for _ in range(3):
        realigner.begin_task()
        realigner.offer((X, Y))
        realigner.end_task()
    assert realigner._used
    assert not recwarn.list
