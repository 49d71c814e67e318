"""Whether a scale keeps a table's shape: drift that is there is found, no drift is learned well enough,
and strategies can differ.

    python benchmarks/scale_validity.py [--scale tables] [--tables 1 2 3 4] [--workers 1]

For each table: ER on a development seed, without drift with both buffers, and with both numbers of
drifts under vanilla, fr and amr with the small one, where differences are hardest to see. The
evidence is kept in results/scale_validity.json, one entry per scale, table and number of drifts;
`tests/docs/test_results.py` checks it. Runs that are done are not made again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from driftwise.reproduce.grids import TARGETS
from driftwise.reproduce.published import find
from driftwise.runs.store import read_result
from driftwise.sweeps.executors import Pool
from driftwise.sweeps.perform import carry_out
from driftwise.sweeps.plan import RUNS, Plan, make_plan
from driftwise.sweeps.progress import Overview
from driftwise.sweeps.scale import SCALES

FILE = Path(__file__).resolve().parents[1] / "results" / "scale_validity.json"
SEED = 100
BUFFERS = (500, 5000)
FOUND, SHARE = 0.9, 0.6
"""the least detection rate, and the least share of the published accuracy without drift"""


def plan_of(table: str, scale: str) -> Plan:
    """ER on the development seed."""
    grid = TARGETS[table].grid([SEED])
    return make_plan(f"validity-{table}-{scale}", grid, scale=SCALES[scale], fast=True)


def entries(table: str, results: Sequence[tuple[Mapping[str, Any], dict[str, Any]]]) -> list[Any]:
    """The evidence for each number of drifts, from results by their places."""
    by_place = {
        (place["buffer_size"], place["num_drifts"], place["adaptation"]): result
        for place, result in results
    }
    found = []
    for drifts in sorted({drifts for _, drifts, _ in by_place if drifts}):
        shares = {}
        for buffer in BUFFERS:
            plain = by_place[buffer, 0, "vanilla"]
            paper = find(
                benchmark=plain["benchmark"],
                buffer_size=buffer,
                method="er",
                adaptation="vanilla",
                num_drifts=0,
            )
            assert paper is not None
            shares[buffer] = round(plain["faa"] / paper.faa, 3)
        adapted = {a: by_place[BUFFERS[0], drifts, a] for a in ("vanilla", "fr", "amr")}
        rate = min(result["detection"]["tpr"] for result in adapted.values())
        faa = {a: round(result["faa"], 2) for a, result in adapted.items()}
        differ = len({*faa.values()}) == len(faa)
        found.append(
            {
                "table": table,
                "num_drifts": drifts,
                "seed": SEED,
                "tpr": rate,
                "share_of_published_without_drift": shares,
                "faa": faa,
                "differ": differ,
                "valid": rate >= FOUND and min(shares.values()) >= SHARE and differ,
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="tables")
    parser.add_argument("--tables", nargs="+", type=int, default=[1, 2, 3, 4])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, help="(default: a folder that is removed)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Overview(Console()) as overview:
        out = options.out or Path(folder)
        for number in options.tables:
            plan = plan_of(f"table{number}", options.scale)
            runs = [
                run
                for run in plan.runs
                if run.place["method"] == "er"
                and (run.place["buffer_size"] == BUFFERS[0] or not run.place["num_drifts"])
            ]
            with Pool(options.workers, overview.progress) as engine:
                summary = carry_out(runs, out, engine, overview)
            if summary.failed:
                print(f"table {number}: {summary.failed}")
                continue
            results = [(run.place, read_result(out / RUNS / run.id)) for run in runs]
            kept = json.loads(FILE.read_text()) if FILE.exists() else {}
            others = [
                entry for entry in kept.get(options.scale, []) if entry["table"] != f"table{number}"
            ]
            kept[options.scale] = sorted(
                [*others, *entries(f"table{number}", results)],
                key=lambda entry: (entry["table"], entry["num_drifts"]),
            )
            FILE.write_text(json.dumps(kept, indent=1) + "\n")
            print(json.dumps(kept[options.scale], indent=1), flush=True)


if __name__ == "__main__":
    main()
