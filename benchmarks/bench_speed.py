"""What `--speed fast` saves and what it costs: the same runs exact and fast, seed by seed.

    python benchmarks/bench_speed.py [--seeds 3]

Three cells of the paper's tables at the scale `tables`, on development seeds: accuracy must not differ
by more than seeds do. Then one run of table 1 and one of table 2 at the scale `small` (the latter with
one epoch): the processor time of a run must fall to half; what a table saves besides, because its runs
share tasks, is printed with it. Kept in results/speed.json by processor; runs that are saved are not
made again. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from ratios import processor

from driftwise.config.schema import RunConfig
from driftwise.reproduce.grids import TARGETS
from driftwise.runs.run import run
from driftwise.sweeps.plan import Plan, make_plan
from driftwise.sweeps.scale import SCALES
from driftwise.sweeps.shared import tree_of

FILE = Path(__file__).resolve().parents[1] / "results" / "speed.json"
FIRST_SEED = 100
CELLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "table 1, er, amr": ("table1", "tables", {"method": "er", "adaptation": "amr"}),
    "table 1, der++, fr": ("table1", "tables", {"method": "der++", "adaptation": "fr"}),
    "table 1, er-ace, vanilla": ("table1", "tables", {"method": "er-ace", "adaptation": "vanilla"}),
}
SMALL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "small table 1": ("table1", "small", {"method": "er", "adaptation": "vanilla"}),
    "small table 2, one epoch": ("table2", "small", {"method": "er", "adaptation": "vanilla"}),
}
GOAL = 2.0
"""times less processor time of a `small` run"""


def plan_of(name: str, speed: str, seed: int) -> Plan:
    """The table that a cell is of."""
    target, scale, _ = {**CELLS, **SMALL}[name]
    settings = {"epochs": 1} if "one epoch" in name else {}
    grid = TARGETS[target].grid([seed], None, settings)
    return make_plan("speed", grid, scale=SCALES[scale], fast=speed == "fast")


def config_of(name: str, speed: str, seed: int) -> RunConfig:
    """The planned run of a cell with a buffer of 500 and one drift."""
    wanted = {"buffer_size": 500, "num_drifts": 1, **{**CELLS, **SMALL}[name][2]}
    runs = plan_of(name, speed, seed).runs
    (config,) = [run.config for run in runs if wanted.items() <= run.place.items()]
    return config


def times_shared(name: str) -> float:
    """Times fewer tasks of a whole table because runs share some."""
    ours, separate = tree_of(plan_of(name, "exact", FIRST_SEED).runs).num_tasks
    return separate / ours


def measured(seeds: int, earlier: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row per run, both speeds of a cell and seed one after the other; earlier ones first."""
    yield from earlier
    done = {(row["cell"], row["seed"], row["speed"]) for row in earlier}
    wanted = [(cell, FIRST_SEED + seed) for seed in range(seeds) for cell in CELLS]
    for cell, seed in [*((cell, FIRST_SEED) for cell in SMALL), *wanted]:
        for speed in ("exact", "fast"):
            if (cell, seed, speed) in done:
                continue
            with tempfile.TemporaryDirectory() as folder:
                began = time.process_time()
                result = run(config_of(cell, speed, seed), Path(folder) / "run")
                seconds = time.process_time() - began
            row = {"cell": cell, "seed": seed, "speed": speed, "faa": result["faa"]}
            row |= {"processor_seconds": round(seconds, 1), "steps": result["gradient_steps"]}
            print(json.dumps(row), flush=True)
            yield row


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By cell: both accuracies, their paired difference, times less processor time."""
    found = {}
    for cell in dict.fromkeys(row["cell"] for row in rows):
        by_speed = {
            speed: {r["seed"]: r for r in rows if (r["cell"], r["speed"]) == (cell, speed)}
            for speed in ("exact", "fast")
        }
        seeds = sorted(by_speed["exact"].keys() & by_speed["fast"].keys())
        if not seeds:
            continue
        faa = {speed: [by_speed[speed][s]["faa"] for s in seeds] for speed in by_speed}
        cost = {s: sum(by_speed[s][k]["processor_seconds"] for k in seeds) for s in by_speed}
        spread = statistics.stdev(faa["exact"]) if len(seeds) > 1 else None
        difference = statistics.mean(faa["fast"]) - statistics.mean(faa["exact"])
        found[cell] = {
            "seeds": len(seeds),
            "faa_exact": round(statistics.mean(faa["exact"]), 2),
            "faa_fast": round(statistics.mean(faa["fast"]), 2),
            "difference": round(difference, 2),
            "sd_over_seeds": None if spread is None else round(spread, 2),
            "times_less_processor_time": round(cost["exact"] / cost["fast"], 2),
            "times_less_with_shared_tasks": round(
                cost["exact"] / cost["fast"] * times_shared(cell), 2
            ),
        }
    return found


def missed(found: dict[str, dict[str, Any]]) -> list[str]:
    """The goals that are not reached."""
    wrong = [
        f"{cell}: {each['difference']:+} points where seeds differ by {each['sd_over_seeds']}"
        for cell, each in found.items()
        if each["sd_over_seeds"] is not None and abs(each["difference"]) > each["sd_over_seeds"]
    ]
    slow = [
        f"{cell}: {each['times_less_processor_time']} times less processor time, not {GOAL}"
        for cell, each in found.items()
        if cell in SMALL and each["times_less_processor_time"] < GOAL
    ]
    return wrong + slow


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    earlier = kept.get(processor(), {"runs": []})["runs"]
    rows: list[dict[str, Any]] = []
    for row in measured(options.seeds, earlier):
        rows.append(row)
        kept[processor()] = {"summary": summary(rows), "runs": rows}
        FILE.write_text(json.dumps(kept, indent=1) + "\n")
    found = summary(rows)
    print(json.dumps(found, indent=1))
    for line in missed(found):
        print(f"missed: {line}")
    sys.exit(bool(missed(found)))
