"""Bytes become floats between 0 and 1, in the order that was asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from recollect import rng
from recollect.models.inputs import to_input

HEIGHT, WIDTH = 5, 3


def pictures(rows: int, channels: int, *, turned: bool) -> Tensor:
    """Bytes (rows, height, width, channels); turned: rows lie innermost."""
    shape = (HEIGHT, WIDTH, channels, rows) if turned else (rows, HEIGHT, WIDTH, channels)
    drawn = torch.randint(256, shape, dtype=torch.uint8, generator=rng.fork(rows, "pictures"))
    return drawn.permute(3, 0, 1, 2) if turned else drawn


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("rows", [1, 4])
def test_bytes_become_floats_in_the_order_asked_for(rows: int, channels: int, turned: bool) -> None:
    images = pictures(rows, channels, turned=turned)
    before = images.clone()
    for layout in (torch.contiguous_format, torch.channels_last):
        x = to_input(images, memory_format=layout)
        assert torch.equal(x, torch.stack([each.permute(2, 0, 1) / 255 for each in images]))
        strides = torch.empty(rows, channels, HEIGHT, WIDTH, memory_format=layout).stride()
        assert x.stride() == strides
    assert torch.equal(images, before)


def test_floats_pass_through() -> None:
    vectors = torch.rand(4, 7, generator=rng.fork(0))
    assert torch.equal(to_input(vectors), vectors)
    assert to_input(vectors.double()).dtype == torch.float32
