"""A contact sheet shows the very pixels, names them, and is readable."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from driftwise.cli.contact_sheet import _LINE, Block, Group, _width, contact_sheet, draw, place
from driftwise.errors import RunFailure, UserError
from driftwise.streams.transforms import SEVERITIES, TRANSFORMS, apply
from driftwise.types import Dataset


def noise(samples: int, side: int = 8, channels: int = 3) -> np.ndarray:
    shape = (samples, side, side, channels)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def two_classes(side: int = 8, channels: int = 3) -> Dataset:
    return Dataset(
        images=noise(6, side, channels),
        labels=np.array([1, 0, 1, 0, 1, 0]),
        class_names=("猫", "$\\alpha$"),  # not in the font, and no formula
    )


def read(file: Path) -> np.ndarray:
    return np.asarray(Image.open(file).convert("RGB"))


def packed(pixels: np.ndarray) -> np.ndarray:
    """One number per pixel, (height, width, 3) -> (height, width)."""
    numbers: np.ndarray = pixels.astype(np.int64) @ [65536, 256, 1]
    return numbers


def is_on(sheet: np.ndarray, image: np.ndarray, factor: int = 9) -> bool:
    """Whether an image, enlarged, is somewhere on a packed sheet, pixel by pixel."""
    coloured = packed(np.broadcast_to(image, (*image.shape[:2], 3)))
    tile = coloured.repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = tile.shape
    corners = sheet[: 1 - height, : 1 - width] == tile[0, 0]
    corners &= sheet[height - 1 :, width - 1 :] == tile[-1, -1]
    return any(
        np.array_equal(sheet[y : y + height, x : x + width], tile)
        for y, x in np.argwhere(corners).tolist()
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_every_transform_and_severity_of_every_class_is_on_the_sheet(
    tmp_path: Path, channels: int
) -> None:
    dataset = two_classes(channels=channels)
    out = tmp_path / "a" / "sheet.png"
    assert contact_sheet(dataset, seed=5, out=out) == out
    pixels = read(out)
    sheet = packed(pixels)
    firsts = torch.from_numpy(dataset.images[[1, 0]])
    assert not is_on(sheet, dataset.images[2])  # one image per class, the first
    for transform in TRANSFORMS:
        for severity in SEVERITIES:
            for image in apply(firsts, transform, severity, seed=5).numpy():
                assert is_on(sheet, image), (transform, severity)
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 255).all()
    assert (pixels == pixels[..., :1]).all() == (channels == 1)  # ink is grey


def test_every_class_is_shown_in_every_domain_it_occurs_in(tmp_path: Path) -> None:
    dataset = Dataset(
        images=noise(5),
        labels=np.array([0, 0, 1, 1, 0]),
        class_names=("cat", "dog"),
        domains=np.array([0, 1, 0, 1, 2]),
        domain_names=("photo", "sketch", "art_painting"),
    )
    sheet = packed(read(contact_sheet(dataset, out=tmp_path / "sheet.png")))
    assert all(is_on(sheet, image) for image in dataset.images)
    assert is_on(sheet, np.full((8, 8, 1), 235, np.uint8))  # no dog in art_painting


def test_of_many_classes_some_are_taken_at_even_steps(tmp_path: Path) -> None:
    images = noise(9)
    dataset = Dataset(images=images, labels=np.arange(9), class_names=tuple("abcdefghi"))
    sheet = packed(read(contact_sheet(dataset, classes=3, out=tmp_path / "sheet.png")))
    assert [is_on(sheet, image) for image in images] == [label in (0, 4, 8) for label in range(9)]


def test_large_images_are_shrunk_to_tiles(tmp_path: Path) -> None:
    small = read(contact_sheet(two_classes(72), out=tmp_path / "small.png"))
    large = read(contact_sheet(two_classes(224), out=tmp_path / "large.png"))
    assert small.shape == large.shape


def test_equal_data_gives_equal_files_and_another_seed_another(tmp_path: Path) -> None:
    one, two, other = (
        contact_sheet(two_classes(), seed=seed, out=tmp_path / f"{name}.png").read_bytes()
        for name, seed in (("one", 0), ("two", 0), ("other", 1))
    )
    assert one == two != other


@pytest.mark.parametrize("tile", [(72, 72), (4, 72), (72, 4)])
def test_texts_overlap_neither_each_other_nor_images_and_stay_on_the_sheet(
    tile: tuple[int, int],
) -> None:
    names = ["cat", "European fire salamander (n01629819)" * 3, "$x^2", "two\nlines", "caf\udce9"]
    column = np.zeros((len(names), *tile, 3), np.uint8)
    groups = [
        Group(heading=heading, captions=("1", "a long caption"), columns=(column, column))
        for heading in ("photo", "a_domain_with_quite_a_name_" * 3, "\udcff")
    ]
    block = Block(title="Title", captions_mean="what", row_names=names, groups=groups)
    texts, tiles = place([block, block])
    sheet = draw([block, block])
    boxes = [
        (
            each.text,
            each.x,
            each.y,
            each.x + _width(each.text, each.bold, each.size),
            each.y + _LINE,
        )
        for each in texts
    ]
    boxes += [("a tile", x, y, x + tile[1], y + tile[0]) for x, y, _ in tiles]
    for _, left, top, right, bottom in boxes:
        assert 0 <= left < right <= sheet.width
        assert 0 <= top < bottom <= sheet.height
    for a, b in combinations(boxes, 2):
        assert a[3] <= b[1] or b[3] <= a[1] or a[4] <= b[2] or b[4] <= a[2], (a, b)
    assert [each.text for each in texts].count("caf?") == 2  # a mark for each odd byte


def test_a_sheet_is_not_drawn_through_a_link(tmp_path: Path) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    out.mkdir()
    for name in ("sheet.png", f".sheet.png.{os.getpid()}.tmp"):
        (out / name).symlink_to(victim)
    contact_sheet(two_classes(), out=out / "sheet.png")
    assert victim.read_text() == "precious"
    assert not (out / "sheet.png").is_symlink()


def test_bad_wishes_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a \.png file; got .*sheet\.jpg"):
        contact_sheet(two_classes(), out=tmp_path / "sheet.jpg")
    with pytest.raises(UserError, match="at least one class"):
        contact_sheet(two_classes(), classes=0, out=tmp_path / "sheet.png")
    (tmp_path / "file").touch()
    with pytest.raises(RunFailure, match="cannot write"):
        contact_sheet(two_classes(), out=tmp_path / "file" / "sheet.png")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
