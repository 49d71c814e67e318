"""Killed with `kill -9` at any moment and gone on with, a run ends as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaigns import killed_at_calls, killed_at_random, killed_twice
from fault_tools import Work

SMALL = Work(epochs=1, tasks="[[0,1],[2,3]]", steps=20)


@pytest.mark.parametrize("method", ["er", "cls-er"])
def test_a_run_killed_at_random_moments_ends_equal_to_one_that_was_not(
    method: str, tmp_path: Path
) -> None:
    work = Work(method=method, epochs=2)
    cases = list(killed_at_random(work, tmp_path, moments=4, seed=0))
    assert [case for case in cases if case.fault] == []
    assert len(cases) == 4


def test_a_run_killed_in_the_midst_of_a_change_to_its_files_ends_equal(tmp_path: Path) -> None:
    cases = list(killed_at_calls(SMALL, tmp_path, range(2, 130, 16)))
    assert [case for case in cases if case.fault] == []
    assert {case.came for case in cases} == {"killed"}


def test_a_run_killed_twice_at_the_same_change_ends_equal(tmp_path: Path) -> None:
    cases = list(killed_twice(SMALL, tmp_path, ["replace .features.safetensors.tmp"]))
    assert [case.fault for case in cases] == [""]
