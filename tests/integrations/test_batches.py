"""Batches of other people's trainers: several inputs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from driftwise.errors import UserError
from driftwise.integrations.batches import Batch, Packing, read_all

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
        ((X.to_sparse(), Y), "must be a dense tensor; got torch.sparse_coo"),
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


def test_inputs_may_come_in_another_order_and_batches_of_several_shapes_are_refused() -> None:
    packing = Packing()
    first = packing.pack(Batch.read({"a": X, "b": Y, "labels": Y}))
    assert torch.equal(packing.pack(Batch.read({"b": Y, "labels": Y, "a": X})).ids, first.ids)
    with pytest.raises(
        UserError, match=r"batches of what current returns.*pad texts to one length"
    ):
        read_all(iter([(X, Y), (X[:, :2], Y)]), "what current returns")
    with pytest.raises(UserError, match=r"expected a float32 \(3,\), as at first; got c float32"):
        read_all([{"a": X, "labels": Y}, {"c": X, "labels": Y}], "what current returns")


def test_equal_samples_have_equal_ids_others_other_ones_and_none_have_none() -> None:
    """Also where samples differ in a sign or in the last bit alone."""
    x = torch.zeros(6, 5, 3)
    x[1, 2, 1] = -0.0
    x[2, 2, 1] = torch.finfo(torch.float32).smallest_normal
    x[3, 2, 2] = torch.finfo(torch.float32).smallest_normal
    x[4] = 1.0
    ids = Packing().pack(Batch.read((x, torch.zeros(6, dtype=torch.int64)))).ids
    assert len(set(ids.tolist())) == 5
    assert ids[0] == ids[5]
    assert int(ids.min()) >= 0
    packing = Packing()
    many = torch.randn(20_000, 7, generator=torch.Generator().manual_seed(0))
    samples = packing.pack(Batch.read((many, torch.zeros(20_000, dtype=torch.int64))))
    assert len(set(samples.ids.tolist())) == 20_000
    assert len(packing.empty()) == len(packing.empty().images) == 0
    assert packing.empty().images.shape == (0, 7)
