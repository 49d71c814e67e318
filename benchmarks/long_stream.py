"""Whether a run over many tasks holds more and more: memory, open files, threads.

    python benchmarks/long_stream.py [--tasks 200] [--every 20] [--detector ks]

Digits: five tasks with two new classes each, and from then on tasks without any, with a drift now
and then, saved every few steps. Memory is what no file stands behind, as the kernel counts it.
From a fifth of the way on, no more files or threads may be held, checkpoints may not grow, and
memory by no more than an allocator's rounding. What was found about each task goes to a file; it
is read back once, when the result is made. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "faults"))

from long_stream_tools import Recorder, long_config

from driftwise import run
from driftwise.runs.saving import Saving

MEMORY = 2**20
"""bytes by which memory may differ: pages are counted, not objects"""
CHECKPOINT = 256
"""bytes by which a checkpoint may differ: numbers in it get longer"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="tasks between two measurements")
    parser.add_argument("--detector", default="ks")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        config = long_config(arguments.tasks, detector=arguments.detector)
        recorder = Recorder(Path(folder) / "run", arguments.every)
        run(config, Path(folder) / "run", listener=recorder, saving=Saving(steps=5))
        sizes = {file.name: file.stat().st_size for file in (Path(folder) / "run").iterdir()}
    print(f"{'task':>5}{'memory, MB':>12}{'files':>7}{'threads':>9}{'checkpoint, bytes':>19}")
    for held in recorder.seen:
        print(
            f"{held.task:>5}{held.anonymous / 2**20:>12.2f}{held.files:>7}{held.threads:>9}"
            f"{held.checkpoint:>19}"
        )
    first = next(held for held in recorder.seen if held.task >= arguments.tasks // 5)
    last = recorder.seen[-1]
    print(
        f"from task {first.task} to {last.task}: "
        f"{(last.anonymous - first.anonymous) / 2**20:+.2f} MB, "
        f"{last.files - first.files:+d} files, {last.threads - first.threads:+d} threads; "
        f"{time.monotonic() - start:.0f} s"
    )
    print(", ".join(f"{name} {size / 1e3:.0f} kB" for name, size in sorted(sizes.items())))
    grows = (
        last.anonymous - first.anonymous > MEMORY
        or last.checkpoint - first.checkpoint > CHECKPOINT
        or last.files > first.files
        or last.threads > first.threads
    )
    return 1 if grows else 0


if __name__ == "__main__":
    sys.exit(main())
