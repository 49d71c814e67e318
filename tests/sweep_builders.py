"""Folders of sweeps with known numbers, some of whose runs are missing, damaged or broken."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from report_builders import small_result, write_run

from driftwise.report.sweeps import Sweep, read_sweep

ENDS = {"vanilla": (50.0, 54.0), "fr": (91.0, 93.0), "amr": (88.0, 92.0)}
"""FAA of two seeds."""


def place_of(**changes: Any) -> dict[str, Any]:
    """Where a run stands; the grid's buffer of 500 has 20 samples at this scale."""
    place = {
        "benchmark": "toy-cd",
        "method": "er",
        "adaptation": "amr",
        "buffer_size": 500,
        "num_drifts": 1,
        "seed": 0,
    }
    return {**place, **changes}


def write_plan(
    out: Path, name: str, places: Mapping[str, Mapping[str, Any]], /, **changes: Any
) -> Path:
    """A plan that asks for a run at each place, by its id."""
    plan = {
        "format": 1,
        "name": name,
        "reproduces": "table1",
        "scale": {"name": "smoke", "note": "few images"},
        "grid": {},
        "runs": [{"id": key, "place": place, "config": {}} for key, place in places.items()],
    }
    file = out / "sweeps" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(plan | changes))
    return file


def small_sweep(out: Path, name: str = "table1-smoke", methods: Sequence[str] = ("er",)) -> Path:
    """Two seeds of each adaptation, all done."""
    places = {}
    for method in methods:
        for adaptation, ends in ENDS.items():
            for seed, faa in enumerate(ends):
                names = {"method": method, "adaptation": adaptation, "seed": seed}
                run_id = f"{method}-{adaptation}-{seed}"
                places[run_id] = place_of(**names)
                write_run(out / "runs" / run_id, small_result(faa=faa, **names))
    return write_plan(out, name, places)


def troubled_sweep(out: Path) -> Sweep:
    """Of six runs four are done: vanilla 1 has broken twice, the result of amr 0 is damaged."""
    file = small_sweep(out)
    (out / "runs" / "er-vanilla-1" / "result.json").unlink()
    (out / "runs" / "er-amr-0" / "result.json").write_text('{"faa": 80')
    (out / "failures").mkdir()
    attempts = [{"time": 1, "error": "first"}, {"time": 2, "error": "out of <b>memory</b>"}]
    (out / "failures" / "er-vanilla-1.json").write_text(json.dumps({"attempts": attempts}))
    return read_sweep(file)
