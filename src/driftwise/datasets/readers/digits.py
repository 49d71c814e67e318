"""The 1,797 handwritten 8x8 digits that come inside scikit-learn: real data, no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from driftwise.datasets.reading import Allocate, StageProgress, empty
from driftwise.types import Dataset


def read_digits(
    _path: Path, *, allocate: Allocate = empty, progress: StageProgress | None = None
) -> Dataset:
    """`load_digits` in the form of every reader; there is no path to read from."""
    del allocate, progress
    return load_digits()


def load_digits() -> Dataset:
    """All digits as uint8 (1797, 8, 8, 1); the sixteen grey steps are spread over 0..255."""
    from sklearn.datasets import load_digits as sklearn_digits

    bunch = sklearn_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    labels = bunch.target.astype(np.int64)
    return Dataset(images=images, labels=labels, class_names=tuple("0123456789"))
