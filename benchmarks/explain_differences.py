"""What explains differences to the paper: one cell of Table 1, one setting changed at a time.

    python benchmarks/explain_differences.py [--seeds 3] [--out FOLDER]

ER with amr, a buffer of 500 and one drift at the scale `tables`, seed by seed beside the same run with
one setting changed. Kept in results/ablations.json; a change that stands there with as many seeds is not
measured again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from driftwise.reproduce.evidence import interval_of
from driftwise.reproduce.grids import TARGETS
from driftwise.runs.store import read_result
from driftwise.sweeps.executors import Pool
from driftwise.sweeps.perform import carry_out
from driftwise.sweeps.plan import RUNS, PlannedRun, make_plan
from driftwise.sweeps.progress import Overview
from driftwise.sweeps.scale import SCALES

FILE = Path(__file__).resolve().parents[1] / "results" / "ablations.json"
CELL = {"method": "er", "adaptation": "amr", "buffer_size": 500, "num_drifts": 1}
CHANGES: dict[str, dict[str, Any]] = {
    "as in the tables": {},
    "classes in reverse order": {"class_order": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]},
    "images cropped and flipped": {"augmentation": "crop-flip"},
    "plain reservoir": {"buffer_policy": "reservoir"},
    "held-out samples monitored": {"monitor": "holdout"},
    "every known class checked": {"checked": "all-known"},
    "drift known": {"detector": "oracle"},
    "the published detector": {
        "detector": "ks",
        "encoder": "resnet18-imagenet",
        "reference": "memory",
    },
    "another permutation": {"drift_seed": 7},
    "pixels permuted instead of rows": {"permutation_unit": "pixel"},
    "two epochs": {"epochs": 2},
    "twice the images and the buffer": {"max_per_class": 1200},
}


def runs_of(change: dict[str, Any], seeds: int) -> list[PlannedRun]:
    """The cell with a setting changed."""
    grid = TARGETS["table1"].grid(range(seeds), None, change)
    plan = make_plan("ablation", grid, scale=SCALES["tables"], fast=True)
    return [run for run in plan.runs if CELL.items() <= run.place.items()]


def summary(faa: dict[str, dict[int, float]]) -> dict[str, Any]:
    """By change: accuracy, and the difference to the cell as it is, paired by seed."""
    base = faa["as in the tables"]
    found = {}
    for name, values in faa.items():
        differences = [values[seed] - base[seed] for seed in values if seed in base]
        interval = interval_of(differences)
        found[name] = {
            "faa": {str(seed): round(value, 2) for seed, value in values.items()},
            "mean": round(sum(values.values()) / len(values), 2),
            "difference": round(interval.mean, 2),
            "interval": [None if end is None else round(end, 2) for end in interval[1:]],
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="(default: a folder that is removed)")
    options = parser.parse_args()
    known: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    faa = {
        name: {int(seed): value for seed, value in known[name]["faa"].items()}
        for name in CHANGES
        if len(known.get(name, {}).get("faa", ())) >= options.seeds
    }
    found = {name: known[name]["found"] for name in faa if "found" in known[name]}
    with tempfile.TemporaryDirectory() as folder, Overview(Console()) as overview:
        out = options.out or Path(folder)
        for name, change in CHANGES.items():
            if name in faa:
                continue
            runs = runs_of(change, options.seeds)
            with Pool(1, overview.progress) as engine:
                carry_out(runs, out, engine, overview)
            results = [read_result(out / RUNS / run.id) for run in runs]
            faa[name] = {result["seed"]: result["faa"] for result in results}
            found[name] = [
                sum(result["detection"][key] for result in results)
                for key in ("num_detected", "num_drifts")
            ]
            faa = {each: faa[each] for each in CHANGES if each in faa}
            content = summary(faa)
            for each, counts in found.items():
                content[each]["found"] = counts
            FILE.write_text(json.dumps(content, indent=1) + "\n")
            print(name, json.dumps(content[name]), flush=True)


if __name__ == "__main__":
    main()
