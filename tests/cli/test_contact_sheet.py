"""A contact sheet shows the very pixels, says which they are, and is readable."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from driftwise.cli.contact_sheet import contact_sheet
from driftwise.cli.tile_page import Block, Group, draw
from driftwise.errors import RunFailure, UserError
from driftwise.streams.transforms import SEVERITIES, TRANSFORMS, apply
from driftwise.types import Dataset


def noise(samples: int, side: int = 8, channels: int = 3) -> np.ndarray:
    shape = (samples, side, side, channels)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_a_sheet_is_not_drawn_through_a_link(tmp_path: Path) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    out.mkdir()
    for name in ("sheet.png", f".sheet.png.{os.getpid()}.tmp"):
        (out / name).symlink_to(victim)
    contact_sheet(two_classes(), out=out / "sheet.png")
    assert victim.read_text() == "precious"
    assert not (out / "sheet.png").is_symlink()


def two_classes(side: int = 8, channels: int = 3) -> Dataset:
    return Dataset(
        images=noise(6, side, channels),
        labels=np.array([1, 0, 1, 0, 1, 0]),
        class_names=("cat", "dog"),
    )


def by_domain() -> Dataset:
    """Class 1 does not occur in the last domain."""
    return Dataset(
        images=noise(5),
        labels=np.array([0, 0, 1, 1, 0]),
        class_names=("cat", "dog"),
        domains=np.array([0, 1, 0, 1, 2]),
        domain_names=("photo", "sketch", "art_painting"),
    )


def read(file: Path) -> np.ndarray:
    return np.asarray(Image.open(file).convert("RGB"))


def packed(pixels: np.ndarray) -> np.ndarray:
    """One number per pixel, (height, width, 3) -> (height, width)."""
    wide = pixels.astype(np.int32)
    result: np.ndarray = wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]
    return result


def is_on(sheet: np.ndarray, image: np.ndarray, factor: int = 9) -> bool:
    """Whether an image, enlarged, is somewhere on the sheet, pixel by pixel."""
    coloured = packed(np.broadcast_to(image, (*image.shape[:2], 3)))
    tile = coloured.repeat(factor, axis=0).repeat(factor, axis=1)
    paper = packed(sheet)
    height, width = tile.shape
    corners = paper[: 1 - height, : 1 - width] == tile[0, 0]
    corners &= paper[height - 1 :, width - 1 :] == tile[-1, -1]
    return any(
        np.array_equal(paper[y : y + height, x : x + width], tile)
        for y, x in np.argwhere(corners).tolist()
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_every_transform_and_severity_of_every_class_is_on_the_sheet(
    tmp_path: Path, channels: int
) -> None:
    dataset = two_classes(channels=channels)
    sheet = read(contact_sheet(dataset, seed=5, out=tmp_path / "sheet.png"))
    firsts = torch.from_numpy(dataset.images[[1, 0]])
    assert not is_on(sheet, dataset.images[2])  # one image per class, the first
    for transform in TRANSFORMS:
        for severity in SEVERITIES:
            for image in apply(firsts, transform, severity, seed=5).numpy():
                assert is_on(sheet, image), (transform, severity)


def test_every_class_is_shown_in_every_domain_it_occurs_in(tmp_path: Path) -> None:
    dataset = by_domain()
    sheet = read(contact_sheet(dataset, out=tmp_path / "sheet.png"))
    assert all(is_on(sheet, image) for image in dataset.images)
    assert is_on(sheet, np.full((8, 8, 1), 235, np.uint8))  # no dog in art_painting


def test_of_many_classes_some_are_taken_at_even_steps(tmp_path: Path) -> None:
    images = noise(9)
    names = tuple("abcdefghi")
    dataset = Dataset(images=images, labels=np.arange(9), class_names=names)
    sheet = read(contact_sheet(dataset, classes=3, out=tmp_path / "sheet.png"))
    assert [is_on(sheet, image) for image in images] == [label in (0, 4, 8) for label in range(9)]


def test_large_images_are_shrunk_to_tiles(tmp_path: Path) -> None:
    small = read(contact_sheet(two_classes(72), out=tmp_path / "small.png"))
    large = read(contact_sheet(two_classes(224), out=tmp_path / "large.png"))
    assert small.shape == large.shape


def test_ink_is_grey_and_the_edges_are_blank(tmp_path: Path) -> None:
    sheet = read(contact_sheet(two_classes(channels=1), out=tmp_path / "sheet.png"))
    assert (sheet == sheet[..., :1]).all()
    for edge in (sheet[0], sheet[-1], sheet[:, 0], sheet[:, -1]):
        assert (edge == 255).all()


def test_equal_data_gives_equal_files_and_another_seed_another(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    one, two, other = (
        contact_sheet(two_classes(), seed=seed, out=tmp_path / f"{name}.png").read_bytes()
        for name, seed in (("one", 0), ("two", 0), ("other", 1))
    )
    assert one == two != other
    assert dict(matplotlib.rcParams) == before


def boxes(figure: Figure) -> dict[str, tuple[float, float, float, float]]:
    """Where each text is, in pixels."""
    figure.savefig(io.BytesIO(), format="png")  # places the texts
    found = {}
    for number, text in enumerate(figure.texts):
        extent = text.get_window_extent()
        key = f"{number}: {text.get_text()}"
        found[key] = (extent.x0, extent.y0, extent.x1, extent.y1)
    return found


def page(names: list[str], headings: list[str], tile: tuple[int, int]) -> Figure:
    column = np.zeros((len(names), *tile, 3), np.uint8)
    groups = tuple(
        Group(heading=heading, captions=("1", "a long caption"), columns=(column, column))
        for heading in headings
    )
    block = Block(title="Title", captions_mean="what", row_names=tuple(names), groups=groups)
    return draw([block, block])


@pytest.mark.parametrize("tile", [(72, 72), (64, 64), (4, 72), (72, 4)])
def test_no_two_texts_overlap_and_none_leaves_the_page(tile: tuple[int, int]) -> None:
    names = ["cat", "European fire salamander (n01629819)" * 3, "$x^2", "two\nlines"]
    headings = ["photo", "a_domain_with_quite_a_name_" * 3, "sketch"]
    figure = page(names, headings, tile)
    texts = boxes(figure)
    width, height = figure.get_size_inches() * figure.dpi
    for name, (left, low, right, high) in texts.items():
        assert 0 <= left < right <= width, name
        assert 0 <= low < high <= height, name
    for (one, a), (two, b) in combinations(texts.items(), 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (one, two)


def test_texts_do_not_cover_images() -> None:
    figure = page(["cat", "a rather long name of a class"], ["photo", "sketch"], (40, 40))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    pixels = np.asarray(Image.open(buffer).convert("RGB"))
    for left, low, right, high in boxes(figure).values():
        samples = slice(round(len(pixels) - high), round(len(pixels) - low))
        under = pixels[samples, round(left) : round(right)]
        assert (under == 255).any(axis=2).mean() > 0.3  # paper, not a black tile


def test_names_in_scripts_that_the_font_lacks_are_no_trouble(tmp_path: Path) -> None:
    names = ("猫", "$\\alpha$")
    dataset = Dataset(images=noise(2), labels=np.arange(2), class_names=names)
    contact_sheet(dataset, out=tmp_path / "sheet.png")  # warnings are errors in this suite


def test_a_name_that_is_no_text_is_drawn_with_a_mark_for_each_odd_byte() -> None:
    figure = page(["caf\udce9", "dog"], ["\udcff"], (40, 40))
    texts = [text.get_text() for text in figure.texts]
    assert texts.count("caf?") == texts.count("?") == 2  # there are two blocks
    boxes(figure)


def test_bad_wishes_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a \.png file; got .*sheet\.jpg"):
        contact_sheet(two_classes(), out=tmp_path / "sheet.jpg")
    with pytest.raises(UserError, match="at least one class"):
        contact_sheet(two_classes(), classes=0, out=tmp_path / "sheet.png")
    (tmp_path / "file").touch()
    with pytest.raises(RunFailure, match="cannot write"):
        contact_sheet(two_classes(), out=tmp_path / "file" / "sheet.png")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b" / "sheet.png"
    assert contact_sheet(two_classes(), out=out) == out
    assert out.is_file()


def test_no_window_system_is_touched() -> None:
    script = """
import sys
import driftwise.cli.tile_page
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
