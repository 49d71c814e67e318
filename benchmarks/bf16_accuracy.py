"""Whether bfloat16 costs accuracy: the same runs in both precisions, seed by seed.

    python benchmarks/bf16_accuracy.py [--seeds 5] [--max-per-class 1800] [--width 20]

ER with a realigned memory on real Fashion-MNIST with one drift that is known (an oracle reports it,
so that a detector's threshold adds no noise of its own): ResNet-18 of reduced width, one
epoch. Saved runs of equal settings are not made again. Ends with 1 where the interval
of the paired difference in FAA leaves out zero and the mean difference exceeds the standard
deviation over seeds.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ratios import processor
from scipy import stats

import driftwise
from driftwise.config.schema import RunConfig

ROOT = Path(__file__).resolve().parents[1]
PRECISIONS = ("fp32", "bf16")


def config_of(options: argparse.Namespace, precision: Any, seed: int) -> RunConfig:
    return RunConfig(
        benchmark="fmnist-cd",
        max_per_class=options.max_per_class,
        method="er",
        adaptation="amr",
        detector="oracle",
        backbone="resnet18",
        options={"backbone": {"width": options.width}},
        buffer_size=options.buffer_size,
        num_drifts=1,
        epochs=1,
        batch_size=10,
        minibatch_size=10,
        lr=0.03,
        precision=precision,
        memory_format=options.memory_format,
        threads=1,
        device="cpu",
        seed=seed,
    )


def measured(
    options: argparse.Namespace, earlier: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """One row per run, both precisions of a seed one after the other; earlier ones first."""
    yield from earlier
    for seed in range(len(earlier) // len(PRECISIONS), options.seeds):
        for precision in PRECISIONS:
            with tempfile.TemporaryDirectory() as folder:
                result = driftwise.run(config_of(options, precision, seed), Path(folder) / "run")
            row = {
                "seed": seed,
                "precision": precision,
                "faa": result["faa"],
                "forgetting": result["forgetting"],
                "steps": result["gradient_steps"],
                "train_seconds": result["seconds"]["train"],
            }
            print(json.dumps(row), flush=True)
            yield row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """FAA of both precisions, the paired difference and its 95 % interval (Student's t)."""
    faa = {p: np.array([row["faa"] for row in rows if row["precision"] == p]) for p in PRECISIONS}
    difference = faa["bf16"] - faa["fp32"]
    count, mean = len(difference), float(difference.mean())
    half = float(stats.t.ppf(0.975, count - 1) * difference.std(ddof=1) / np.sqrt(count))
    seconds = {
        p: np.array([row["train_seconds"] for row in rows if row["precision"] == p])
        for p in PRECISIONS
    }
    return {
        "faa": {p: [float(each.mean()), float(each.std(ddof=1))] for p, each in faa.items()},
        "difference": mean,
        "interval": [mean - half, mean + half],
        "times_slower": float(np.median(seconds["bf16"] / seconds["fp32"])),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-per-class", type=int, default=1800)
    parser.add_argument("--width", type=int, default=20)
    parser.add_argument("--buffer-size", type=int, default=500)
    layouts = ("channels-last", "contiguous")
    parser.add_argument("--memory-format", choices=layouts, default=layouts[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bf16" / "accuracy.json")
    options = parser.parse_args()
    config = config_of(options, "fp32", 0).to_json()
    shared = {name: config[name] for name in config if name not in ("precision", "seed")}
    earlier: dict[str, Any] = {"config": None, "runs": []}
    if options.out.exists():
        earlier = json.loads(options.out.read_text())
    is_same = earlier["config"] == shared
    rows = list(measured(options, earlier["runs"] if is_same else []))
    found = summary(rows)
    saved = {
        "config": shared,
        "processor": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **found,
        "runs": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(saved, indent=1) + "\n")
    low, high = found["interval"]
    for precision, (mean, spread) in found["faa"].items():
        print(f"{precision}: FAA {mean:.2f} ± {spread:.2f} over {len(rows) // 2} seeds")
    print(f"bf16 - fp32: {found['difference']:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}")
    print(f"a training step in bf16 takes {found['times_slower']:.1f}x the time")
    is_real = low > 0 or high < 0
    return 1 if is_real and abs(found["difference"]) > found["faa"]["fp32"][1] else 0


if __name__ == "__main__":
    sys.exit(main())
