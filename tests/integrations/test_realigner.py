"""The core of the integrations, in a bare PyTorch loop."""

from __future__ import annotations

import torch
from torch import nn
from trainer_cases import EPOCHS, LR, Digits, make_network, own_loop

from driftwise.integrations.realigner import Realigner


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
