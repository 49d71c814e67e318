"""Streaming LDA over many samples of many classes: time, memory, and whether batches get slower.

    python benchmarks/bench_analytic.py [--samples 1000000] [--features 768] [--classes 1000]

The samples are drawn as they come, and drawing them is not counted. The scatter is shared by all
classes: 8 d² bytes in all. After every tenth of the stream the classifier is computed and asked.
"""

from __future__ import annotations

import argparse
import resource
import time

import torch

import driftwise as dw
from driftwise.types import Samples


def main() -> None:
    """Stream, and print a line for every tenth of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=768)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=1000)
    options = parser.parse_args()
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(options.classes, options.features, generator=draw)
    learner = dw.AnalyticLearner(dw.methods.SLDA(), scatter="shared")
    learner.begin_task(range(options.classes))
    observing = predicting = 0.0
    batches = options.samples // options.batch
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(1, batches + 1):
        labels = torch.randint(options.classes, (options.batch,), generator=draw)
        noise = torch.randn(options.batch, options.features, generator=draw)
        ids = torch.arange(options.batch) + number * options.batch
        batch = Samples(
            images=centres[labels] + 3 * noise, labels=labels, ids=ids, concepts=0 * ids
        )
        start = time.perf_counter()
        learner.observe(batch)
        took = time.perf_counter() - start
        observing += took
        if number % max(1, batches // 10) == 0:
            start = time.perf_counter()
            correct = (learner.logits(batch.images).argmax(dim=1) == labels).float().mean()
            predicting += time.perf_counter() - start
            print(
                f"{number * options.batch:>10,} samples  {observing:7.1f} s in all  "
                f"{1e3 * took:6.1f} ms the last batch  {100 * correct:5.1f} % right",
                flush=True,
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        f"learning {observing:.1f} s, classifiers and predictions {predicting:.1f} s, "
        f"{torch.get_num_threads()} threads; statistics {learner.statistics.nbytes() / 2**20:.1f} "
        f"MiB, {peak / 1024:.0f} MiB more in memory at most"
    )


if __name__ == "__main__":
    main()
