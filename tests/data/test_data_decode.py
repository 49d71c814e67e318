"""An image file becomes the pixels a person sees, or is refused."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from driftwise.datasets.readers.decode import Fit, WrongSize, decode, decode_all, is_grey
from driftwise.errors import UserError

RED, BLUE, WHITE, BLACK = (255, 0, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def colours(*samples: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    return np.array(samples, dtype=np.uint8)


def saved(file: Path, image: Image.Image, **options: Any) -> Path:
    image.save(file, **options)
    return file


def gradient(width: int, height: int) -> Image.Image:
    """A smooth colour image in which no two places are alike."""
    y, x = np.mgrid[:height, :width]
    red, green = 255 * x / max(width - 1, 1), 255 * y / max(height - 1, 1)
    return Image.fromarray(np.stack([red, green, 255 - red], axis=-1).astype(np.uint8))


def png_header(file: Path, width: int, height: int) -> Path:
    """A PNG that announces a size and holds next to nothing."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checked = kind + body
        return struct.pack(">I", len(body)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    return file


@pytest.mark.parametrize("suffix", ["png", "bmp", "ppm", "tif", "webp"])
def test_colour_comes_out_of_every_lossless_format_as_it_went_in(
    tmp_path: Path, suffix: str
) -> None:
    pixels = np.asarray(gradient(7, 5))
    options = {"lossless": True} if suffix == "webp" else {}
    file = saved(tmp_path / f"a.{suffix}", Image.fromarray(pixels), **options)
    assert np.array_equal(decode(file, channels=3), pixels)


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm", "bmp"])
def test_grey_stays_grey_and_becomes_colour_by_repeating(tmp_path: Path, suffix: str) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
    file = saved(tmp_path / f"a.{suffix}", Image.fromarray(pixels))
    assert np.array_equal(decode(file, channels=1), pixels[..., None])
    assert np.array_equal(decode(file, channels=3), np.repeat(pixels[..., None], 3, axis=2))


def test_colour_becomes_grey_by_its_luma(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.png", Image.fromarray(colours((RED, BLUE, WHITE))))
    expected = [round(0.299 * 255), round(0.114 * 255), 255]
    assert decode(file, channels=1).ravel().tolist() == expected


def test_transparency_is_laid_on_white(tmp_path: Path) -> None:
    pixels = np.array([[[255, 0, 0, 255], [255, 0, 0, 0], [0, 0, 0, 128]]], dtype=np.uint8)
    file = saved(tmp_path / "a.png", Image.fromarray(pixels))
    assert decode(file, channels=3)[0].tolist() == [[255, 0, 0], [255] * 3, [127] * 3]
    grey = np.array([[[0, 255], [0, 0], [100, 255]]], dtype=np.uint8)
    with_alpha = saved(tmp_path / "la.png", Image.fromarray(grey, mode="LA"))
    assert decode(with_alpha, channels=1).ravel().tolist() == [0, 255, 100]
    assert decode(with_alpha, channels=3)[0, 1].tolist() == [255, 255, 255]


@pytest.mark.parametrize("suffix", ["png", "gif"])
def test_a_palettes_transparent_colour_is_laid_on_white_too(tmp_path: Path, suffix: str) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    file = saved(tmp_path / f"a.{suffix}", image, transparency=1)
    assert decode(file, channels=3)[0].tolist() == [list(RED), [255, 255, 255]]


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bits_keep_their_high_byte_instead_of_being_clipped(
    tmp_path: Path, suffix: str
) -> None:
    deep = np.array([[0, 255, 256], [0x1234, 0x80FF, 0xFFFF]], dtype=np.uint16)
    file = saved(tmp_path / f"a.{suffix}", Image.fromarray(deep))
    assert np.array_equal(decode(file, channels=1)[..., 0], deep >> 8)
    assert np.array_equal(decode(file, channels=3)[..., 2], deep >> 8)
    assert is_grey(file)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_thirty_two_bits_have_no_known_white_and_are_refused(tmp_path: Path, mode: str) -> None:
    file = saved(tmp_path / "a.tif", Image.new(mode, (3, 2)))
    with pytest.raises(UserError, match=r"a\.tif: its pixels have 32 bits; expected 8 or 16"):
        decode(file, channels=1)


ORIENTED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.transpose(1, 0, 2),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}
"""How a camera that was held so stores an upright image."""


@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
@pytest.mark.parametrize("orientation", ORIENTED)
def test_a_photo_is_turned_upright(tmp_path: Path, orientation: int, suffix: str) -> None:
    upright = np.asarray(gradient(6, 4))
    stored = Image.fromarray(np.ascontiguousarray(ORIENTED[orientation](upright)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if suffix == "webp" else {}
    file = saved(tmp_path / f"a.{suffix}", stored, exif=exif, **options)
    assert np.array_equal(decode(file, channels=3, size=(4, 6), fit="exact"), upright)


def test_a_damaged_exif_block_costs_the_turn_and_not_the_image(tmp_path: Path) -> None:
    exif = b"Exif\0\0MM\0*\xff\xff\xff\xff"
    file = saved(tmp_path / "a.jpg", gradient(6, 4), exif=exif)
    assert decode(file, channels=3).shape == (4, 6, 3)


def test_a_photo_with_a_second_view_is_its_first(tmp_path: Path) -> None:
    first, second = gradient(16, 8), Image.new("RGB", (16, 8))
    file = saved(tmp_path / "a.mpo", first, save_all=True, append_images=[second])
    file = file.rename(tmp_path / "a.jpg")
    assert np.abs(decode(file, channels=3).astype(int) - np.asarray(first)).mean() < 8


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tif"])
def test_moving_images_are_refused(tmp_path: Path, suffix: str) -> None:
    frames = [gradient(4, 4), Image.new("RGB", (4, 4), BLUE)]
    file = saved(tmp_path / f"a.{suffix}", frames[0], save_all=True, append_images=frames[1:])
    with pytest.raises(UserError, match=rf"a\.{suffix}: it is animated or has several pages"):
        decode(file, channels=3)


def test_a_bomb_is_refused_by_its_header_and_without_a_warning(tmp_path: Path) -> None:
    for width, height in [(8193, 8192), (10_000, 10_000), (60_000, 60_000), (70_000, 1)]:
        file = png_header(tmp_path / "bomb.png", width, height)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(UserError, match=r"bomb\.png: .*67,108,864"):
                decode(file, channels=3)
        assert warned == []


def test_files_that_are_no_images_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "folder.png").mkdir()
    for name, reason in {
        "empty.png": r"it is empty \(0 bytes\)",
        "text.jpg": "it is not a JPEG, PNG",
        "folder.png": "got a folder",
        "missing.png": "No such file",
    }.items():
        with pytest.raises(UserError, match=f"^cannot use {tmp_path / name}: .*{reason}"):
            decode(tmp_path / name, channels=3)


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "gif", "webp", "tif", "ppm"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_image_cut_short_is_refused(tmp_path: Path, suffix: str, share: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    file = saved(tmp_path / f"a.{suffix}", Image.fromarray(noise))
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=rf"^cannot use .*a\.{suffix}: ") as caught:
        decode(file, channels=3)
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=200)
@given(
    suffix=st.sampled_from(["JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM"]),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_damaged_bytes_give_pixels_or_one_line_and_never_anything_else(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, changes: list[tuple[float, int]]
) -> None:
    buffer = io.BytesIO()
    gradient(9, 7).save(buffer, suffix)
    content = bytearray(buffer.getvalue())
    for where, value in changes:
        content[int(where * (len(content) - 1))] = value
    file = tmp_path_factory.getbasetemp() / "damaged"
    file.write_bytes(content)
    try:
        found = decode(file, channels=3, size=(5, 5))
    except UserError as error:
        message = str(error)
    else:
        message = f"{file} gives {found.dtype}"
        assert found.shape == (5, 5, 3)
    assert str(file) in message
    assert "\n" not in message


@settings(deadline=None, max_examples=60)
@given(width=st.integers(1, 70), height=st.integers(1, 70), side=st.integers(1, 40))
def test_crop_is_resizing_the_short_side_and_cutting_the_middle_out(
    tmp_path_factory: pytest.TempPathFactory, width: int, height: int, side: int
) -> None:
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    file = saved(tmp_path_factory.getbasetemp() / "crop.png", image)
    short = min(width, height)
    larger = side * width // short, side * height // short
    resized = image.resize(larger, Image.Resampling.BILINEAR)
    left, top = round((resized.width - side) / 2), round((resized.height - side) / 2)
    expected = np.asarray(resized.crop((left, top, left + side, top + side)))
    found = decode(file, channels=3, size=(side, side), fit="crop")
    # one resize instead of two steps: equal up to the rounding of the filter's weights
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_an_extreme_strip_is_cropped_without_growing_first(tmp_path: Path) -> None:
    strip = np.zeros((1, 60_001, 3), dtype=np.uint8)
    strip[0, 30_000] = RED
    file = saved(tmp_path / "strip.png", Image.fromarray(strip))
    found = decode(file, channels=3, size=(224, 224), fit="crop")
    assert (found[:, 112, 0] >= 250).all()  # the one red pixel fills the middle


def test_shrinking_averages_instead_of_picking_pixels(tmp_path: Path) -> None:
    checks = np.indices((64, 64)).sum(axis=0) % 2 * 255
    file = saved(tmp_path / "a.png", Image.fromarray(checks.astype(np.uint8)))
    found = decode(file, channels=1, size=(8, 8), fit="stretch")
    assert np.abs(found.astype(int) - 127).max() <= 2


def test_exact_refuses_another_size_and_names_both(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.png", gradient(6, 4))
    with pytest.raises(UserError, match=r"a\.png: expected 4 x 6 pixels .*, got 6 x 4"):
        decode(file, channels=3, size=(6, 4), fit="exact")


def test_unknown_wishes_are_refused(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.png", gradient(6, 4))
    with pytest.raises(UserError, match="got 4"):
        decode(file, channels=4)
    with pytest.raises(UserError, match="unknown fit 'corp'; did you mean 'crop'"):
        decode(file, channels=3, fit="corp")  # type: ignore[arg-type]


def many(folder: Path, count: int) -> list[Path]:
    files = [folder / f"{number:03}.png" for number in range(count)]
    for number, file in enumerate(files):
        saved(file, Image.new("RGB", (10, 8), (number, 255 - number, 7)))
    return files


@pytest.mark.parametrize("fit", ["crop", "stretch"])
def test_the_number_of_threads_does_not_show(tmp_path: Path, fit: Fit) -> None:
    files = many(tmp_path, 70)
    one, four = (np.empty((70, 5, 6, 3), dtype=np.uint8) for _ in range(2))
    decode_all(files, one, fit=fit, workers=1)
    assert decode_all(files, four, fit=fit, workers=4) == []
    assert np.array_equal(one, four)
    assert one[:, 2, 3, 0].tolist() == list(range(70))
    assert np.array_equal(one[5], decode(files[5], channels=3, size=(5, 6), fit=fit))


def test_the_first_bad_file_in_order_is_recognised_however_many_threads_there_are(
    tmp_path: Path,
) -> None:
    files = many(tmp_path, 200)
    for bad in (150, 70, 199, 71):
        files[bad].write_bytes(b"")
    for workers in (1, 4):
        with pytest.raises(UserError, match=r"070\.png: it is empty"):
            decode_all(files, np.empty((200, 8, 10, 3), dtype=np.uint8), workers=workers)


def test_skipping_returns_every_bad_file_in_order_and_leaves_its_sample_black(
    tmp_path: Path,
) -> None:
    files = many(tmp_path, 80)
    files[70].write_bytes(b"")
    saved(files[3], gradient(9, 9))
    out = np.full((80, 8, 10, 3), 99, dtype=np.uint8)
    skipped = decode_all(files, out, fit="exact", on_bad="skip")
    assert [bad.file for bad in skipped] == [files[3], files[70]]
    assert [bad.reason.split(",")[0] for bad in skipped] == [
        "expected 10 x 8 pixels like the others (width x height)",
        "it is empty (0 bytes)",
    ]
    assert [isinstance(bad, WrongSize) for bad in skipped] == [True, False]
    assert not out[[3, 70]].any()
    assert out[71, 0, 0].tolist() == [71, 184, 7]


@pytest.mark.parametrize("shape", [(2, 4, 4, 3), (4, 4, 4, 3)])
def test_an_array_with_more_or_fewer_samples_than_files_is_refused(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="a sample per file, 3"):
        decode_all(many(tmp_path, 3), np.empty(shape, dtype=np.uint8))


def test_grey_is_recognised_by_the_header(tmp_path: Path) -> None:
    for mode, grey in [("1", True), ("L", True), ("LA", True), ("RGB", False), ("P", False)]:
        assert is_grey(saved(tmp_path / f"{mode}.png", Image.new(mode, (2, 2)))) is grey


@pytest.mark.parametrize("suffix", ["png", "tif", "bmp"])
def test_one_bit_becomes_black_and_white(tmp_path: Path, suffix: str) -> None:
    bits = Image.fromarray(np.array([[0, 255, 0], [255, 255, 0]], dtype=np.uint8)).convert("1")
    found = decode(saved(tmp_path / f"a.{suffix}", bits), channels=1)
    assert found[..., 0].tolist() == [[0, 255, 0], [255, 255, 0]]


@pytest.mark.parametrize("suffix", ["png", "gif", "bmp"])
def test_a_palette_becomes_its_colours(tmp_path: Path, suffix: str) -> None:
    image = Image.fromarray(colours((RED, BLUE), (WHITE, BLACK)))
    file = saved(tmp_path / f"a.{suffix}", image.convert("P", palette=Image.Palette.ADAPTIVE))
    assert np.array_equal(decode(file, channels=3), np.asarray(image))


@pytest.mark.parametrize("suffix", ["jpg", "tif"])
def test_inks_become_the_colours_they_print(tmp_path: Path, suffix: str) -> None:
    image = Image.new("RGB", (16, 8), RED).convert("CMYK")
    found = decode(saved(tmp_path / f"a.{suffix}", image), channels=3)
    assert found.shape == (8, 16, 3)
    assert np.abs(found.astype(int) - RED).max() <= 3


def test_stretch_moves_each_side_on_its_own(tmp_path: Path) -> None:
    halves = Image.fromarray(colours((RED, RED, BLUE, BLUE)))
    found = decode(saved(tmp_path / "a.png", halves), channels=3, size=(3, 2), fit="stretch")
    assert found.shape == (3, 2, 3)
    assert (found[:, 0, 0] > 200).all()
    assert (found[:, 1, 2] > 200).all()
