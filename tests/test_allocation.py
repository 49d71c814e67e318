"""Room for what is kept: what is large lies in a file, and no file is left behind."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import pytest
import torch

from driftwise import allocation


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(allocation, "MOST_IN_MEMORY", 1000)
    return tmp_path


@pytest.mark.parametrize("samples", [0, 1, 10, 11, 5000])
def test_what_is_written_is_what_is_read(folder: Path, samples: int) -> None:
    made = allocation.allocate((samples, 10, 5, 2))
    assert (made.shape, made.dtype) == ((samples, 10, 5, 2), torch.uint8)
    pixels = torch.arange(made.numel()).remainder(251).to(torch.uint8).view(made.shape)
    made.copy_(pixels)
    assert torch.equal(made, pixels)


@pytest.mark.parametrize("samples", [0, 3])
@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.int16, torch.bfloat16, torch.float32, torch.float64, torch.complex128],
)
def test_any_numbers_have_room(dtype: torch.dtype, samples: int) -> None:
    made = allocation.allocate((samples, 2), dtype)
    assert (made.shape, made.dtype, made.is_contiguous()) == ((samples, 2), dtype, True)
    assert torch.equal(made.fill_(1), torch.ones((samples, 2), dtype=dtype))


def mapped_files(folder: Path) -> int:
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list maps")
def test_a_large_one_lies_in_a_file_that_goes_with_it(folder: Path) -> None:
    small, large = allocation.allocate((10, 100)), allocation.allocate((11, 100))
    assert mapped_files(folder) == 1
    assert list(folder.iterdir()) == []  # the file has no name that could be left behind
    del large
    gc.collect()
    assert mapped_files(folder) == 0
    assert small.numel() == 1000
