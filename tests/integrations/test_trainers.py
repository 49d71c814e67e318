"""Realignment inside Lightning and transformers, the real packages."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from trainer_cases import EPOCHS, in_lightning, in_transformers, own_loop

pytestmark = pytest.mark.filterwarnings("ignore")  # of these packages' own


def test_lightning_with_our_batches_has_the_weights_of_our_own_loop_bit_for_bit() -> None:
    pytest.importorskip("lightning")
    _, module, callback = in_lightning(
        epochs=1,
        batches=lambda d: list(chain.from_iterable(map(d.batches, range(1, EPOCHS + 1)))),
    )
    loop, _ = own_loop()
    for mine, ours in zip(module.parameters(), loop.learner.network.parameters(), strict=True):
        assert torch.equal(mine, ours)
    labels = callback.realigner.ledger.labels
    assert labels["adaptation"] == loop.ledger.labels["adaptation"] > 0
    assert "training_step" not in vars(module)


def test_transformers_finds_the_drifted_classes_and_realigns() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    _, model, callback = in_transformers()
    drifted = [record.drifted for record in callback.realigner.records]
    assert drifted == [(), (), (0, 1, 2, 3), (), ()]
    assert callback.realigner.ledger.labels["adaptation"] == 100
    assert not model.training
