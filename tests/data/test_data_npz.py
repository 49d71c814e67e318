"""`.npz` files: samples as they were saved, no objects, bad files refused in one line."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driftwise.datasets.readers.npz import read_npz
from driftwise.errors import UserError

GREY = np.arange(6 * 4 * 5, dtype=np.uint8).reshape(6, 4, 5)
COLOUR = np.stack([GREY, 2 * GREY, 255 - GREY], axis=-1)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "images.npz"
    np.savez(path, **({"images": GREY, "labels": LABELS} | arrays))
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_images_come_back_as_they_were_saved(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "x.npz", images=COLOUR, labels=LABELS)
    dataset = read_npz(tmp_path / "x.npz")
    assert np.array_equal(dataset.images, COLOUR)
    assert dataset.labels.dtype == np.int64
    assert dataset.labels.tolist() == LABELS.tolist()
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.is_test is None
    assert dataset.domains is None
    assert dataset.domain_names == ()


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4"])
def test_floats_in_0_1_become_the_nearest_byte(tmp_path: Path, dtype: str) -> None:
    images = (GREY / 255).astype(dtype)
    assert np.array_equal(read_npz(saved(tmp_path, images=images)).images[..., 0], GREY)


def test_reading_piece_by_piece_equals_reading_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path, images=COLOUR)
    monkeypatch.setattr("driftwise.datasets.readers.npz._CHUNK_BYTES", 2 * COLOUR[0].nbytes + 1)
    assert np.array_equal(read_npz(path).images, COLOUR)


@pytest.mark.parametrize("kind", ["U", "S"])
def test_labels_may_be_names_in_alphabetical_or_in_the_given_order(
    tmp_path: Path, kind: str
) -> None:
    path = saved(tmp_path, labels=np.array(["dog", "cat", "ant", "dog", "cat", "ant"]).astype(kind))
    assert read_npz(path).class_names == ("ant", "cat", "dog")
    assert read_npz(path).labels.tolist() == [2, 1, 0, 2, 1, 0]
    ordered = read_npz(path, class_names=["dog", "cat", "ant"])
    assert ordered.labels.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("key", ["labels", "domain"])
@pytest.mark.parametrize("code", [0x110000, 0xFFFFFFFF, 0xD800])
def test_text_of_what_is_no_character_is_refused_in_one_line(
    tmp_path: Path, key: str, code: int, order: str
) -> None:
    codes = np.full(6, 97, f"{order}u4")
    assert len(read_npz(saved(tmp_path, **{key: codes.view(f"{order}U1")})).labels) == 6
    codes[2] = code
    path = saved(tmp_path, **{key: codes.view(f"{order}U1")})
    with pytest.raises(UserError) as caught:
        read_npz(path)
    expected = f"{path}: {key} holds {code:#x}, which is no character of Unicode; save it again"
    assert str(caught.value) == expected


def test_domains_are_numbered_in_ascending_order(tmp_path: Path) -> None:
    words = read_npz(saved(tmp_path, domain=np.array(["photo", "art"] * 3)))
    assert words.domain_names == ("art", "photo")
    assert words.domains is not None
    assert words.domains.tolist() == [1, 0] * 3
    numbers = read_npz(saved(tmp_path, domain=np.array([7, 3, 5] * 2)))
    assert numbers.domain_names == ("3", "5", "7")
    assert numbers.domains is not None
    assert numbers.domains.tolist() == [2, 0, 1] * 2


@pytest.mark.parametrize(
    ("group_years", "names", "domains"),
    [
        (None, ("1929", "1930", "1934", "1939", "1940"), [1, 3, 0, 4, 2, 1]),
        (5, ("1925-1929", "1930-1934", "1935-1939", "1940-1944"), [1, 2, 0, 3, 1, 1]),
        (10, ("1920s", "1930s", "1940s"), [1, 1, 0, 2, 1, 1]),
    ],
)
def test_years_become_domains_of_so_many_years(
    tmp_path: Path, group_years: int | None, names: tuple[str, ...], domains: list[int]
) -> None:
    year = np.array([1930, 1939, 1929, 1940, 1934, 1930], dtype=np.uint16)
    dataset = read_npz(saved(tmp_path, year=year), group_years=group_years)
    assert dataset.domain_names == names
    assert dataset.domains is not None
    assert dataset.domains.dtype == np.int64
    assert dataset.domains.tolist() == domains


@pytest.mark.parametrize("key", ["is_test", "is_valid"])
def test_samples_held_out_by_the_file_are_its_test_part(tmp_path: Path, key: str) -> None:
    for mask in (np.array([0, 0, 1] * 2, dtype=np.uint8), np.array([False, False, True] * 2)):
        dataset = read_npz(saved(tmp_path, **{key: mask}))
        assert dataset.is_test is not None
        assert dataset.is_test.dtype == bool
        assert dataset.is_test.tolist() == [False, False, True] * 2


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("key", ["images", "labels", "domain", "year", "is_valid"])
def test_an_array_of_objects_is_refused_and_never_unpickled(tmp_path: Path, key: str) -> None:
    canary = tmp_path / "canary"
    path = saved(tmp_path, **{key: np.array([Canary(canary)] * 6, dtype=object)})
    with pytest.raises(UserError, match=f"images.npz: {key} is an array of Python objects"):
        read_npz(path)
    assert not canary.exists()


def changed(**arrays: Any) -> dict[str, Any]:
    return {"images": GREY, "labels": LABELS} | arrays


NAN, INFINITE = GREY / 255, GREY / 255
NAN[4, 1, 1], INFINITE[5, 0, 0] = np.nan, np.inf
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no images": ({"labels": LABELS, "x": GREY}, "holds labels, x; expected 'images'"),
    "no labels": ({"images": GREY}, "holds images; expected 'labels'"),
    "no samples": (changed(images=GREY[:0], labels=LABELS), "images is empty"),
    "nan": (changed(images=NAN), "images hold nan in sample 4"),
    "infinite": (changed(images=INFINITE), "images hold inf in sample 5"),
    "floats to 255": (changed(images=GREY.astype(float)), r"images hold 2.0 in sample 0.*uint8"),
    "negative": (changed(images=GREY / 255 - 0.5), "images hold -0.5 in sample 0"),
    "int64": (changed(images=GREY.astype(np.int64)), "images are int64, expected uint8"),
    "text": (changed(images=GREY.astype(str)), "images are <U3, expected uint8"),
    "channels first": (changed(images=COLOUR.transpose(0, 3, 1, 2).copy()), "channels come last"),
    "alpha": (changed(images=np.zeros((6, 4, 5, 4), np.uint8)), "without the alpha channel"),
    "vectors": (changed(images=GREY.reshape(6, 20)), r"images are \(6, 20\), expected"),
    "fortran": (changed(images=np.asfortranarray(GREY)), "Fortran order"),
    "counts": (changed(labels=LABELS[:5] % 2), "5 labels for 6 images"),
    "label gap": (
        changed(labels=LABELS + (LABELS == 2)),
        r"label 3 in sample 2, expected 0\.\.2 without gaps",
    ),
    "label below": (changed(labels=LABELS - 1), r"label -1 in sample 0, expected 0\.\.2"),
    "label huge": (changed(labels=LABELS.astype(np.uint64) + 2**63), "too large"),
    "label floats": (changed(labels=LABELS / 2), "labels is float64"),
    "label truth": (changed(labels=LABELS > 0), "labels are bool"),
    "label matrix": (changed(labels=np.eye(6, dtype=int)), r"labels is int64 \(6, 6\)"),
    "label noise": (changed(labels=np.array([b"\xff"] * 6)), "cannot be read"),
    "years as text": (changed(year=np.array(["1930"] * 6)), "year is <U4"),
    "domain count": (changed(domain=np.arange(5)), "5 entries of domain or year for 6 labels"),
    "both": (changed(domain=LABELS, year=LABELS), "both domain and year"),
    "mask": (changed(is_valid=LABELS), "is_valid must be true or false"),
    "mask count": (changed(is_test=np.zeros(7, bool)), "7 entries of is_test"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_arrays_are_refused_in_one_line_that_names_the_file(tmp_path: Path, kind: str) -> None:
    arrays, message = BAD[kind]
    path = tmp_path / "images.npz"
    np.savez(path, **arrays)
    with pytest.raises(UserError, match=message) as caught:
        read_npz(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_names_that_were_given_must_fit_the_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"label 2 in sample 2, expected 0\.\.1 \(2 class names\)"):
        read_npz(saved(tmp_path), class_names=["a", "b"])
    with pytest.raises(UserError, match="class 'd' has no images"):
        read_npz(saved(tmp_path), class_names=["a", "b", "c", "d"])
    with pytest.raises(UserError, match="label 'c', expected one of a, b"):
        read_npz(saved(tmp_path, labels=np.array(["a", "b", "c"] * 2)), class_names=["a", "b"])


def test_grouping_years_needs_years_and_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no year"):
        read_npz(saved(tmp_path), group_years=10)
    with pytest.raises(UserError, match="group_years is 0"):
        read_npz(saved(tmp_path, year=LABELS), group_years=0)


def archive(path: Path, images: bytes, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    """An .npz whose images are exactly these bytes."""
    labels = io.BytesIO()
    np.save(labels, LABELS)
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("images.npy", images)
        file.writestr("labels.npy", labels.getvalue())
    return path


def npy(shape: tuple[int, ...], descr: str = "|u1") -> bytes:
    """The header of an array, without its values."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        content, {"shape": shape, "fortran_order": False, "descr": descr}
    )
    return content.getvalue()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (npy((6, 4, 5)) + GREY.tobytes()[:-1], "images ends too early"),
        (npy((6, 4, 5)) + GREY.tobytes() + b"\0", "images holds more than"),
        (npy((6, 2**40, 2**40)), "images is cut off"),
        (b"", "images has no valid array header"),
        (b"GIF89a" + bytes(100), "images has no valid array header"),
        (b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 118, "images has no valid array header"),
        (npy((6, 4, 5), "|O") + pickle.dumps(0), "array of Python objects"),
    ],
)
def test_an_array_that_is_not_what_its_header_says(
    tmp_path: Path, images: bytes, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read_npz(archive(tmp_path / "x.npz", images))


def test_a_packing_that_numpy_does_not_use_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", npy((6, 4, 5)) + GREY.tobytes(), zipfile.ZIP_LZMA)
    with pytest.raises(UserError, match="packed in a way"):
        read_npz(path)


def test_what_is_no_npz_file_at_all(tmp_path: Path) -> None:
    whole = saved(tmp_path).read_bytes()
    flipped = bytearray(whole)
    flipped[200] ^= 0xFF  # a pixel: only the archive's checksum shows it
    np.save(tmp_path / "array.npy", GREY)
    contents = {
        "empty": b"",
        "text": b"images, labels\n",
        "cut": whole[: len(whole) // 2],
        "flipped": bytes(flipped),
        "array": (tmp_path / "array.npy").read_bytes(),
    }
    for name, content in contents.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"{name}.npz: not a whole .npz file"):
            read_npz(path)
    with pytest.raises(UserError, match=r"is a folder, expected an \.npz file"):
        read_npz(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        read_npz(tmp_path / "nowhere.npz")
