"""A large memory lies in files, and behaves as a small one does."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from same_state import same
from torch import Tensor

from driftwise import allocation
from driftwise.errors import RunFailure
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.runs import checkpoint as state_file
from driftwise.types import Samples

CAPACITY, SIDE = 55, 4
tells_maps = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="the system does not list maps"
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files for large things are made; large is what exceeds ten images."""
    folder = tmp_path / "files"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(allocation, "MOST_IN_MEMORY", 10 * SIDE * SIDE * 3)
    return folder


def mapped(folder: Path) -> int:
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


def samples(start: int, count: int) -> Samples:
    ids = torch.arange(start, start + count)
    pixels = ids[:, None] * torch.arange(1, SIDE * SIDE * 3 + 1) % 251
    return Samples(
        images=pixels.to(torch.uint8).view(count, SIDE, SIDE, 3),
        labels=ids % 3,
        ids=ids,
        concepts=ids % 2,
    )


def logits(of: Samples) -> dict[str, Tensor]:
    return {"logits": of.ids[:, None] * torch.tensor([1.0, -0.5, 0.25])}


def drawn(memory: ReplayBuffer, count: int) -> list[Any]:
    stored = memory.sample(count)
    return [vars(stored.samples), stored.extras]


def history(policy: str) -> list[Any]:
    """Everything a memory says in the course of filling, drawing, dropping, putting and saving."""
    memory, results = ReplayBuffer(CAPACITY, policy=POLICIES[policy](), seed=0), list[Any]()
    for start in range(0, 300, 25):
        batch = samples(start, 25)
        memory.offer(batch, logits(batch))
        results += [drawn(memory, 7), drawn(memory, 50)]
    results += [memory.drop(1), vars(memory.samples_of(0))]
    fresh = samples(1000, memory.free)
    memory.put(fresh, logits(fresh))
    state = memory.state_dict()
    other = ReplayBuffer(CAPACITY, policy=POLICIES[policy](), seed=1)
    other.load_state_dict(state)
    return [*results, state, drawn(other, 50), drawn(memory, 50)]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_memory_in_files_does_what_one_in_plain_memory_does(
    policy: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_files = history(policy)
    monkeypatch.setattr(allocation, "MOST_IN_MEMORY", 2**30)
    assert same(in_files, history(policy))


@tells_maps
def test_its_columns_and_large_copies_lie_in_files_and_small_draws_do_not(files: Path) -> None:
    memory = ReplayBuffer(CAPACITY, policy=POLICIES["reservoir"](), seed=0)
    batch = samples(0, CAPACITY)
    memory.offer(batch, logits(batch))
    kept = mapped(files)
    assert kept == 2  # images and logits; ids and concepts are small
    draw = memory.sample(5)
    assert mapped(files) == kept
    state = memory.state_dict()
    assert mapped(files) == 2 * kept
    del state
    assert mapped(files) == kept
    assert list(files.iterdir()) == []  # no names that could be left behind
    assert len(draw) == 5


@tells_maps
def test_a_checkpoint_of_it_is_read_into_files(files: Path, tmp_path: Path) -> None:
    memory = ReplayBuffer(CAPACITY, policy=POLICIES["reservoir"](), seed=0)
    batch = samples(0, CAPACITY)
    memory.offer(batch, logits(batch))
    checkpoint = tmp_path / "checkpoint"
    state_file.write(checkpoint, memory.state_dict(), format=3)
    before = mapped(files)
    state = state_file.read(checkpoint, format=3)
    assert mapped(files) == before + 4  # images, logits and what two generators consist of
    assert same(state, memory.state_dict())


def test_a_disk_without_room_is_reported_and_nothing_dies(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    memory = ReplayBuffer(CAPACITY, policy=POLICIES["reservoir"](), seed=0)
    with pytest.raises(RunFailure, match=r"cannot write .*: No space left on device; free some"):
        memory.offer(samples(0, 5))
