"""Columns with a number per class get wider when there are more classes."""

from __future__ import annotations

import pytest
import torch

from driftwise import allocation
from driftwise.memory import ReplayBuffer
from driftwise.memory.policies import Reservoir
from driftwise.types import Samples


def filled(
    width: int, samples: int = 5, dtype: torch.dtype = torch.float32
) -> tuple[ReplayBuffer, Samples]:
    column = torch.arange(samples)
    some = Samples(
        images=torch.arange(samples * 3, dtype=torch.uint8).reshape(samples, 3, 1, 1),
        labels=column % 2,
        ids=column,
        concepts=column * 0,
    )
    memory = ReplayBuffer(8, policy=Reservoir(), seed=0)
    logits = torch.arange(samples * width).reshape(samples, width).to(dtype)
    extras = {"logits": logits, "age": column, "maps": torch.ones(samples, 2, 2)}
    memory.offer(some, extras)
    return memory, some


def test_widening_adds_zeros_and_leaves_all_else_as_it_was() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        memory, samples = filled(2, dtype=dtype)
        memory.widen(4)
        stored = memory.sample(5)
        order = stored.samples.ids.argsort()
        expected = torch.arange(10).reshape(5, 2).to(dtype)
        assert torch.equal(stored.extras["logits"][order][:, :2], expected)
        assert not stored.extras["logits"][:, 2:].any()
        assert stored.extras["logits"].dtype == dtype
        assert torch.equal(stored.samples.images[order], samples.images)
        assert torch.equal(stored.extras["age"][order], samples.ids)
        assert stored.extras["maps"].shape == (5, 2, 2)


def test_samples_that_come_after_widening_have_the_new_width_and_nothing_gets_narrower() -> None:
    memory, samples = filled(2)
    memory.widen(3)
    memory.widen(2)
    more = Samples(
        images=samples.images[:2],
        labels=samples.labels[:2],
        ids=samples.ids[:2] + 50,
        concepts=samples.ids[:2],
    )
    extras = {"logits": torch.ones(2, 3), "age": more.ids, "maps": torch.ones(2, 2, 2)}
    memory.put(more, extras)
    assert memory.sample(7).extras["logits"].shape == (7, 3)


def test_samples_that_are_vectors_stay_as_they_are() -> None:
    memory, ids = ReplayBuffer(4), torch.arange(3)
    vectors = Samples(images=torch.ones(3, 2), labels=ids, ids=ids, concepts=ids)
    memory.offer(vectors, {"logits": torch.zeros(3, 3)})
    memory.widen(5)
    assert memory.samples_of(1).images.shape == (1, 2)
    assert memory.sample(1).extras["logits"].shape == (1, 5)


def test_a_widened_buffer_is_saved_and_loaded_as_it_is() -> None:
    memory, _ = filled(2)
    memory.widen(4)
    loaded = ReplayBuffer(8, policy=Reservoir(), seed=1)
    loaded.load_state_dict(memory.state_dict())
    one, other = memory.sample(5), loaded.sample(5)
    assert torch.equal(one.extras["logits"], other.extras["logits"])
    assert torch.equal(one.samples.ids, other.samples.ids)


def test_widening_that_finds_no_room_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, samples = filled(2)
    allocate = allocation.allocate

    def no_room(shape: tuple[int, ...], dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        raise MemoryError(f"no room for {shape}")

    monkeypatch.setattr(allocation, "allocate", no_room)
    with pytest.raises(MemoryError, match="no room"):
        memory.widen(4)
    monkeypatch.setattr(allocation, "allocate", allocate)
    extras = {"logits": torch.ones(5, 2), "age": samples.ids, "maps": torch.ones(5, 2, 2)}
    memory.offer(samples, extras)
    assert (len(memory), memory.seen) == (8, 10)
    assert memory.sample(8).extras["logits"].shape == (8, 2)
