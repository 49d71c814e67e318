"""How long the index over many finished runs takes: reading, tabulating, writing.

    python benchmarks/bench_index.py [--runs 1000] [--classes 10] [--tasks 5] [--keep FOLDER]

The runs are made up, but their files have the shape and the size of real ones: every class seen so
far is checked at every task, and each run has left example images. Two measures, because a busy
machine makes the clock run ahead of the work.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from driftwise.report.index_page import cells_of, write_index
from driftwise.report.sweeps import read_sweep

T = TypeVar("T")

METHODS = ("er", "er-ace", "der++", "ser", "cls-er")
BUFFERS = {500: 17, 5000: 167}
"""as the grid calls them, and as the runs have them"""
COLUMNS = (("vanilla", 0), *itertools.product(("vanilla", "fr", "amr"), (1, 2)))
LEVELS = {"vanilla": 48.0, "fr": 76.0, "amr": 73.0}


def places(num: int, *, alike: bool = False) -> Iterator[dict[str, Any]]:
    """Where each run stands: the paper's grid of 70 cells, with as many seeds as it takes.

    `alike`: all are seeds of one cell.
    """
    cells = list(itertools.product(METHODS, BUFFERS, COLUMNS))[-1 if alike else 0 :]
    for number in range(num):
        seed, cell = divmod(number, len(cells))
        method, buffer, (adaptation, drifts) = cells[cell]
        yield {
            "benchmark": "fmnist-cd",
            "method": method,
            "adaptation": adaptation,
            "buffer_size": buffer,
            "num_drifts": drifts,
            "seed": seed,
        }


def made_up(place: dict[str, Any], classes: int, tasks: int) -> dict[str, Any]:
    """What a run at this place might have left."""
    rng = np.random.default_rng(zlib.crc32(repr(place).encode()))
    per_task = classes // tasks
    drifts = {2: tuple(range(per_task)), 4: tuple(range(per_task, 2 * per_task))}
    drifts = dict(itertools.islice(drifts.items(), place["num_drifts"]))
    level = LEVELS[place["adaptation"]] if drifts else 84.0
    square = np.clip(rng.normal(level, 9.0, (tasks, tasks)), 0, 100)
    matrix = [[*row[: task + 1], *[None] * (tasks - task - 1)] for task, row in enumerate(square)]
    seen = [range(per_task * (task + 1)) for task in range(tasks)]
    verdicts = [
        {
            "task": task,
            "class": label,
            "drifted": bool(rng.random() < (0.9 if label in drifts.get(task, ()) else 0.04)),
            "score": rng.random(),
            "p_value": rng.random() ** 4,
            "threshold": 0.05,
            "num_reference": 50,
            "num_current": 50,
            "reason": None,
            "p_values": None,
        }
        for task in range(2, tasks + 1)
        for label in seen[task - 2]
    ]
    monitored = place["adaptation"] != "vanilla"
    asked = {"vanilla": 0, "fr": 12000, "amr": 100}[place["adaptation"]] * len(drifts)
    flops = {
        "train": 4e13,
        "detect": 2e12 if monitored else 0,
        "adapt": 9e8 * asked,
        "evaluate": 7e12,
    }
    seconds = {name: value / 4e11 * rng.uniform(0.9, 1.2) for name, value in flops.items()}
    config = {
        **place,
        "buffer_size": BUFFERS[place["buffer_size"]],
        "options": {"method": {"alpha": 0.1}, "adaptation": {}, "detector": {"level": 0.05}},
        "epochs": 1,
        "lr": 0.03,
        **{f"setting_{number}": number for number in range(30)},
    }
    return {
        **{key: config[key] for key in place},
        "detector": "ks",
        "faa": float(square[-1].mean()),
        "forgetting": float(rng.uniform(4, 40)),
        "faa_drifted": level - 4,
        "faa_stable": level + 6,
        "accuracy_matrix": matrix,
        "accuracy_matrix_til": matrix,
        "per_class_accuracy": [{str(c): rng.uniform(0, 100) for c in known} for known in seen],
        "macro_f1": list(square[-1]),
        "labels": {"stream": 12000, "monitoring": 2000, "adaptation": asked},
        "flops": flops,
        "seconds": seconds,
        "drift_events": [
            {"task": task, "classes": labels, "transform": "permutation", "severity": 5}
            for task, labels in drifts.items()
        ],
        "verdicts": verdicts if monitored else [],
        "renewals": [],
        "detection": {"tpr": rng.uniform(0.7, 1), "fpr": rng.uniform(0, 0.1)} if monitored else {},
        "calibration": None,
        "confusion_matrix": rng.integers(0, 40, (classes, classes)).tolist(),
        "class_names": [f"class {label}" for label in range(classes)],
        "gradient_steps": 1100,
        "notes": [],
        "warnings": [],
        "versions": {"driftwise": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "threads": 1},
        "config": config,
    }


def fill(out: Path, name: str, *, num: int, classes: int, tasks: int, alike: bool = False) -> Path:
    """A sweep whose runs are all done; its plan."""
    planned = []
    images, rows = np.zeros((4, 8, 8, 1), dtype=np.uint8), np.arange(4)
    tensors: dict[str, NDArray[Any]] = {
        "before": images,
        "after": images,
        "labels": rows,
        "tasks": rows,
    }
    for place in places(num, alike=alike):
        run_id = "-".join(map(str, place.values()))
        folder = out / "runs" / run_id
        folder.mkdir(parents=True)
        result = made_up(place, classes, tasks)
        (folder / "result.json").write_text(json.dumps(result, indent=1))
        (folder / "config.json").write_text(json.dumps(result["config"], indent=1))
        save_file(tensors, folder / "samples.safetensors")
        planned.append({"id": run_id, "place": place, "config": result["config"]})
    plan = {
        "format": 1,
        "name": name,
        "reproduces": "table1",
        "scale": {"name": "smoke", "note": "1,500 images, a small network, one epoch"},
        "grid": {},
        "runs": planned,
    }
    (out / "sweeps").mkdir(exist_ok=True)
    file = out / "sweeps" / f"{name}.json"
    file.write_text(json.dumps(plan, indent=1))
    return file


def measure(out: Path, file: Path) -> None:
    """Print the seconds of each part."""
    sweep = timed("reading", lambda: read_sweep(file))
    timed("tabulating", lambda: cells_of([sweep]))
    page = timed("tabulating and writing", lambda: write_index(out, [sweep]))
    pages = list((out / "pages").iterdir())
    size = sum(each.stat().st_size for each in pages)
    print(f"index.html {page.stat().st_size / 1e6:.2f} MB, {len(pages)} pages {size / 1e6:.1f} MB")


def timed(part: str, work: Callable[[], T]) -> T:
    """What `work` returns, after printing how long it took."""
    wall, busy = time.perf_counter(), time.process_time()
    result = work()
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    print(f"{part:24} {busy:6.2f} s of one core, {wall:6.2f} s by the clock")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="a new folder to leave everything in")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = given.keep or Path(temporary)
        measure(
            out, fill(out, "table1-smoke", num=given.runs, classes=given.classes, tasks=given.tasks)
        )


if __name__ == "__main__":
    main()
