"""Whoever takes arrays refuses those that hide values, have none, or would wrap: in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import complaint
from scipy.sparse import csr_array

import driftwise
from driftwise.datasets.readers.digits import load_digits
from driftwise.datasets.validate import check_dataset
from driftwise.types import Dataset

IMAGES = np.arange(4 * 64, dtype=np.uint8).reshape(4, 8, 8, 1)
LABELS = np.array([0, 1, 0, 1])

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about what it will drop


def observed(x: Any, y: Any) -> None:
    driftwise.LiveLearner("mlp", lr=0.1).observe(x, y)


def fitted(x: Any, y: Any) -> None:
    driftwise.LiveClassifier().fit(x, y)


def detected(x: Any, y: Any) -> None:
    driftwise.DriftDetector().fit((x, y))


def checked(x: Any, y: Any) -> None:
    check_dataset(Dataset(images=x, labels=y, class_names=("a", "b")), source="data")


TAKERS = (observed, fitted, detected, checked)
HUGE = np.array([0, 1, 0, 2**64 - 1], np.uint64)


def with_one_odd_image(x: Any, y: Any) -> None:
    driftwise.from_torch_dataset([(each, int(label)) for each, label in zip(x, y, strict=True)])


@pytest.mark.parametrize("take", [*TAKERS, with_one_odd_image])
def test_masked_images_are_refused(take: Callable[[Any, Any], None]) -> None:
    masked = np.ma.masked_equal(IMAGES, 3)
    assert "a masked array hides values" in complaint(lambda: take(masked, LABELS))


@pytest.mark.parametrize("take", [observed, driftwise.datasets.from_arrays])
def test_sparse_matrices_are_refused(take: Callable[[Any, Any], None]) -> None:
    sparse = csr_array(IMAGES.reshape(4, -1))
    assert "got a sparse matrix; give it as x.toarray()" in complaint(lambda: take(sparse, LABELS))


@pytest.mark.parametrize("take", TAKERS)
def test_masked_labels_are_refused(take: Callable[[Any, Any], None]) -> None:
    masked = np.ma.masked_equal(LABELS, 1)
    assert "a masked array hides values" in complaint(lambda: take(IMAGES, masked))


@pytest.mark.parametrize("take", [observed, fitted, detected])
@pytest.mark.parametrize("labels", [HUGE, torch.from_numpy(HUGE)], ids=["array", "tensor"])
def test_labels_that_would_wrap_are_refused(take: Callable[[Any, Any], None], labels: Any) -> None:
    assert "too large" in complaint(lambda: take(IMAGES, labels))


ODD_TENSORS = {
    "sparse": (lambda x: x.to_sparse(), "to_dense()"),
    "meta": (lambda x: x.to("meta"), "which has no values"),
    "quantised": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        "as dequantize() makes it",
    ),
    "float8": (lambda x: x.to(torch.float8_e4m3fn), "give x.float()"),
    "nested": (lambda x: torch.nested.nested_tensor(list(x)), "to_padded_tensor()"),
}


@pytest.mark.parametrize("take", [observed, fitted, detected])
@pytest.mark.parametrize("kind", ODD_TENSORS)
def test_tensors_without_plain_values_are_refused(
    kind: str, take: Callable[[Any, Any], None]
) -> None:
    change, text = ODD_TENSORS[kind]
    odd = change(torch.from_numpy(IMAGES).float().permute(0, 3, 1, 2) / 255)  # type: ignore[no-untyped-call]
    assert text in complaint(lambda: take(odd, LABELS))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.array(1.0), LABELS),
        (torch.tensor(1.0), LABELS),
        (torch.ones(4, 3, dtype=torch.complex64), LABELS),
        (IMAGES, [0, 1, [], 1]),
        (IMAGES, torch.ones(4, dtype=torch.bfloat16)),
    ],
    ids=["number", "tensor of one number", "complex", "ragged labels", "labels in bfloat16"],
)
@pytest.mark.parametrize("take", [observed, detected])
def test_what_is_no_array_of_samples_or_labels_is_refused(
    take: Callable[[Any, Any], None], x: Any, y: Any
) -> None:
    if take is observed and isinstance(y, torch.Tensor):
        take(x, y)  # ones are whole numbers to it
    else:
        complaint(lambda: take(x, y))


def test_bytes_are_no_batches() -> None:
    data: Any = np.ones((4, 3)).data
    assert "got memoryview" in complaint(lambda: driftwise.DriftDetector().fit(data))


@pytest.mark.parametrize("take", TAKERS)
def test_images_without_channels_are_refused(take: Callable[[Any, Any], None]) -> None:
    complaint(lambda: take(IMAGES[..., :0], LABELS), ValueError)


def test_a_run_takes_data_that_run_backwards(tmp_path: Any) -> None:
    data = load_digits()
    few = data.labels < 2
    backwards = Dataset(
        images=data.images[few][::-1],
        labels=data.labels[few][::-1],
        class_names=("0", "1"),
    )
    config = driftwise.RunConfig(epochs=1, tasks=((0,), (1,)), num_drifts=0, threads=1)
    assert driftwise.run(config, tmp_path / "run", data=backwards)["faa"] > 0
