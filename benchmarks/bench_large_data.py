"""Anonymous memory of a stream as large as Tiny-ImageNet: 110,000 images of 64x64x3, 1.35 GB.

The pixels are made up, cached as any data set is, and streamed through ten tasks with two drifts:
every task's training, monitored and test samples are read as a run reads them. Pages of mapped files
are reported apart: the system can take them back at any time.

    python benchmarks/bench_large_data.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from driftwise.datasets.cache import Source, cached
from driftwise.datasets.reading import Allocate
from driftwise.streams import Stream, make_schedule
from driftwise.streams.split import make_parts
from driftwise.types import Dataset

CLASSES, PER_CLASS, TEST_PER_CLASS, SIDE = 200, 550, 50, 64
GOAL_MB = 1000


def memory() -> dict[str, int]:
    """Resident megabytes of this process, by kind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        kind: int(line.split()[1]) // 1024
        for line in lines
        for kind in ("RssAnon", "RssFile", "RssShmem")
        if line.startswith(f"{kind}:")
    }


def make_up(allocate: Allocate) -> Dataset:
    """Noise in the size of the real thing, written a class at a time."""
    images = allocate((CLASSES * PER_CLASS, SIDE, SIDE, 3))
    draw = np.random.default_rng(0)
    for label in range(CLASSES):
        pixels = draw.integers(0, 256, (PER_CLASS, SIDE, SIDE, 3), dtype=np.uint8)
        images[label * PER_CLASS : (label + 1) * PER_CLASS] = pixels
    rows = np.arange(CLASSES * PER_CLASS)
    return Dataset(
        images=images,
        labels=rows // PER_CLASS,
        class_names=tuple(map(str, range(CLASSES))),
        is_test=rows % PER_CLASS < TEST_PER_CLASS,
    )


def main() -> int:
    peak = 0
    with tempfile.TemporaryDirectory() as home:
        dataset = cached("made-up", Source(fingerprint="0" * 64), make_up, home=Path(home))
        print(f"{'decoded and cached':<28} {memory()}")
        parts = make_parts(dataset, monitor_test=False, keep_reference=True, seed=0)
        schedule = make_schedule(
            [tuple(range(20 * task, 20 * task + 20)) for task in range(10)],
            num_drifts=2,
            transform="permutation",
            severity=5,
            seed=0,
        )
        stream = Stream(dataset, parts, schedule, batch_size=32, seed=0)
        for task in stream.tasks():
            train, monitored = task.train(), task.monitored()
            peak = max(peak, memory()["RssAnon"])
            del train, monitored
            tests = task.tests()
            for label in schedule.drifting(task.number)[:5]:
                task.incoming(label)
            peak = max(peak, memory()["RssAnon"])
            print(f"{f'task {task.number}, {len(tests):,} test samples':<28} {memory()}")
            del tests
    print(f"most anonymous memory {peak} MB, goal below {GOAL_MB} MB")
    return 0 if peak < GOAL_MB else 1


if __name__ == "__main__":
    sys.exit(main())
