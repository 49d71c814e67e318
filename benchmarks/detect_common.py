"""What the scripts that measure detection share: samples, a small learner, encoders, tests.

Encoders are taken from the catalogue, so that a new one is there as soon as it has its line in it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from matplotlib.figure import Figure
from torch import Tensor, nn

from driftwise import rng
from driftwise.config import registry
from driftwise.datasets.library import load
from driftwise.detect import EncoderContext
from driftwise.detect.two_sample import Comparison, by_c2st, by_mmd, ks_on
from driftwise.encoders.base import Encoder, Encodes
from driftwise.models.cnn import SmallCNN
from driftwise.models.head import encode_all
from driftwise.models.inputs import to_input
from driftwise.report.facets import to_png, to_svg
from driftwise.report.style import Style
from driftwise.stats.combine import COMBINATIONS
from driftwise.types import Dataset, Encoding

LEVEL = 0.05
NUM_CURRENT = 100
MERGED = ("ks-entropy", "mmd", "c2st")
"""the tests whose p-values the combined detector merges"""
COSTLY = 5.0
"""points of accuracy: drift that costs a class more must not be missed"""

STYLES = {
    "ks-entropy": Style(colour="#E69F00", marker="v", line=":"),
    "ks-energy": Style(colour="#CC79A7", marker="D", line="-."),
    "mmd": Style(colour="#009E73", marker="^", line="--"),
    "c2st": Style(colour="#56B4E9", marker="s", line=(0.0, (8.0, 2.0))),
    "combined": Style(colour="#0072B2", marker="o", line="-"),
    "combined, holm": Style(colour="#000000", marker="o", line=(0.0, (2.0, 1.0)), hollow=True),
}
"""How a test is drawn in every figure."""

PValues = dict[str, np.ndarray]
"""by test, one per pair of samples"""


# Samples


def images_of(dataset: Dataset, rows: np.ndarray) -> Tensor:
    """Some of the images, uint8 (samples, height, width, channels)."""
    return torch.from_numpy(np.ascontiguousarray(dataset.images[rows]))


def by_class(labels: np.ndarray, rows: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """The given samples of each class."""
    return [rows[labels[rows] == label] for label in range(num_classes)]


def drawn(rows: np.ndarray, count: int, draw: torch.Generator) -> np.ndarray:
    """So many of the samples at random, without repeats; all of them, where there are no more."""
    chosen: np.ndarray = rows[torch.randperm(len(rows), generator=draw)[:count].numpy()]
    return chosen


def trained_and_fresh(
    dataset: Dataset, train_rows: int, seed: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Samples of each class to train on, and samples that no learner trains on.

    The latter are the test part; where there is none, what is left of the class, but half of it.
    """
    draw = rng.fork(seed, "learner-rows")
    classes = len(dataset.class_names)
    if dataset.is_test is not None:
        fresh = by_class(dataset.labels, np.flatnonzero(dataset.is_test), classes)
        rest = by_class(dataset.labels, np.flatnonzero(~dataset.is_test), classes)
    else:
        mixed = [
            drawn(rows, len(rows), draw)
            for rows in by_class(dataset.labels, np.arange(len(dataset.labels)), classes)
        ]
        fresh = [rows[: len(rows) // 2] for rows in mixed]
        rest = [rows[len(rows) // 2 :] for rows in mixed]
    return [drawn(rows, train_rows, draw) for rows in rest], fresh


# The learner


class Learner:
    """A small network that has been trained on some samples, asked without changing it."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network.eval()

    def encode(self, images: Tensor) -> Encoding:
        """(samples, height, width, channels) -> logits and features."""
        return encode_all(self._network, [to_input(images, memory_format=torch.channels_last)])


def trained(
    dataset: Dataset, rows_by_class: Sequence[np.ndarray], *, epochs: int, seed: int
) -> Learner:
    """A small convolutional network after so many epochs over the samples, by Adam."""
    rows = np.concatenate(rows_by_class)
    images, labels = images_of(dataset, rows), torch.from_numpy(dataset.labels[rows])
    height, width, channels = dataset.images.shape[1:]
    draw = rng.fork(seed, "learner")
    with rng.as_global(draw):
        network: nn.Module = SmallCNN(
            input_shape=(channels, height, width), num_classes=len(dataset.class_names)
        )
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    start = time.perf_counter()
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(labels), generator=draw), 128):
            x = to_input(images[batch], memory_format=torch.channels_last)
            optimiser.zero_grad()
            F.cross_entropy(network(x), labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    learner = Learner(network)
    correct = (encoded(learner, images).logits.argmax(dim=1) == labels).float().mean()
    say(
        f"learner {seed}: {epochs} epochs over {len(labels)} samples in"
        f" {time.perf_counter() - start:.0f} s, of which it knows {correct:.1%}"
    )
    return learner


def accuracy_by_class(encoding: Encoding, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Accuracy on each class in percent, (classes,)."""
    correct = encoding.logits.argmax(dim=1).numpy() == labels
    hits = np.bincount(labels, weights=correct, minlength=num_classes)
    accuracy: np.ndarray = 100 * hits / np.bincount(labels, minlength=num_classes)
    return accuracy


# Encoders and tests


def encoder_named(name: str, learner: Learner | None, shape: Sequence[int], seed: int) -> Encoder:
    """An encoder of the catalogue; one that never asks a learner needs none."""

    def no_learner(images: Tensor) -> Encoding:
        raise AssertionError(f"nobody has trained a learner that knows {len(images)} samples")

    context = EncoderContext(
        learner=learner.encode if learner is not None else no_learner,
        image_shape=tuple(shape),
        seed=seed,
    )
    encoder: Encoder = registry.find("encoder", name).factory()(context)
    return encoder


def encoded(encoder: Encodes, images: Tensor) -> Encoding:
    """What an encoder makes of any number of images."""
    # Few at a time are no slower, and what lies between a large network's layers fits in memory.
    return Encoding.concat([encoder.encode(part) for part in torch.split(images, 64)])


def learns(name: str) -> bool:
    """Whether samples that the learner has trained on are no reference for the encoder."""
    return not registry.find("encoder", name).factory().fixed


def tests_on(scores: Sequence[str], permutations: int) -> list[Comparison]:
    """Kolmogorov-Smirnov on each score, and the two tests on features."""
    return [*map(ks_on, scores), by_mmd(permutations), by_c2st(permutations)]


def p_values(
    tests: Sequence[Comparison],
    pairs: Sequence[tuple[Encoding, Encoding]],
    *path: str | int,
) -> PValues:
    """Of every test on every pair (reference, current); `path` names the permutations."""
    found = {}
    for test in tests:
        measured = [(test.measure(kept), test.measure(now)) for kept, now in pairs]
        evidence = test.test.run(measured, rng.fork(0, "permutations", test.name, *path))
        found[test.name] = np.array([each.p_value for each in evidence])
    return found


def merged(columns: Mapping[str, np.ndarray], method: str = "cauchy") -> np.ndarray:
    """What the combined detector says of each pair."""
    return COMBINATIONS[method](np.stack([columns[name] for name in MERGED], axis=-1))


# The command line


def common_arguments(description: str | None, *encoders: str) -> argparse.ArgumentParser:
    """What every script asks for; more than one default encoder: several may be given."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--encoder",
        nargs="+" if len(encoders) > 1 else None,
        default=list(encoders) if len(encoders) > 1 else encoders[0],
        choices=tuple(registry.CATALOGUE["encoder"]),
        help="what encodes images for the tests",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers there")
    return parser


def load_data(name: str) -> Dataset:
    """A known data set."""
    # The name that the benchmarks of the catalogue go by is understood, too.
    return load(
        {"cifar10": "cifar-10", "cifar100": "cifar-100", "fmnist": "fashion-mnist"}.get(name, name)
    )


def say(line: str) -> None:
    print(line, flush=True)


def say_load() -> None:
    say(f"one thread; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def write_json(path: Path | None, content: Mapping[str, Any]) -> None:
    """The numbers behind what was printed, where they were asked for."""
    if path is not None:
        path.write_text(json.dumps(content, indent=1) + "\n")
        say(f"wrote {path}")


def save_figure(path: Path, figure: Figure) -> None:
    """As SVG or as PNG, by the path's ending."""
    path.write_bytes(to_svg(figure) if path.suffix == ".svg" else to_png(figure))
    say(f"wrote {path}")
