"""The 1,797 handwritten 8x8 digits that come inside scikit-learn: real data, no download."""

from __future__ import annotations

import numpy as np

from driftwise.types import Dataset


def load_digits(*_: object, **__: object) -> Dataset:
    """All digits as uint8 (1797, 8, 8, 1); the sixteen grey steps are spread over 0..255.

    The arguments of other readers have no meaning here: there is no file to read.
    """
    from sklearn.datasets import load_digits as sklearn_digits

    bunch = sklearn_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    labels = bunch.target.astype(np.int64)
    return Dataset(images=images, labels=labels, class_names=tuple("0123456789"))
