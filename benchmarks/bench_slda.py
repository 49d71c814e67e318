"""Streaming LDA here and in Avalanche: the same features in the same order, accuracy and time.

    python benchmarks/bench_slda.py [--stream pacs-frozen-cd] [--samples 3000] [--batch-size 32] [--splits 5]
                                    [--environment FOLDER]

Avalanche updates its statistics sample by sample, whatever the batch; only these updates are timed, not
its loaders and loops. Ours are timed through `AnalyticLearner.observe`, in batches and one by one. Both
run on one thread, in turns; the quickest of `--passes` (3) counts, since the first is slower (memory is
new). Predictions are made after the last sample. Differences of accuracy are paired by split, with
their 95 % interval.

Avalanche takes the first sample of a class as a deviation from zero: its mean is zero then. The line
"Avalanche, centred" sets the mean of a class to its first sample before that sample is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from driftwise.types import Dataset


def avalanche_side(file: Path, shrinkage: float, passes: int) -> None:
    """In Avalanche's environment: learn, predict, print as JSON."""
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    with contextlib.suppress(RuntimeError):  # where torchvision has them
        for name in ("nms", "qnms"):
            schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
    warnings.simplefilter("ignore")
    supervised = importlib.import_module("avalanche.training.supervised")
    arrays = {name: torch.from_numpy(values) for name, values in np.load(file).items()}
    found = []
    for is_centred in (False, True) * passes:
        learner = supervised.StreamingLDA(
            torch.nn.Identity(),
            torch.nn.CrossEntropyLoss(),
            input_size=arrays["x"].shape[1],
            num_classes=int(arrays["y"].max()) + 1,
            shrinkage_param=shrinkage,
        )
        began = time.process_time()
        for vector, label in zip(arrays["x"], arrays["y"], strict=True):
            if is_centred and not learner.cK[label]:
                learner.muK[label] = vector
            learner.fit(vector[None], label[None])
        seconds = time.process_time() - began
        right = learner.predict(arrays["test_x"]).argmax(1) == arrays["test_y"]
        found.append((seconds, 100 * float(right.float().mean())))
    print(json.dumps([min(found[0::2]), min(found[1::2])]))


def ours(
    arrays: dict[str, np.ndarray], shrinkage: float | None, batch: int, passes: int
) -> tuple[float, float]:
    """Seconds of processor time of the quickest pass, and accuracy."""
    return min(_one_pass(arrays, shrinkage, batch) for _ in range(passes))


def _one_pass(
    arrays: dict[str, np.ndarray], shrinkage: float | None, batch: int
) -> tuple[float, float]:
    import driftwise as dw
    from driftwise.types import Samples

    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    ids = torch.arange(len(y))
    learner = dw.AnalyticLearner(dw.methods.SLDA(shrinkage=shrinkage), scatter="shared")
    learner.begin_task(sorted(set(y.tolist())))
    learner.begin_epoch(1, 1)
    samples = Samples(images=x, labels=y, ids=ids, concepts=torch.zeros_like(ids))
    began = time.process_time()
    for part in samples.split(batch):
        learner.observe(part)
    seconds = time.process_time() - began
    right = learner.logits(torch.from_numpy(arrays["test_x"])).argmax(1).numpy() == arrays["test_y"]
    return seconds, 100 * float(right.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stream", default="pacs-frozen-cd")
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--splits", type=int, default=5, help="draws of samples and tests, two at least"
    )
    parser.add_argument("--passes", type=int, default=3, help="of which the quickest counts")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--environment", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shrinkage = 1e-4
    if options.worker is not None:
        avalanche_side(options.worker, shrinkage, options.passes)
        return
    from avalanche_side import ENVIRONMENT, python_of
    from natural import data_of

    data = data_of(options.stream)
    python = python_of(options.environment or ENVIRONMENT)
    rows = [
        compared(python, split_of(data, options.samples, seed), shrinkage, options)
        for seed in range(options.splits)
    ]
    theirs = np.array([row["Avalanche"] for row in rows])
    for name in rows[0]:
        here = np.array([row[name] for row in rows])
        times, gains = theirs[:, 0] / here[:, 0], here[:, 1] - theirs[:, 1]
        print(
            f"{name:20} {1e3 * here[:, 0].mean() / options.samples:7.3f} ms a sample,"
            f" {times.mean():6.1f} times as fast ({times.min():.1f} to {times.max():.1f}),"
            f" {here[:, 1].mean():.2f} %, {gains.mean():+.2f} ± {half_width(gains):.2f} points"
        )


def split_of(data: Dataset, samples: int, seed: int) -> dict[str, np.ndarray]:
    """Samples to learn, in their order, and 2,000 tests: another draw for each seed."""
    order = np.random.default_rng(seed).permutation(len(data.labels))
    learn, test = order[:samples], order[samples : samples + 2000]
    return {
        "x": np.ascontiguousarray(data.images[learn], dtype=np.float32),
        "y": data.labels[learn],
        "test_x": np.ascontiguousarray(data.images[test], dtype=np.float32),
        "test_y": data.labels[test],
    }


def compared(
    python: Path, arrays: dict[str, np.ndarray], shrinkage: float, options: argparse.Namespace
) -> dict[str, tuple[float, float]]:
    """Seconds and accuracy of everybody on one split."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.npz"
        np.savez(file, allow_pickle=False, **arrays)
        said = subprocess.run(
            [str(python), __file__, "--worker", str(file), "--passes", str(options.passes)],
            capture_output=True,
            text=True,
            check=True,
            env={"OMP_NUM_THREADS": "1"},
        ).stdout
    theirs = json.loads(said.splitlines()[-1])
    batch, passes = options.batch_size, options.passes
    row = {
        "Avalanche": tuple(theirs[0]),
        "Avalanche, centred": tuple(theirs[1]),
        "ours, batches": ours(arrays, shrinkage, batch, passes),
        "ours, one by one": ours(arrays, shrinkage, 1, passes),
        "ours, own shrinkage": ours(arrays, None, batch, passes),
    }
    for name, (seconds, accuracy) in row.items():
        print(f"  {name:20} {seconds:8.3f} s {accuracy:6.2f} %", flush=True)
    return row


def half_width(values: np.ndarray) -> float:
    """Of the 95 % interval of the mean."""
    from scipy import stats

    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    return float(quantile * spread)


if __name__ == "__main__":
    main()
