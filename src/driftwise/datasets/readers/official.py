"""How each known data set is read, all in one form: (path, allocate, progress) -> Dataset.

`known.py` names these functions; they import torch, numpy and Pillow, which its facts do not.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from driftwise.datasets.allocate import Allocate
from driftwise.datasets.progress import StageProgress
from driftwise.datasets.readers.cifar import read_cifar10, read_cifar100
from driftwise.datasets.readers.clear import read_clear10
from driftwise.datasets.readers.digits import load_digits
from driftwise.datasets.readers.folders import read_folder
from driftwise.datasets.readers.idx import read_idx
from driftwise.datasets.readers.npz import read_npz
from driftwise.datasets.readers.tiny_imagenet import read_tiny_imagenet
from driftwise.types import Dataset

FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
YEARBOOK_CLASSES = ("female", "male")
PACS_SIDE = 64
"""The official images are 227x227; their shapes are plain enough for this."""


def digits(_path: Path, _allocate: Allocate, _progress: StageProgress | None) -> Dataset:
    """The digits inside scikit-learn; there is no path to read from."""
    return load_digits()


def fashion_mnist(path: Path, allocate: Allocate, _progress: StageProgress | None) -> Dataset:
    """Fashion-MNIST from its four IDX files."""
    return read_idx(path, class_names=FASHION_CLASSES, allocate=allocate)


def cifar10(path: Path, allocate: Allocate, _progress: StageProgress | None) -> Dataset:
    """CIFAR-10 from its python or binary batches."""
    return read_cifar10(path, allocate=allocate)


def cifar100(path: Path, allocate: Allocate, _progress: StageProgress | None) -> Dataset:
    """CIFAR-100 by its fine labels."""
    return read_cifar100(path, allocate=allocate)


def tiny_imagenet(path: Path, allocate: Allocate, progress: StageProgress | None) -> Dataset:
    """Tiny-ImageNet with its validation part as the test part."""
    return read_tiny_imagenet(path, allocate=allocate, progress=progress)


def clear10(path: Path, allocate: Allocate, progress: StageProgress | None) -> Dataset:
    """CLEAR-10 with its buckets as domains."""
    return read_clear10(path, allocate=allocate, progress=progress)


def pacs(path: Path, allocate: Allocate, progress: StageProgress | None) -> Dataset:
    """PACS with its four styles as domains."""
    return read_folder(
        path,
        size=PACS_SIDE,
        channels=3,
        layout="domain/class",
        allocate=allocate,
        progress=progress,
    )


def yearbook(path: Path, allocate: Allocate, _progress: StageProgress | None) -> Dataset:
    """The portraits with their decades as domains.

    `is_valid` marks an uneven share of the years from 1930 on; it is no test part, since a stream
    of decades is scored decade by decade.
    """
    dataset = read_npz(path, class_names=YEARBOOK_CLASSES, group_years=10, allocate=allocate)
    return replace(dataset, is_test=None)
