"""Seconds and memory of `driftwise detect` on two tables of 100,000 samples and 50 features.

Ten classes, one of which has drifted in one feature. Each kind of file is compared in a process of its
own; the first line is a process that only imports.

    python benchmarks/bench_detect_table.py [--samples 100000] [--features 50]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CLASSES = 10


def write(folder: Path, name: str, *, samples: int, features: int, seed: int) -> None:
    """The same table as .csv and as .npy, with its labels beside."""
    draw = np.random.default_rng(seed)
    values = draw.normal(size=(samples, features)).astype(np.float32)
    labels = np.arange(samples) % CLASSES
    values[labels == 3, 0] += seed
    np.save(folder / f"{name}.npy", values)
    np.save(folder / f"{name}_labels.npy", labels)
    head = ",".join([*(f"f{number}" for number in range(features)), "label"])
    table = np.column_stack([values, labels])
    forms = ["%.6g"] * features + ["%d"]
    np.savetxt(folder / f"{name}.csv", table, forms, ",", header=head, comments="")


def measured(*words: str) -> tuple[int, float, float, int]:
    """Exit code, seconds, processor seconds and peak megabytes of a command."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    return code, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=100_000)
    arguments.add_argument("--features", type=int, default=50)
    chosen = arguments.parse_args()
    commands: dict[str, tuple[str, ...]] = {"import": ("-c", "import driftwise.detect.standalone")}
    failed = False
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        for seed, name in enumerate(("last", "this")):
            write(folder, name, samples=chosen.samples, features=chosen.features, seed=seed)
        for kind in ("csv", "npy"):
            files = [str(folder / f"{name}.{kind}") for name in ("last", "this")]
            commands[kind] = ("-m", "driftwise", "detect", *files, "--quiet")
        print(f"{'':8}{'code':>6}{'seconds':>10}{'processor':>11}{'peak MB':>9}")
        for name, words in commands.items():
            code, seconds, processor, peak = measured(*words)
            print(f"{name:8}{code:>6}{seconds:>10.1f}{processor:>11.1f}{peak:>9}")
            failed |= code != (0 if name == "import" else 3)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
