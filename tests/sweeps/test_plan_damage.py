"""A plan that is JSON, and no plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_tools import complaint

from driftwise.report.sweeps import read_sweep
from driftwise.sweeps.grid import Grid
from driftwise.sweeps.plan import make_plan, write_plan

PLAN = make_plan("it", Grid(axes={"seed": range(2)}))
MISSING = object()

BOTH = [("runs", MISSING), ("runs", 0), ("runs", ["x"]), ("id", MISSING)]


def damage(file: Path, key: str, value: Any) -> None:
    """Change a setting of the plan, or of its first run."""
    plan = json.loads(file.read_bytes())
    place = plan if key in plan else plan["runs"][0]
    if value is MISSING:
        del place[key]
    else:
        place[key] = value
    file.write_text(json.dumps(plan))


@pytest.mark.parametrize(("key", "value"), [*BOTH, ("place", 0.5)])
def test_reading_it_gets_one_line(key: str, value: Any, tmp_path: Path) -> None:
    file = write_plan(PLAN, tmp_path)
    damage(file, key, value)
    told = complaint(lambda: read_sweep(file))
    assert "start the sweep again to mend it" in told


def test_a_changed_number_is_seen_and_told_when_the_plan_is_written_anew(tmp_path: Path) -> None:
    file = write_plan(PLAN, tmp_path)
    content = file.read_text()
    place = json.loads(content)["runs"][0]["place"]
    damage(file, "place", {**place, "buffer_size": 7})
    assert "its digest does not fit; start the sweep again" in complaint(lambda: read_sweep(file))
    told: list[str] = []
    write_plan(PLAN, tmp_path, warn=told.append)
    assert told == [f"{file} was damaged, and is written anew from the grid"]
    assert file.read_text() == content
    write_plan(PLAN, tmp_path, warn=told.append)
    assert len(told) == 1


@pytest.mark.parametrize(("key", "value"), [*BOTH, ("id", {})])
def test_starting_the_sweep_again_mends_it(key: str, value: Any, tmp_path: Path) -> None:
    file = write_plan(PLAN, tmp_path)
    content = file.read_bytes()
    damage(file, key, value)
    write_plan(PLAN, tmp_path)
    assert file.read_bytes() == content
