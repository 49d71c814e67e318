"""Folders of sweeps over the paper's grids, with known numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from report_builders import small_result, write_run

from driftwise.report.sweeps import Sweep, read_sweep
from driftwise.reproduce.published import table

Place = Mapping[str, Any]


def places_of(name: str, benchmark: str | None = None) -> list[dict[str, Any]]:
    """The grid of a published table, on its own benchmark or on another."""
    return [
        {
            "benchmark": benchmark or cell.benchmark,
            "method": cell.method,
            "adaptation": cell.adaptation,
            "buffer_size": cell.buffer_size,
            "num_drifts": cell.num_drifts,
            **({"backbone": cell.backbone} if name == "backbones" else {}),
        }
        for cell in table(name)
    ]


def write_sweep(
    folder: Path,
    places: Iterable[Place],
    result: Callable[[Place, int], dict[str, Any] | None],
    *,
    reproduces: str | None = "table1",
    seeds: int = 2,
    scale: str = "smoke",
    note: str = "600 images, one epoch, a small network",
    name: str | None = None,
) -> Sweep:
    """A sweep on disk; `result(place, seed)` gives the entries of a result, None where it is not done."""
    name = name or f"{reproduces or 'own'}-{scale}"
    runs = []
    for number, place in enumerate(places):
        for seed in range(seeds):
            run_id = f"{name}-{number}-{seed}"
            runs.append({"id": run_id, "place": {**place, "seed": seed}, "config": {}})
            changes = result(place, seed)
            if changes is not None:
                keys = ("benchmark", "method", "adaptation", "num_drifts")
                named = {key: place[key] for key in keys if key in place}
                real = place.get("buffer_size", 600) // 30
                changes = {**named, "buffer_size": real, "seed": seed, **changes}
                write_run(folder / "runs" / run_id, small_result(**changes))
    file = folder / "sweeps" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    plan = {
        "format": 1,
        "name": name,
        "reproduces": reproduces,
        "scale": {"name": scale, "note": note},
        "grid": {},
        "runs": runs,
    }
    file.write_text(json.dumps(plan))
    return read_sweep(file)


def asked(adaptation: str, fr: int, amr: int) -> dict[str, int]:
    """The labels of a run."""
    count = {"fr": fr, "amr": amr}.get(adaptation, 0)
    return {"stream": 600, "monitoring": 40, "adaptation": count}
