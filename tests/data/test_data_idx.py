"""IDX files are read in every spelling; bad files are refused in one line."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from driftwise.datasets.readers.idx import read_idx
from driftwise.errors import UserError

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"

PIXELS = {
    TRAIN_IMAGES: np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3),
    TEST_IMAGES: 255 - np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3),
}
LABELS = {
    TRAIN_LABELS: np.array([0, 1, 9, 1, 0], dtype=np.uint8),
    TEST_LABELS: np.array([2, 9], dtype=np.uint8),
}


def idx(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.tobytes()


def write(folder: Path, *, dotted: bool = False, zipped: bool = False) -> Path:
    for name, values in (PIXELS | LABELS).items():
        spelt = name.replace("-idx", ".idx") if dotted else name
        content = idx(values)
        if zipped:
            spelt, content = f"{spelt}.gz", gzip.compress(content)
        (folder / spelt).write_bytes(content)
    return folder


@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("zipped", [False, True])
def test_every_spelling_gives_the_same_samples_with_the_training_part_first(
    tmp_path: Path, dotted: bool, zipped: bool
) -> None:
    dataset = read_idx(write(tmp_path, dotted=dotted, zipped=zipped))
    assert dataset.images.dtype == np.uint8
    assert dataset.images.shape == (7, 4, 3, 1)
    assert np.array_equal(dataset.images[:5, ..., 0], PIXELS[TRAIN_IMAGES])
    assert np.array_equal(dataset.images[5:, ..., 0], PIXELS[TEST_IMAGES])
    assert dataset.labels.dtype == np.int64
    assert dataset.labels.tolist() == [0, 1, 9, 1, 0, 2, 9]
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False] * 5 + [True] * 2
    assert dataset.class_names == tuple("0123456789")


def test_a_gzipped_file_is_known_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, zipped=True)
    (tmp_path / f"{TRAIN_IMAGES}.gz").write_bytes(idx(PIXELS[TRAIN_IMAGES]))
    assert np.array_equal(read_idx(tmp_path).images[:5, ..., 0], PIXELS[TRAIN_IMAGES])


def replaced(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def as_folder(folder: Path) -> None:
    (folder / TEST_LABELS).unlink()
    (folder / TEST_LABELS).mkdir()


WHOLE = idx(PIXELS[TRAIN_IMAGES])
ZIPPED = gzip.compress(WHOLE)
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda folder: (folder / TEST_LABELS).unlink(), rf"not there: {TEST_LABELS}"),
    "a folder": (as_folder, rf"not there: {TEST_LABELS}"),
    "empty": (replaced(TRAIN_IMAGES, b""), "ends inside its header"),
    "half a header": (replaced(TRAIN_IMAGES, WHOLE[:9]), "ends inside its header"),
    "cut off": (replaced(TRAIN_IMAGES, WHOLE[:-1]), "ends before the 5x4x3 bytes"),
    "too long": (replaced(TRAIN_IMAGES, WHOLE + b"\0"), "holds more than"),
    "wrong magic": (replaced(TRAIN_IMAGES, b"PK" + WHOLE[2:]), "starts with 504b0803"),
    "labels as images": (replaced(TRAIN_IMAGES, idx(LABELS[TRAIN_LABELS])), "starts with 00000801"),
    "floats": (replaced(TRAIN_IMAGES, b"\0\0\x0d\3" + WHOLE[4:]), "starts with 00000d03"),
    "no samples": (replaced(TRAIN_IMAGES, idx(np.empty((0, 4, 3), np.uint8))), "holds nothing"),
    "a lie": (replaced(TRAIN_IMAGES, b"\0\0\x08\3" + b"\xff" * 12), "ends before the 4294967295x"),
    "a zipped lie": (
        replaced(TRAIN_IMAGES, gzip.compress(b"\0\0\x08\3" + b"\xff" * 12)),
        "ends before the 4294967295x",
    ),
    "zip cut off": (replaced(TRAIN_IMAGES, ZIPPED[:-12]), "cannot be read"),
    "zip with a wrong checksum": (
        replaced(TRAIN_IMAGES, ZIPPED[:-8] + b"\0\0\0\0" + ZIPPED[-4:]),
        "cannot be read",
    ),
    "zip of noise": (replaced(TRAIN_IMAGES, ZIPPED[:10] + b"\xff" * 40), "cannot be read"),
    "counts differ": (
        replaced(TEST_LABELS, idx(np.array([1, 2, 3], np.uint8))),
        f"3 labels for the 2 images of {TEST_IMAGES}",
    ),
    "sizes differ": (
        replaced(TEST_IMAGES, idx(np.zeros((2, 3, 3), np.uint8))),
        "images are 3x3, those of train-images-idx3-ubyte 4x3",
    ),
    "label outside": (
        replaced(TRAIN_LABELS, idx(np.array([0, 10, 9, 1, 0], np.uint8))),
        r"label 10 in sample 1, expected 0\.\.9",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_named_in_one_line(tmp_path: Path, kind: str) -> None:
    spoil, message = BAD[kind]
    spoil(write(tmp_path))
    with pytest.raises(UserError, match=message) as caught:
        read_idx(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_or_nothing_where_the_folder_belongs(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(UserError, match=r"expected a folder of IDX files at .*, found a file"):
        read_idx(tmp_path / TRAIN_IMAGES)
    with pytest.raises(UserError, match=r"expected a folder of IDX files at .*, found nothing"):
        read_idx(tmp_path / "nowhere")
