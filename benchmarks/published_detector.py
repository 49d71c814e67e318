"""What the published detector finds: KS on predictive entropy, by the encoder that looks.

    python benchmarks/published_detector.py --cache FOLDER [--data fmnist cifar10 cifar100]
        [--encoder resnet18-imagenet efficientnet random] [--seeds 10] [--quarters 4]
        [--json results/published_detector.json]

The published experiments compared, at each drift event, the buffer's samples of every class that
had just drifted with all drifted test samples of that class, at level .05 and without a correction.
Here the same comparison is made at every event of Tables 1 to 3 (Fashion-MNIST with its rows of
pixels permuted, CIFAR-10 and CIFAR-100 with all pixels permuted, the published draw), for a buffer
of original training samples in which all classes known by then have equal parts. A seed draws the
buffer (and the weights of the encoder `random`). `false alarms` is the same test on undrifted test
samples. `asymptotic` p-values are the published ones; the exact ones stand beside them.

ImageNet encoders are slow on a CPU: what they make of each image is kept in the cache. `--quarters`
says how much of the training samples the buffers are drawn from.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from detect_common import (
    LEVEL,
    by_class,
    drawn,
    encoder_named,
    images_of,
    load_data,
    say,
    say_load,
    write_json,
)
from scipy import stats
from torch import Tensor

from recollect import rng
from recollect.detect.encoders import Encodes
from recollect.detect.scores import entropy
from recollect.experiment.build import make_schedule_of
from recollect.experiment.config import RunConfig
from recollect.experiment.presets import resolve
from recollect.streams.transforms import apply
from recollect.types import Dataset

DRIFTS = {"fmnist": (1, 2), "cifar10": (1, 2), "cifar100": (2, 4)}
"""events per stream in Tables 1 to 3"""
BUFFERS = (500, 5000)
QUARTERS = 4


@dataclass(frozen=True, kw_only=True)
class Event:
    """One drift event of a published stream."""

    num_drifts: int
    task: int
    known: int
    """classes learned before it"""
    drifted: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Entropies of one class, and which training samples they belong to."""

    train: np.ndarray
    """of the samples that buffers are drawn from"""
    undrifted: np.ndarray
    drifted: np.ndarray


def events_of(data: str, num_classes: int) -> Iterator[Event]:
    """The events of the published streams."""
    for num_drifts in DRIFTS[data]:
        config = resolve(
            RunConfig(benchmark=f"{data}-cd", num_drifts=num_drifts, preset="published")
        )
        schedule = make_schedule_of(config, num_classes)
        for event in schedule.events:
            yield Event(
                num_drifts=num_drifts,
                task=event.task,
                known=sum(map(len, schedule.tasks[: event.task - 1])),
                drifted=tuple(sorted(event.concepts)),
            )


def drifted_images(data: str, images: Tensor) -> Tensor:
    """The published concept: severity 5, the draw of seed 42, rows of pixels on Fashion-MNIST."""
    unit = "row" if data == "fmnist" else "pixel"
    return apply(images, "permutation", 5, seed=42, unit=unit)


def pool_of(dataset: Dataset, label: int) -> list[np.ndarray]:
    """The training samples of a class in four quarters, each a random one."""
    assert dataset.is_test is not None
    rows = np.flatnonzero((dataset.labels == label) & ~dataset.is_test)
    return np.array_split(drawn(rows, len(rows), rng.fork(0, "pool", label)), QUARTERS)


def entropies(encoder: Encodes, images: Tensor) -> np.ndarray:
    """Predictive entropy of every image, (n,)."""
    parts = [entropy(encoder.encode(part).logits) for part in torch.split(images, 512)]
    return torch.cat(parts).numpy()


def kept_entropies(file: Path, encoder: Encodes, images: Tensor) -> np.ndarray:
    """The same, from the cache where it has them."""
    if not file.exists():
        unfinished = file.with_name(f".{file.name}")
        np.save(unfinished, entropies(encoder, images))
        unfinished.rename(file)
        say(f"encoded {file.name}: {len(images)} images")
    found: np.ndarray = np.load(file)
    assert len(found) == len(images), f"{file} belongs to other images: remove it"
    return found


def scores_by_class(
    data: str, dataset: Dataset, name: str, seed: int, args: argparse.Namespace
) -> dict[int, Scores]:
    """Entropies of every class that drifts in a published stream."""
    encoder = encoder_named(name, None, dataset.images.shape[1:], seed)
    folder = args.cache / f"{data}-{name}{f'-{seed}' if name == 'random' else ''}"
    folder.mkdir(parents=True, exist_ok=True)
    assert dataset.is_test is not None
    tests = by_class(dataset.labels, np.flatnonzero(dataset.is_test), len(dataset.class_names))
    labels = sorted({c for each in events_of(data, len(tests)) for c in each.drifted})
    test_rows = np.concatenate([tests[label] for label in labels])
    test_labels = dataset.labels[test_rows]
    images = images_of(dataset, test_rows)
    undrifted = kept_entropies(folder / "test.npy", encoder, images)
    drifted = kept_entropies(folder / "drifted.npy", encoder, drifted_images(data, images))
    train: dict[int, list[np.ndarray]] = {label: [] for label in labels}
    for quarter in range(args.quarters):
        rows = np.concatenate([pool_of(dataset, label)[quarter] for label in labels])
        found = kept_entropies(
            folder / f"train-{quarter}.npy", encoder, images_of(dataset, rows)
        )
        for label in labels:
            train[label].append(found[dataset.labels[rows] == label])
    return {
        label: Scores(
            train=np.concatenate(train[label]),
            undrifted=undrifted[test_labels == label],
            drifted=drifted[test_labels == label],
        )
        for label in labels
    }
