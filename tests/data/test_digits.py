"""The embedded data set: real, complete, and spread over the whole grey range."""

from __future__ import annotations

import numpy as np
import sklearn.datasets

from driftwise.datasets.readers.digits import load_digits


def test_digits_are_1797_images_of_8x8_bytes_from_black_to_white() -> None:
    digits = load_digits()
    assert digits.images.shape == (1797, 8, 8, 1)
    assert digits.images.dtype == np.uint8
    assert (digits.images.min(), digits.images.max()) == (0, 255)
    assert digits.labels.shape == (1797,)
    assert digits.labels.dtype == np.int64


def test_every_digit_shows_the_scanned_grey_steps_in_order() -> None:
    scanned = sklearn.datasets.load_digits()
    digits = load_digits()
    grey = {step: round(step * 255 / 16) for step in range(17)}
    assert len(set(grey.values())) == 17
    literal = np.vectorize(grey.__getitem__)(scanned.images.astype(int))
    assert np.array_equal(digits.images[..., 0], literal)
    assert np.array_equal(digits.labels, scanned.target)
