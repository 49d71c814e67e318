"""A data set whose fields do not fit is refused in one line; its identity covers every byte."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
import pytest

from driftwise.datasets.validate import check_dataset, identity_of
from driftwise.errors import UserError
from driftwise.types import Dataset

GOOD = Dataset(
    images=np.zeros((4, 2, 2, 1), dtype=np.uint8),
    labels=np.array([0, 1, 0, 1]),
    class_names=("a", "b"),
    is_test=np.array([False, True, False, True]),
    domains=np.array([0, 0, 1, 1]),
    domain_names=("then", "now"),
)


def test_a_good_data_set_passes_as_it_is() -> None:
    assert check_dataset(GOOD, source="mine") is GOOD


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": [1, 2]}, "mine: images must be a numpy array; got list"),
        (
            {"images": np.zeros((4, 2, 2))},
            "mine: images must be uint8 (samples, height, width, channels), or float32 "
            "(samples, features); got float64 (4, 2, 2)",
        ),
        (
            {"labels": np.zeros(4, dtype=np.int32)},
            "mine: labels must be int64 (samples,); got int32 (4,)",
        ),
        ({"labels": np.array([0, 1, 2, 0])}, "mine: labels must be 0 to 1, as there are 2 class"),
        ({"labels": np.array([0, -1, 0, 0])}, "mine: labels must be 0 to 1, as there are 2 class"),
        ({"labels": np.zeros(3, dtype=np.int64)}, "mine: 4 samples but 3 labels"),
        ({"labels": np.zeros(0, dtype=np.int64)}, "mine: the data set has no samples"),
        ({"is_test": np.zeros(4)}, "mine: is_test must be bool (samples,); got float64 (4,)"),
        ({"is_test": np.zeros(5, dtype=bool)}, "mine: 4 samples but 5 is_test"),
        ({"class_names": ("a", "b", "owl")}, "mine: class 'owl' has no images; add some, or leave"),
        ({"domains": np.array([0, 1, 2, 0])}, "mine: every domain needs a name; the names are the"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_dataset(dataclasses.replace(GOOD, **changes), source="mine")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_something_else_altogether_is_named() -> None:
    with pytest.raises(UserError, match=r"^mine: expected a driftwise.types.Dataset; got tuple$"):
        check_dataset((1, 2), source="mine")


def test_the_identity_changes_with_every_field_and_with_no_memory_layout() -> None:
    data = dataclasses.replace(GOOD, images=np.arange(16, dtype=np.uint8).reshape(4, 2, 2, 1))
    seen = {identity_of(data)}
    brighter = data.images.copy()
    brighter[2, 0, 0, 0] += 1
    changes: tuple[dict[str, Any], ...] = (
        {"images": brighter},
        {"labels": np.array([0, 1, 1, 1])},
        {"class_names": ("x", "y")},
        {"is_test": None},
        {"domains": np.array([1, 0, 0, 1])},
        {"domain_names": ("x", "y")},
        {"groups": np.array([0, 0, 1, 1])},
        {"images": data.images.reshape(4, 4, 1, 1)},
    )
    for change in changes:
        seen.add(identity_of(dataclasses.replace(data, **change)))
    assert len(seen) == 9
    turned = dataclasses.replace(data, images=np.asfortranarray(data.images))
    digest = hashlib.sha256(data.images.tobytes()).hexdigest()
    assert identity_of(turned) == identity_of(data, digest) == identity_of(data)


def test_the_identity_covers_every_image_of_many() -> None:
    images = np.zeros((1200, 2, 2, 1), np.uint8)
    data = Dataset(images=images, labels=np.zeros(1200, np.int64), class_names=("a",))
    seen = set()
    for number in range(0, 1200, 7):
        images[number, 1, 1] = 1
        seen.add(identity_of(data))
        images[number, 1, 1] = 0
    assert len(seen) == len(range(0, 1200, 7))
