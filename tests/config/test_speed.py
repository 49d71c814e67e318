"""The fastest settings of a machine, as values of existing settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftwise.config import speed
from driftwise.config.schema import RunConfig
from driftwise.config.speed import fast


@pytest.fixture
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with bfloat16, on which four threads are fastest."""
    monkeypatch.setattr(speed, "has_bf16", lambda: True)
    monkeypatch.setattr(speed, "_fastest_threads", lambda: 4)


def of(config: RunConfig) -> tuple[object, ...]:
    return config.precision, config.memory_format, config.compile, config.threads


@pytest.mark.usefixtures("capable")
def test_fast_sets_what_was_not_given() -> None:
    cifar = RunConfig(benchmark="cifar10-cd")
    assert of(fast(cifar)) == ("bf16", "channels-last", False, 4)
    assert of(fast(cifar, given=["precision"])) == ("fp32", "channels-last", False, 4)
    one = RunConfig(benchmark="cifar10-cd", threads=1)
    assert of(fast(one, given=["threads"])) == ("bf16", "channels-last", False, 1)


@pytest.mark.usefixtures("capable")
def test_a_small_network_is_left_as_it_is() -> None:
    assert fast(RunConfig()) == RunConfig()


@pytest.mark.parametrize(
    ("flags", "expected"), [("avx2 avx512_bf16", True), ("avx2 avx512f", False)]
)
def test_bf16_needs_instructions_for_it(
    flags: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _, encoding: f"flags : fpu {flags}\n")
    assert speed.has_bf16.__wrapped__() is expected


def test_threads_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(speed, "_seconds", lambda: {1: 3.0}.get(torch.get_num_threads(), 2.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(2))
    before = torch.get_num_threads()
    assert speed._fastest_threads.__wrapped__() == 2
    assert torch.get_num_threads() == before
