"""A disk that is full, or read-only, at any write: one line, and what was there stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaigns import change_calls, full_at_calls
from fault_tools import Work
from troubles import Kind

SMALL = Work(epochs=1, tasks="[[0,1],[2,3]]", steps=20)


@pytest.mark.parametrize("kind", ["full", "stays full", "read-only"])
def test_a_write_that_is_refused_costs_one_line_and_nothing_that_was_saved(
    kind: Kind, tmp_path: Path
) -> None:
    first = {"full": 1, "stays full": 4, "read-only": 7}[kind]
    calls = range(first, 130, 24)
    cases = list(full_at_calls(SMALL, tmp_path, calls, kind=kind))
    assert [case for case in cases if case.fault] == []
    assert {case.came for case in cases} >= {"code 1", "code 2"}


def test_every_file_of_a_run_is_written_where_a_full_disk_was_tried(tmp_path: Path) -> None:
    """Guards the others: a file written in a way that `troubles` does not see would escape them."""
    calls = change_calls(SMALL, tmp_path / "run")
    made = {file.name for file in (tmp_path / "run").iterdir()}
    written = {call.removeprefix("write ") for call in calls if call.startswith("write ")}
    reached = {name.removeprefix(".").removesuffix(".tmp") for name in written} | {".lock"}
    assert made - {"checkpoint-previous.safetensors"} <= reached
    assert "link checkpoint.safetensors" in calls
