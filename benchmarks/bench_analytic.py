"""Streaming LDA over many samples of many classes: time, memory, and whether batches get slower.

    python benchmarks/bench_analytic.py [--samples 1000000] [--features 768] [--classes 1000] [--out FILE]

The samples are drawn as they come, and drawing them is not counted. The scatter is shared by all
classes: 8 d² bytes in all. After every tenth of the stream the classifier is computed and asked.
docs/how-to/vectors.md quotes what a quiet machine gave.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

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
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(options.classes, options.features, generator=draw)
    learner = dw.AnalyticLearner(dw.methods.SLDA(), scatter="shared")
    learner.begin_task(range(options.classes))
    observing = predicting = 0.0
    batches = options.samples // options.batch
    tenth = max(1, batches // 10)
    by_tenth: list[float] = []
    """milliseconds of a batch, the mean over each tenth"""
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
        observing += time.perf_counter() - start
        if number % tenth == 0:
            by_tenth.append(round(1e3 * observing / tenth - sum(by_tenth), 2))
            start = time.perf_counter()
            correct = (learner.logits(batch.images).argmax(dim=1) == labels).float().mean()
            predicting += time.perf_counter() - start
            print(
                f"{number * options.batch:>10,} samples  {observing:7.1f} s in all  "
                f"{by_tenth[-1]:6.1f} ms a batch in this tenth  {100 * correct:5.1f} % right",
                flush=True,
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    found = {
        **{name: getattr(options, name) for name in ("samples", "features", "classes", "batch")},
        "threads": torch.get_num_threads(),
        "learning_seconds": round(observing, 1),
        "classifiers_and_predictions_seconds": round(predicting, 1),
        "milliseconds_of_a_batch_by_tenth": by_tenth,
        "statistics_mib": round(learner.statistics.nbytes() / 2**20, 1),
        "more_memory_at_most_mib": round(peak / 1024),
    }
    print(json.dumps(found, indent=2))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
