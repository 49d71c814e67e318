"""How fast a task's batches come, against a DataLoader that takes images one by one.

    python benchmarks/bench_stream.py

One epoch of 10,000 images of 32x32x3 in batches of 32, shuffled. The DataLoader has no workers
and the usual data set: `__getitem__` makes a PIL image of the row and a float tensor of that, and
the default collation stacks them. The stream reads the task's samples and cuts them into uint8
batches, which become floats at the learner's door; the last line has that included.
Medians over repeats in which the sides take turns.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from driftwise.models.inputs import to_input
from driftwise.streams import Schedule, Stream
from driftwise.types import Dataset, Parts

NUM_IMAGES = 10_000
NUM_CLASSES = 10
BATCH = 32
NUM_REPEATS = 9
NUM_THREADS = 2
GOAL = 50.0


class PicturesOneByOne(TorchDataset[tuple[Tensor, int]]):
    """What a data set of images usually looks like."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """One image by way of PIL, as floats in torch's layout, and its label."""
        pixels = np.array(Image.fromarray(self.images[index]))
        image = torch.from_numpy(pixels.transpose(2, 0, 1)).contiguous().float().div_(255)
        return image, int(self.labels[index])


def make_data() -> Dataset:
    rs = np.random.RandomState(0)
    return Dataset(
        images=rs.randint(0, 256, (NUM_IMAGES, 32, 32, 3)).astype(np.uint8),
        labels=rs.randint(0, NUM_CLASSES, NUM_IMAGES),
        class_names=tuple(map(str, range(NUM_CLASSES))),
    )


def make_stream(dataset: Dataset) -> Stream:
    """All samples in one task."""
    every, none = np.arange(NUM_IMAGES), np.arange(0)
    return Stream(
        dataset,
        Parts(train=every, monitored=none, reference=none, test=none),
        Schedule(tasks=(tuple(range(NUM_CLASSES)),)),
        batch_size=BATCH,
        seed=0,
    )


def seconds(epoch: Callable[[], int]) -> float:
    start = time.perf_counter()
    num_samples = epoch()
    taken = time.perf_counter() - start
    assert num_samples == NUM_IMAGES
    return taken


def main() -> None:
    torch.set_num_threads(NUM_THREADS)
    dataset = make_data()
    loader = DataLoader(PicturesOneByOne(dataset.images, dataset.labels), BATCH, shuffle=True)
    task = make_stream(dataset).task(1)

    def from_loader() -> int:
        return sum(len(labels) for _, labels in loader)

    def from_stream() -> int:
        return sum(len(batch) for batch in task.batches(task.train(), epoch=1))

    def from_stream_as_floats() -> int:
        batches = task.batches(task.train(), epoch=1)
        return sum(len(to_input(batch.images)) for batch in batches)

    sides = {
        "DataLoader": from_loader,
        "stream": from_stream,
        "stream, as floats": from_stream_as_floats,
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(NUM_REPEATS):
        for name, epoch in sides.items():
            times[name].append(seconds(epoch))

    load, cores = os.getloadavg()[0], os.cpu_count()
    print(f"{NUM_IMAGES:,} images of 32x32x3, batches of {BATCH}, load {load:.1f} on {cores} cores")
    print(f"{'':20}{'ms/epoch':>10}{'faster':>10}")
    slow = statistics.median(times["DataLoader"])
    for name, taken in times.items():
        fast = statistics.median(taken)
        print(f"{name:20}{fast * 1e3:10.1f}{slow / fast:9.1f}x")
    ratio = slow / statistics.median(times["stream"])
    print(f"goal: at least {GOAL:g}x: {'reached' if ratio >= GOAL else 'MISSED'}")


if __name__ == "__main__":
    main()
