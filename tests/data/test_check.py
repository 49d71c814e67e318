"""What is no data set is told so in one line, before anything is built on it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from driftwise.datasets.validate import check_dataset
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
    ("changes", "told"),
    [
        ({"images": [1, 2]}, "mine: images must be a numpy array; got list"),
        (
            {"images": np.zeros((4, 2, 2))},
            "mine: images must be uint8 (samples, height, width, channels); got float64 (4, 2, 2)",
        ),
        (
            {"labels": np.zeros(4, dtype=np.int32)},
            "mine: labels must be int64 (samples,); got int32 (4,)",
        ),
        ({"labels": np.array([0, 1, 2, 0])}, "mine: labels must be 0 to 1, as there are 2 class"),
        ({"labels": np.array([0, -1, 0, 0])}, "mine: labels must be 0 to 1, as there are 2 class"),
        ({"labels": np.zeros(3, dtype=np.int64)}, "mine: 4 images but 3 labels"),
        ({"labels": np.zeros(0, dtype=np.int64)}, "mine: the data set has no samples"),
        ({"is_test": np.zeros(4)}, "mine: is_test must be bool (samples,); got float64 (4,)"),
        ({"is_test": np.zeros(5, dtype=bool)}, "mine: 4 images but 5 is_test"),
        ({"domains": np.array([0, 1, 2, 0])}, "mine: every domain needs a name; the names are the"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        check_dataset(dataclasses.replace(GOOD, **changes), source="mine")
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_something_else_altogether_is_named() -> None:
    with pytest.raises(UserError, match=r"^mine: expected a driftwise.types.Dataset; got tuple$"):
        check_dataset((1, 2), source="mine")
