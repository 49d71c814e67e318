"""Arrays and data sets of other libraries come out with the pixels and labels they went in with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_tools import HuggingFaceTable, pretend_hugging_face
from PIL import Image
from torch.utils.data import IterableDataset

from driftwise.datasets.arrays import from_arrays, from_torch
from driftwise.datasets.readers.decode import decode
from driftwise.datasets.readers.huggingface import read_huggingface
from driftwise.errors import UserError

COLOUR = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
GREY = COLOUR[..., :1]
LABELS = [0, 2, 1, 1, 0, 2]

Maker = Callable[[np.ndarray], Any]


class Samples:
    """A map-style data set of whatever pairs it is given."""

    def __init__(self, images: list[Any], labels: list[Any]) -> None:
        self._pairs = list(zip(images, labels, strict=True))

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> Any:
        return self._pairs[index]


def pil(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)


def chw(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1)


def floats(pixels: np.ndarray) -> torch.Tensor:
    """What torchvision's ToTensor gives."""
    return chw(pixels).float() / 255


MAKERS: dict[str, Maker] = {
    "pil": pil,
    "array": lambda pixels: pixels,
    "uint8 tensor": chw,
    "float tensor": floats,
    "double tensor": lambda pixels: chw(pixels).double() / 255,
    "float array": lambda pixels: pixels.astype(np.float32) / 255,
    "tensor with channels last": torch.from_numpy,
}


@pytest.mark.parametrize("images", [COLOUR, GREY], ids=["colour", "grey"])
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_every_kind_of_image_gives_the_same_pixels(images: np.ndarray, maker: Maker) -> None:
    dataset = from_torch(Samples([maker(pixels) for pixels in images], LABELS))
    np.testing.assert_array_equal(dataset.images, images)
    assert dataset.images.dtype == np.uint8
    assert dataset.labels.tolist() == LABELS
    assert dataset.labels.dtype == np.int64
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.is_test is None


def test_arrays_without_a_channel_axis_are_grey() -> None:
    for make in (lambda p: p[..., 0], lambda p: torch.from_numpy(p[..., 0])):
        dataset = from_torch(Samples([make(pixels) for pixels in GREY], LABELS))
        np.testing.assert_array_equal(dataset.images, GREY)


def test_a_tensor_that_could_be_either_has_its_channels_first_and_an_array_last() -> None:
    pixels = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    as_array = from_torch(Samples([pixels], [0])).images[0]
    as_tensor = from_torch(Samples([torch.from_numpy(pixels)], [0])).images[0]
    np.testing.assert_array_equal(as_array, pixels)
    np.testing.assert_array_equal(as_tensor, pixels.transpose(1, 2, 0))


def test_labels_may_be_numbers_of_any_library() -> None:
    labels = [0, np.int64(2), torch.tensor(1), torch.tensor([1]), np.uint8(0), np.array(2)]
    assert from_torch(Samples(list(COLOUR), labels)).labels.tolist() == LABELS


def test_names_are_given_or_taken_from_the_data_set_in_that_order() -> None:
    samples = Samples(list(COLOUR), LABELS)
    samples.classes = ["a", "b", "c"]  # type: ignore[attr-defined]
    assert from_torch(samples).class_names == ("a", "b", "c")
    assert from_torch(samples, class_names="xyz").class_names == ("x", "y", "z")
    with pytest.raises(UserError, match=r"label 2 in sample 1, expected 0..1 \(2 class names"):
        from_torch(samples, class_names="xy")
    with pytest.raises(UserError, match="class 'd' has no images"):
        from_torch(samples, class_names="abcdefg")


def test_a_second_data_set_becomes_the_test_part() -> None:
    dataset = from_torch(
        Samples(list(COLOUR[:4]), LABELS[:4]), test=Samples(list(COLOUR[4:]), LABELS[4:])
    )
    np.testing.assert_array_equal(dataset.images, COLOUR)
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False] * 4 + [True] * 2


@pytest.mark.parametrize("mode", ["RGBA", "P", "CMYK", "LA", "I;16"])
def test_odd_modes_become_what_the_same_image_in_a_file_becomes(mode: str, tmp_path: Path) -> None:
    image = Image.fromarray(COLOUR[0]).convert("L" if mode in ("LA", "I;16") else "RGB")
    if mode == "I;16":
        image = Image.fromarray(np.arange(20, dtype=np.uint16).reshape(4, 5) * 3000)
    else:
        image = image.convert(mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(100)
    file = tmp_path / ("x.tif" if mode == "CMYK" else "x.png")
    image.save(file)
    channels = 1 if mode in ("LA", "I;16") else 3
    (sample,) = from_torch(Samples([image], [0])).images
    np.testing.assert_array_equal(sample, decode(file, channels=channels))


def test_grey_images_among_coloured_ones_become_colour() -> None:
    images = [pil(COLOUR[0]), pil(GREY[1])]
    dataset = from_torch(Samples(images, [0, 1]))
    np.testing.assert_array_equal(dataset.images[1], np.repeat(GREY[1], 3, axis=-1))


ARRAYS: dict[str, Maker] = {
    "uint8": lambda images: images,
    "floats": lambda images: images / 255,
    "uint8 tensor": lambda images: torch.from_numpy(images).permute(0, 3, 1, 2),
    "float tensor": lambda images: torch.from_numpy(images).permute(0, 3, 1, 2) / 255,
}


@pytest.mark.parametrize("images", [COLOUR, GREY], ids=["colour", "grey"])
@pytest.mark.parametrize("maker", ARRAYS.values(), ids=ARRAYS)
def test_arrays_and_tensors_give_the_same_data_set(images: np.ndarray, maker: Maker) -> None:
    for labels in (LABELS, np.array(LABELS, dtype=np.uint8), torch.tensor(LABELS)):
        dataset = from_arrays(maker(images), labels)
        np.testing.assert_array_equal(dataset.images, images)
        assert dataset.labels.dtype == np.int64
        assert dataset.labels.tolist() == LABELS
        assert dataset.class_names == ("0", "1", "2")


def test_arrays_bring_names_domains_and_a_test_part() -> None:
    dataset = from_arrays(
        COLOUR,
        ["b", "c", "a", "a", "b", "c"],
        class_names=["c", "b", "a"],
        domains=[2005, 2004, 2005, 2004, 2005, 2004],
        is_test=[0, 0, 0, 0, 1, 1],
    )
    assert dataset.labels.tolist() == [1, 0, 2, 2, 1, 0]
    assert dataset.domains is not None
    assert dataset.domains.tolist() == [1, 0, 1, 0, 1, 0]
    assert dataset.domain_names == ("2004", "2005")
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False] * 4 + [True] * 2
    assert np.shares_memory(dataset.images, COLOUR)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": COLOUR[0, 0, 0]}, r"images are \(3,\)"),
        ({"images": np.zeros((6, 4, 5, 4), np.uint8)}, "without the alpha channel"),
        ({"images": COLOUR.transpose(0, 3, 1, 2)}, "channels come last"),
        ({"images": COLOUR.astype(int)}, "images are int64"),
        ({"images": COLOUR / 128}, r"floats in \[0, 1\]"),
        ({"images": np.ma.masked_array(COLOUR)}, "masked"),
        ({"labels": LABELS[:5]}, "6 samples but 5 labels"),
        ({"labels": [0, 2, 1, 1, 0, -1]}, "label -1 in sample 5"),
        ({"labels": [0.0, 2.0, 1.0, 1.0, 0.0, 2.0]}, "labels are float64"),
        ({"domains": ["a"] * 5}, "6 samples but 5 domains"),
        ({"is_test": [2] * 6}, "is_test must be true or false"),
        ({"images": COLOUR[:0], "labels": []}, "labels are float64"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_arrays(**{"images": COLOUR, "labels": LABELS, **changes})


BAD_SAMPLES: dict[str, tuple[list[Any], list[Any], str]] = {
    "sizes differ": ([COLOUR[0], COLOUR[1, :3]], [0, 1], "sample 1 is 3x5 in colour, sample 0 4x5"),
    "colour after grey": ([pil(GREY[0]), pil(COLOUR[0])], [0, 1], "colour, sample 0 4x5 in grey"),
    "normalised": ([floats(COLOUR[0]) - 0.5], [0], "leave out a transform that normalises"),
    "not a number": ([np.full((2, 2, 1), np.nan)], [0], r"floats in \[0, 1\]"),
    "wide integers": ([COLOUR[0].astype(np.int64)], [0], "images are int64"),
    "four channels": ([np.zeros((4, 5, 4), np.uint8)], [0], r"shape \(4, 5, 4\)"),
    "no pixels": ([np.zeros((0, 5, 3), np.uint8)], [0], r"shape \(0, 5, 3\)"),
    "a path": (["x.png"], [0], "type str"),
    "float pixels of 32 bits": (
        [Image.new("F", (2, 2))],
        [0],
        "cannot use data: sample 0: .*32 bits",
    ),
    "negative label": ([COLOUR[0]], [-1], "label -1"),
    "float label": ([COLOUR[0]], [1.0], "label 1.0"),
    "truth label": ([COLOUR[0]], [True], "label True"),
    "one-hot label": ([COLOUR[0]], [torch.tensor([0, 1])], "class number"),
    "a label beyond the samples": (
        [COLOUR[0], COLOUR[1]],
        [0, 20_000_000],
        r"label 20000000 in sample 1, expected 0\.\.1 without gaps",
    ),
    "a gap": (list(COLOUR), [0, 1, 3, 3, 5, 0], r"label 5 in sample 4, expected 0..3 without gaps"),
    "no first label": (
        [COLOUR[0], COLOUR[1]],
        [1, 1],
        "label 1 in sample 0, expected 0..0 without gaps",
    ),
    "nothing": ([], [], "at least one sample"),
}


@pytest.mark.parametrize(("images", "labels", "message"), BAD_SAMPLES.values(), ids=BAD_SAMPLES)
def test_what_cannot_be_used_is_reported_in_one_line(
    images: list[Any], labels: list[Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        from_torch(Samples(images, labels))
    assert "\n" not in str(caught.value)


def test_samples_that_are_no_pairs_are_refused() -> None:
    class Triples(Samples):
        def __getitem__(self, index: int) -> Any:
            return (*super().__getitem__(index), "extra")

    with pytest.raises(UserError, match="sample 0 is a tuple of 3, expected a pair"):
        from_torch(Triples(list(COLOUR), LABELS))


def test_a_data_set_without_a_length_is_refused() -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(())

    class Counted(Endless):
        def __len__(self) -> int:
            return 3

    for data in (Endless(), Counted()):
        with pytest.raises(
            UserError, match=r"map-style .* got .*; give list\(data\) if its samples"
        ):
            from_torch(data)  # type: ignore[arg-type]


def table(
    samples: slice = slice(6), labels: list[Any] = LABELS, names: list[str] | None = None
) -> HuggingFaceTable:
    return HuggingFaceTable([pil(pixels) for pixels in COLOUR[samples]], labels[samples], names)


def test_hugging_face_splits_come_in_the_order_train_then_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["cat", "dog", "owl"]
    splits = {"test": slice(0, 2), "train": slice(2, 5), "validation": slice(5, 6)}
    loaded = {name: table(samples, names=names) for name, samples in splits.items()}
    pretend_hugging_face(monkeypatch, loaded)
    dataset = read_huggingface(tmp_path)
    np.testing.assert_array_equal(dataset.images, COLOUR[[2, 3, 4, 5, 0, 1]])
    assert dataset.labels.tolist() == [1, 1, 0, 2, 0, 2]
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False] * 4 + [True] * 2
    pretend_hugging_face(monkeypatch, {"test": table()})  # nothing else to train on
    assert read_huggingface(tmp_path).is_test is None
    pretend_hugging_face(monkeypatch, table(labels=["b", "a", "c", "a", "b", "c"]))
    dataset = read_huggingface(tmp_path)
    assert dataset.class_names == ("a", "b", "c")
    assert dataset.labels.tolist() == [1, 0, 2, 0, 1, 2]


def test_unusable_hugging_face_data_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_hugging_face(monkeypatch, table())
    with pytest.raises(UserError, match="has the columns image, label; expected 'photo'"):
        read_huggingface(tmp_path, image="photo")
    with pytest.raises(UserError, match="found nothing"):
        read_huggingface(tmp_path / "nowhere")
    pretend_hugging_face(monkeypatch, table(labels=[0, None, 1, 1, 0, 2]))
    with pytest.raises(UserError, match=r"several kinds \(NoneType, int\)"):
        read_huggingface(tmp_path)
    pretend_hugging_face(monkeypatch, table(labels=[0, -1, 1, 1, 0, 2], names=["a", "b", "c"]))
    with pytest.raises(UserError, match="sample 1 has the label -1"):
        read_huggingface(tmp_path)


def test_a_data_set_that_the_package_saved_comes_back(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog", "owl"])
    )

    def split(samples: slice) -> Any:
        images = [pil(pixels) for pixels in COLOUR[samples]]
        content = {"image": images, "label": LABELS[samples]}
        return datasets.Dataset.from_dict(content, features=features)

    parts = {"train": split(slice(0, 4)), "test": split(slice(4, 6))}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    dataset = read_huggingface(tmp_path / "saved")
    np.testing.assert_array_equal(dataset.images, COLOUR)
    assert dataset.labels.tolist() == LABELS
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.is_test is not None
    assert dataset.is_test.tolist() == [False] * 4 + [True] * 2
    parts["train"].save_to_disk(str(tmp_path / "single"))
    np.testing.assert_array_equal(read_huggingface(tmp_path / "single").images, COLOUR[:4])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="not a data set that save_to_disk wrote"):
        read_huggingface(tmp_path / "empty")
