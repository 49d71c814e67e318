"""CIFAR: both official forms of both sets give the same samples; bad files are named."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftwise import rng
from driftwise.datasets.readers.cifar import read_cifar10, read_cifar100
from driftwise.errors import UserError
from driftwise.types import Dataset

NAMES10 = ["airplane", "automobile", "bird", "cat", "deer"]
NAMES10 += ["dog", "frog", "horse", "ship", "truck"]
NAMES100 = [f"fine {number:02}" for number in range(100)]
BATCHES10 = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
ROWS10 = [2, 1, 3, 2, 1, 4]
ROWS100 = [5, 3]


def samples(num_samples: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Planes (samples, 3072) in which no two images or channels are alike, and labels."""
    draw = rng.legacy(num_samples)
    planes = draw.randint(0, 256, size=(num_samples, 3072), dtype=np.uint8)
    return planes, draw.randint(0, num_classes, size=num_samples)


def expected(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, list[int]]:
    """The definition, slowly: pixel (y, x) of channel c stands at c * 1024 + y * 32 + x."""
    planes = np.concatenate([part[0] for part in parts])
    images = np.empty((len(planes), 32, 32, 3), dtype=np.uint8)
    for y in range(32):
        for x in range(32):
            for c in range(3):
                images[:, y, x, c] = planes[:, c * 1024 + y * 32 + x]
    return images, np.concatenate([part[1] for part in parts]).tolist()


def write_cifar10_python(root: Path, protocol: int = 2) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name, num_samples in zip(BATCHES10, ROWS10, strict=True):
        planes, labels = samples(num_samples, 10)
        batch = {b"batch_label": name.encode(), b"labels": labels.tolist(), b"data": planes}
        (folder / name).write_bytes(pickle.dumps(batch, protocol))
    meta = {b"num_cases_per_batch": 2, b"label_names": [name.encode() for name in NAMES10]}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol))
    return folder


def write_cifar10_binary(root: Path) -> Path:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, num_samples in zip(BATCHES10, ROWS10, strict=True):
        planes, labels = samples(num_samples, 10)
        records = np.column_stack([labels.astype(np.uint8), planes])
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(NAMES10) + "\n\n")
    return folder


def write_cifar100_python(root: Path, protocol: int = 2) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, num_samples in zip(("train", "test"), ROWS100, strict=True):
        planes, labels = samples(num_samples, 100)
        batch = {
            b"fine_labels": labels.tolist(),
            b"coarse_labels": (labels // 5).tolist(),
            b"data": planes,
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol))
    meta = {b"fine_label_names": [name.encode() for name in NAMES100], b"coarse_label_names": []}
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol))
    return folder


def write_cifar100_binary(root: Path) -> Path:
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    for name, num_samples in zip(("train", "test"), ROWS100, strict=True):
        planes, labels = samples(num_samples, 100)
        records = np.column_stack([(labels // 5).astype(np.uint8), labels.astype(np.uint8), planes])
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "fine_label_names.txt").write_text("\n".join(NAMES100) + "\n")
    return folder


def assert_holds(dataset: Dataset, num_samples: list[int], names: list[str]) -> None:
    images, labels = expected([samples(count, len(names)) for count in num_samples])
    assert dataset.images.dtype == np.uint8
    assert np.array_equal(dataset.images, images)
    assert dataset.labels.dtype == np.int64
    assert dataset.labels.tolist() == labels
    assert dataset.class_names == tuple(names)
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False] * sum(num_samples[:-1]) + [True] * num_samples[-1]


@pytest.mark.parametrize("protocol", [0, 2])
def test_both_official_forms_of_both_sets_hold_the_images_in_order(
    tmp_path: Path, protocol: int
) -> None:
    for write in (partial(write_cifar10_python, protocol=protocol), write_cifar10_binary):
        assert_holds(read_cifar10(write(tmp_path)), ROWS10, NAMES10)
    for write in (partial(write_cifar100_python, protocol=protocol), write_cifar100_binary):
        assert_holds(read_cifar100(write(tmp_path)), ROWS100, NAMES100)


def test_the_folder_above_will_do_and_the_first_complete_form_is_taken(tmp_path: Path) -> None:
    python = write_cifar10_python(tmp_path)
    write_cifar10_binary(tmp_path)
    write_cifar100_python(tmp_path)
    assert_holds(read_cifar10(tmp_path), ROWS10, NAMES10)
    assert_holds(read_cifar100(tmp_path), ROWS100, NAMES100)
    (python / "data_batch_3").unlink()
    assert_holds(read_cifar10(tmp_path), ROWS10, NAMES10)


def batch(**changes: Any) -> bytes:
    planes, labels = samples(3, 10)
    content = {"labels": labels.tolist(), "data": planes} | changes
    return pickle.dumps({key.encode(): value for key, value in content.items()}, 2)


BAD: dict[str, tuple[str, bytes, str]] = {
    "empty": ("data_batch_2", b"", "cannot be read"),
    "cut off": ("data_batch_2", batch()[:-100], "not a CIFAR pickle"),
    "crafted": ("data_batch_2", b"cos\nsystem\n(Vtrue\ntR.", "'os system' is not admitted"),
    "counts": ("test_batch", batch(labels=[1, 2]), "2 labels for 3 images"),
    "label above": (
        "test_batch",
        batch(labels=[1, 2, 10]),
        r"label 10 in sample 2, expected 0\.\.9",
    ),
    "label below": (
        "test_batch",
        batch(labels=[1, -2, 9]),
        r"label -2 in sample 1, expected 0\.\.9",
    ),
    "label huge": ("test_batch", batch(labels=[1, 2**70, 9]), "numbers that are no labels"),
    "label kind": ("test_batch", batch(labels=[1, None, 9]), "no list of whole numbers"),
    "no labels": ("test_batch", batch(labels=[]), "no list of whole numbers"),
    "label key": (
        "test_batch",
        pickle.dumps({b"data": samples(3, 10)[0]}, 2),
        "holds data; expected 'labels' among them",
    ),
    "shape": ("test_batch", batch(data=samples(3, 10)[0][:, :3000]), r"'data' is \(3, 3000\)"),
    "no array": ("test_batch", batch(data=7), "'data' is int"),
    "names": ("batches.meta", pickle.dumps({b"label_names": [b"cat"]}, 2), "names 1 classes"),
    "binary empty": ("data_batch_4.bin", b"", "0 bytes are no whole number of 3073-byte records"),
    "binary cut off": ("data_batch_4.bin", bytes(3072), "3072 bytes are no whole number"),
    "binary label": ("data_batch_4.bin", b"\x0b" + bytes(3072), "label 11 in sample 0"),
    "binary names": ("batches.meta.txt", b"cat\ndog\n", "names 2 classes, expected 10"),
    "no text": ("batches.meta.txt", b"\xff\xfe", "not UTF-8"),
    "name kind": ("batches.meta", pickle.dumps({b"label_names": [7]}, 2), "no list of names"),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_named_in_one_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    write = write_cifar10_binary if name.endswith((".bin", ".txt")) else write_cifar10_python
    path = write(tmp_path) / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_cifar10(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_missing_files_are_listed(tmp_path: Path) -> None:
    folder = write_cifar10_python(tmp_path)
    (folder / "data_batch_3").unlink()
    (folder / "test_batch").unlink()
    (folder / "test_batch").mkdir()  # a folder where a file belongs
    with pytest.raises(UserError, match=r"that are missing: data_batch_3, test_batch$"):
        read_cifar10(folder)


def test_a_place_without_cifar_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"found no cifar-100-python or cifar-100-binary; .* meta$"):
        read_cifar100(tmp_path)
    file = write_cifar10_python(tmp_path) / "test_batch"
    with pytest.raises(UserError, match=r"expected a folder .*, found a file"):
        read_cifar10(file)
    with pytest.raises(UserError, match=r"expected a folder .*, found nothing"):
        read_cifar10(tmp_path / "nowhere")
