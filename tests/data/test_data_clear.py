"""CLEAR-10's layout, on a tiny copy of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from driftwise.datasets.readers.clear import CLASSES, read_clear10
from driftwise.errors import UserError

TRAIN, TEST = Path("train_image_only/labeled_images"), Path("test/labeled_images")


def save(file: Path, grey: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (14, 10), (grey, grey, grey)).save(file)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One image per class in buckets 1, 9 and 10, as grey as ten times the class plus bucket."""
    for part in (TRAIN, TEST):
        for bucket in (1, 9, 10):
            for label, name in enumerate(("BACKGROUND", *CLASSES)):
                save(tmp_path / part / str(bucket) / name / "1.png", 10 * label + bucket)
    return tmp_path


def test_buckets_are_domains_in_the_order_of_time_and_background_is_left_out(root: Path) -> None:
    dataset = read_clear10(root, size=8)
    assert dataset.domain_names == ("1", "9", "10")
    assert dataset.domains is not None
    assert dataset.domains.tolist() == ([0] * 10 + [1] * 10 + [2] * 10) * 2
    assert dataset.labels.tolist() == list(range(10)) * 6
    assert dataset.class_names == CLASSES
    assert dataset.images.shape == (60, 8, 8, 3)
    buckets = np.array([1, 9, 10])[dataset.domains]
    assert dataset.images[:, 4, 4, 0].tolist() == (10 * (dataset.labels + 1) + buckets).tolist()
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False] * 30 + [True] * 30


def test_a_class_may_be_missing_in_a_bucket_but_not_in_a_part(root: Path) -> None:
    shutil.rmtree(root / TEST / "9" / "hockey")
    assert len(read_clear10(root, size=8).labels) == 59
    for bucket in ("1", "10"):
        shutil.rmtree(root / TEST / bucket / "hockey")
    with pytest.raises(UserError, match=r"no images of class 'hockey' in .*test/labeled_images"):
        read_clear10(root, size=8)


def test_folders_that_do_not_belong_are_reported(root: Path) -> None:
    save(root / TRAIN / "1" / "cat" / "1.png", 0)
    with pytest.raises(UserError, match=r"unknown class folder .*/1/cat; expected baseball, bus"):
        read_clear10(root)
    shutil.rmtree(root / TRAIN / "1" / "cat")
    (root / TRAIN / "1").rename(root / TRAIN / "first")
    with pytest.raises(UserError, match=r"expected a bucket number as the name of .*/first"):
        read_clear10(root)
    shutil.rmtree(root / TRAIN)
    with pytest.raises(UserError, match=r"expected a folder of images at .*train_image_only"):
        read_clear10(root)
