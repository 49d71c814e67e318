"""Batches of other people's trainers: several inputs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from driftwise.errors import UserError
from driftwise.integrations.batches import Batch, Packing

X, Y = torch.zeros(4, 3), torch.arange(4)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (X, "has no labels"),
        ({"pixel_values": X}, "has no labels.*pixel_values"),
        ((X, Y, Y), "got 3 entries"),
        ((X, Y.float()), "int64"),
        ((X[:3], Y), "an entry for each of 4 labels"),
        ((["a", "b", "c", "d"], Y), "must be a tensor; got a list"),
        ((X, Y - 1), "class numbers from 0"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused_in_words(batch: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Batch.read(batch)


def test_several_inputs_come_back_bit_for_bit_and_another_shape_is_refused() -> None:
    inputs = {"ids": torch.randint(99, (4, 5)), "mask": torch.ones(4, 3, dtype=torch.bool), "x": X}
    packing = Packing()
    samples = packing.pack(Batch.read({**inputs, "labels": Y}))
    for name, value in packing.unpack(samples.images).items():
        assert torch.equal(value, inputs[name])
    with pytest.raises(UserError, match="pad texts to one length"):
        packing.pack(
            Batch.read({**inputs, "ids": torch.zeros(4, 6, dtype=torch.int64), "labels": Y})
        )
