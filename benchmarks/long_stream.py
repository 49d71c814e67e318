"""Whether a run over many tasks holds more and more: memory, open files, threads.

    python benchmarks/long_stream.py [--tasks 200] [--every 20] [--detector ks]

Digits: five tasks with two new classes each, and from then on tasks without any, with a drift now
and then, saved every few steps. Memory is what no file stands behind, as the kernel counts it.
From a fifth of the way on, no more files or threads may be held, and no more memory than the
verdicts and scores of the tasks between. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "faults"))

from long_stream_tools import Watch, long_config

from recollect import run
from recollect.experiment.saving import Saving

PER_TASK = 100 * 2**10
"""bytes of memory that a task may leave behind: the verdicts and scores that a result is made of"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="tasks between two looks")
    parser.add_argument("--detector", default="ks")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    watch = Watch(arguments.every)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        config = long_config(arguments.tasks, detector=arguments.detector)
        run(config, Path(folder) / "run", listener=watch, saving=Saving(steps=5))
        sizes = {file.name: file.stat().st_size for file in (Path(folder) / "run").iterdir()}
    print(f"{'task':>5}{'memory, MB':>12}{'files':>7}{'threads':>9}")
    for held in watch.seen:
        print(f"{held.task:>5}{held.anonymous / 2**20:>12.1f}{held.files:>7}{held.threads:>9}")
    first = next(held for held in watch.seen if held.task >= arguments.tasks // 5)
    last = watch.seen[-1]
    print(
        f"from task {first.task} to {last.task}: "
        f"{(last.anonymous - first.anonymous) / 2**20:+.1f} MB, "
        f"{last.files - first.files:+d} files, {last.threads - first.threads:+d} threads; "
        f"{time.monotonic() - start:.0f} s"
    )
    print(", ".join(f"{name} {size / 1e3:.0f} kB" for name, size in sorted(sizes.items())))
    grows = last.anonymous - first.anonymous > PER_TASK * (last.task - first.task)
    return 1 if grows or last.files > first.files or last.threads > first.threads else 0


if __name__ == "__main__":
    sys.exit(main())
