"""How long a second check takes with and without the cache of encodings.

    python benchmarks/bench_cached_encoding.py [--samples 200] [--classes 5]

Each class of Fashion-MNIST (of the embedded digits, where that is not installed) has `--samples` samples
kept as its reference and as many coming in. The first check sees every image for the first time;
the second, timed here, the same ones, as when nothing has drifted since. Seconds are of one thread:
the CPU's own, which other work on the machine stretches less than the clock's.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import torch

from driftwise.datasets import library
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import (
    DetectorContext,
    Encoder,
    EncoderContext,
    HeldOutReference,
    RandomEncoder,
)
from driftwise.detect.detectors import KS
from driftwise.encoders.encoding_cache import Cached
from driftwise.encoders.pretrained import EfficientNetEncoder
from driftwise.errors import UserError
from driftwise.types import Dataset, Encoding, Samples, Verdict


def main() -> None:
    parser = argparse.ArgumentParser(description="A second check, with and without the cache.")
    parser.add_argument("--samples", type=int, default=200, help="of a class, on either side")
    parser.add_argument("--classes", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    name, dataset = load()
    reference, current = sides(dataset, options.classes, options.samples)
    context = EncoderContext(learner=no_learner, image_shape=dataset.images.shape[1:], seed=0)
    print(f"{name}, {options.classes} classes, {options.samples} samples a side and class")
    print(f"{'encoder':14}{'plain s':>10}{'cached s':>10}{'faster':>9}{'first check s':>15}")
    for label, encoder in encoders(context).items():
        plain = checks(encoder, reference, current)
        cached = checks(Cached(encoder), reference, current)
        same = [verdict.drifted for verdict in plain[2]] == [each.drifted for each in cached[2]]
        print(
            f"{label:14}{plain[1]:10.3f}{cached[1]:10.4f}{plain[1] / cached[1]:8.0f}x"
            f"{cached[0]:15.3f}{'' if same else '   VERDICTS DIFFER'}",
            flush=True,
        )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def checks(
    encoder: Encoder, reference: HeldOutReference, current: Samples
) -> tuple[float, float, list[Verdict]]:
    """CPU seconds of the first check and of the best of three more, and the last one's verdicts."""
    detector = KS().bind(DetectorContext(encoder=lambda: encoder, drifting=lambda _: ()))
    classes = sorted(set(current.labels.tolist()))
    seconds = []
    for task in range(2, 6):
        begin = time.process_time()
        verdicts = detector.check(task, classes, current, reference)
        seconds.append(time.process_time() - begin)
    return seconds[0], min(seconds[1:]), verdicts


def encoders(context: EncoderContext) -> dict[str, Encoder]:
    makers: dict[str, Callable[[EncoderContext], Encoder]] = {
        "random": RandomEncoder,
        "efficientnet": EfficientNetEncoder,
    }
    made: dict[str, Encoder] = {}
    for name, make in makers.items():
        try:
            made[name] = make(context)
        except UserError as error:
            print(f"{name} is left out: {error}")
    return made


def load() -> tuple[str, Dataset]:
    try:
        return "Fashion-MNIST", library.load("fashion-mnist")
    except UserError:
        return "digits", load_digits()


def sides(dataset: Dataset, num_classes: int, count: int) -> tuple[HeldOutReference, Samples]:
    """The first samples of each class as reference, the next ones as what comes in."""
    reference = HeldOutReference()
    coming = []
    for label in range(num_classes):
        numbers = np.flatnonzero(dataset.labels == label)[: 2 * count]
        if len(numbers) < 2 * count:
            raise SystemExit(f"class {label} has {len(numbers)} samples; expected {2 * count}")
        rows = Samples(
            images=torch.from_numpy(dataset.images[numbers]),
            labels=torch.full((len(numbers),), label),
            ids=torch.from_numpy(numbers),
            concepts=torch.zeros(len(numbers), dtype=torch.int64),
        )
        reference.renew(label, rows[:count])
        coming.append(rows[count:])
    return reference, Samples.concat(coming)


def no_learner(images: torch.Tensor) -> Encoding:
    raise AssertionError(f"a fixed encoder asks no learner about {len(images)} samples")


if __name__ == "__main__":
    main()
