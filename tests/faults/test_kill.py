"""Killed with `kill -9` at any moment and resumed, a run ends equal to one that was not killed."""

from __future__ import annotations

from pathlib import Path

from campaigns import killed_at_calls, killed_at_random, killed_twice
from fault_tools import LiveWork, Work

from driftwise.runs import store

SMALL = Work(epochs=1, tasks="[[0,1],[2,3]]", steps=20)


def test_a_run_killed_at_random_moments_ends_equal_to_one_that_was_not(tmp_path: Path) -> None:
    work = Work(method="cls-er", epochs=2)
    cases = list(killed_at_random(work, tmp_path, moments=3, seed=0))
    assert [case.fault for case in cases] == [""] * 3


def test_a_run_killed_in_the_midst_of_a_change_to_its_files_ends_equal(tmp_path: Path) -> None:
    cases = list(killed_at_calls(SMALL, tmp_path, range(2, 130, 24)))
    assert [case for case in cases if case.fault] == []
    assert {case.came for case in cases} == {"killed"}


def test_a_run_killed_twice_at_the_same_change_ends_equal(tmp_path: Path) -> None:
    cases = list(killed_twice(SMALL, tmp_path, ["replace .features.safetensors.tmp"]))
    assert [case.fault for case in cases] == [""]


def test_a_run_is_resumed_by_the_name_of_its_folder_alone(tmp_path: Path) -> None:
    work = Work(epochs=1, adaptation="amr-plus", flags="--buffer-policy balanced", by_folder=True)
    cases = list(killed_at_random(work, tmp_path, moments=2, seed=0))
    assert [case.fault for case in cases] == ["", ""]


def test_a_live_learner_killed_at_random_moments_ends_equal_to_one_that_was_not(
    tmp_path: Path,
) -> None:
    work = LiveWork(known=0.7, asks=True, log_bytes=1000, settings={"detector": "ks"})
    cases = list(killed_at_random(work, tmp_path, moments=3, seed=0))
    assert [case.fault for case in cases] == [""] * 3
    counts = store.read_checkpoint(tmp_path / "whole")["teller"]["counters"]
    assert counts["adaptations_total"], "or nothing worth saving happened"
    assert counts["labels_late_total"]


def test_a_live_learner_killed_in_the_midst_of_a_change_to_its_files_ends_equal(
    tmp_path: Path,
) -> None:
    calls = (*range(1, 24, 5), *range(60, 300, 80))
    work = LiveWork(samples=120, known=0.7, log_bytes=1000)
    cases = list(killed_at_calls(work, tmp_path, calls))
    assert [case for case in cases if case.fault] == []
    assert len(cases) == len(calls)
