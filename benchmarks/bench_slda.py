"""Streaming LDA here and in Avalanche: the same features in the same order, accuracy and time.

    python benchmarks/bench_slda.py [--stream pacs-frozen-cd] [--samples 2000] [--batch-size 32]
                                    [--environment FOLDER]

Avalanche updates its statistics sample by sample, whatever the batch; only these updates are timed, not
its loaders and loops. Ours are timed through `AnalyticLearner.observe`, in batches and one by one. Both
run on one thread, in turns. Predictions are made after the last sample.
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

import numpy as np
import torch


def avalanche_side(file: Path, shrinkage: float) -> None:
    """In Avalanche's environment: learn, predict, print as JSON."""
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    with contextlib.suppress(RuntimeError):  # where torchvision has them
        for name in ("nms", "qnms"):
            schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
    warnings.simplefilter("ignore")
    supervised = importlib.import_module("avalanche.training.supervised")
    arrays = {name: torch.from_numpy(values) for name, values in np.load(file).items()}
    learner = supervised.StreamingLDA(
        torch.nn.Identity(),
        torch.nn.CrossEntropyLoss(),
        input_size=arrays["x"].shape[1],
        num_classes=int(arrays["y"].max()) + 1,
        shrinkage_param=shrinkage,
    )
    began = time.process_time()
    for vector, label in zip(arrays["x"], arrays["y"], strict=True):
        learner.fit(vector[None], label[None])
    seconds = time.process_time() - began
    right = learner.predict(arrays["test_x"]).argmax(1) == arrays["test_y"]
    print(json.dumps({"seconds": seconds, "accuracy": 100 * float(right.float().mean())}))


def ours(arrays: dict[str, np.ndarray], shrinkage: float | None, batch: int) -> tuple[float, float]:
    """Seconds of processor time, and accuracy."""
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
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--environment", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shrinkage = 1e-4
    if options.worker is not None:
        avalanche_side(options.worker, shrinkage)
        return
    from avalanche_side import ENVIRONMENT, python_of
    from natural import data_of

    data = data_of(options.stream)
    order = np.random.default_rng(0).permutation(len(data.labels))
    learn, test = order[: options.samples], order[options.samples : options.samples + 2000]
    arrays = {
        "x": np.ascontiguousarray(data.images[learn], dtype=np.float32),
        "y": data.labels[learn],
        "test_x": np.ascontiguousarray(data.images[test], dtype=np.float32),
        "test_y": data.labels[test],
    }
    python = python_of(options.environment or ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.npz"
        np.savez(file, allow_pickle=False, **arrays)
        for _ in range(options.rounds):
            said = subprocess.run(
                [str(python), __file__, "--worker", str(file)],
                capture_output=True,
                text=True,
                check=True,
                env={"OMP_NUM_THREADS": "1"},
            ).stdout
            theirs = json.loads(said.splitlines()[-1])
            print(
                f"Avalanche              {1e3 * theirs['seconds'] / len(learn):7.3f} ms a sample,"
                f" {theirs['accuracy']:.2f} %"
            )
            for name, fraction, batch in (
                ("ours, batches", shrinkage, options.batch_size),
                ("ours, one by one", shrinkage, 1),
                ("ours, own shrinkage", None, options.batch_size),
            ):
                seconds, accuracy = ours(arrays, fraction, batch)
                times = theirs["seconds"] / seconds
                print(
                    f"{name:22} {1e3 * seconds / len(learn):7.3f} ms a sample, {accuracy:.2f} %,"
                    f" {times:.1f} times as fast",
                    flush=True,
                )


if __name__ == "__main__":
    main()
