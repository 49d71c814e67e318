"""Bytes become floats between 0 and 1, in the order that was asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from driftwise import rng
from driftwise.devices import to_device
from driftwise.models.inputs import to_input

HEIGHT, WIDTH = 5, 3


def make_images(samples: int, channels: int, *, turned: bool) -> Tensor:
    """Bytes (samples, height, width, channels); turned: samples lie innermost."""
    shape = (HEIGHT, WIDTH, channels, samples) if turned else (samples, HEIGHT, WIDTH, channels)
    drawn = torch.randint(256, shape, dtype=torch.uint8, generator=rng.fork(samples, "pictures"))
    return drawn.permute(3, 0, 1, 2) if turned else drawn


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("samples", [1, 4])
def test_bytes_become_floats_in_the_order_asked_for(
    samples: int, channels: int, turned: bool
) -> None:
    images = make_images(samples, channels, turned=turned)
    before = images.clone()
    for layout in (torch.contiguous_format, torch.channels_last):
        x = to_input(images, memory_format=layout)
        assert torch.equal(x, torch.stack([each.permute(2, 0, 1) / 255 for each in images]))
        strides = torch.empty(samples, channels, HEIGHT, WIDTH, memory_format=layout).stride()
        assert x.stride() == strides
    assert torch.equal(images, before)


def test_floats_pass_through() -> None:
    vectors = torch.rand(4, 7, generator=rng.fork(0))
    assert torch.equal(to_input(vectors), vectors)
    assert to_input(vectors.double()).dtype == torch.float32


def test_samples_that_are_there_are_not_moved() -> None:
    samples = torch.zeros(3)
    assert to_device(samples, torch.device("cpu")) is samples
    assert to_device(samples, "cpu").data_ptr() == samples.data_ptr()


def test_a_copy_to_a_gpu_starts_from_pinned_pages_and_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples, pinned, there = torch.zeros(3), torch.ones(3), torch.full((3,), 2.0)
    copies: list[tuple[object, ...]] = []

    def move(values: Tensor, *where: object, **how: object) -> Tensor:
        copies.append((values is pinned, *where, how))
        return there

    monkeypatch.setattr(Tensor, "pin_memory", lambda _: pinned)
    monkeypatch.setattr(Tensor, "to", move)
    assert to_device(samples, "cuda:0") is there
    assert copies == [(True, "cuda:0", {"non_blocking": True})]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gets_the_same_floats() -> None:
    images = torch.randint(256, (5, 4, 4, 3), dtype=torch.uint8)
    assert torch.equal(to_input(images, "cuda").cpu(), to_input(images))
