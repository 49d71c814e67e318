"""Rows of image tiles under headings; a contact sheet of a data set made of them.

Everything is placed in whole pixels, so that no image is resampled. Ink is black and grey only: the
colours on the sheet are the images' own.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from driftwise.errors import UserError
from driftwise.files import replacing, writing
from driftwise.streams.transforms import SEVERITIES, TRANSFORMS, apply
from driftwise.types import Dataset

TILE = 72
"""Pixels that the longer side of an image takes, roughly: small ones grow by a whole factor."""
PER_BLOCK = 3
"""Transforms side by side; six of them at five severities would make a sheet too wide to read."""
MAX_PER_DOMAIN = 4
"""Images of one class in one domain."""
MAX_ACROSS = 16
"""Images across all domains; of more domains than that some are taken at even steps."""

_BLANK = 235
"""grey where a domain has no image of a class"""
_HAIRLINE = 200
_GAP, _GROUP_GAP, _MARGIN = 4, 18, 20
_LINE = 20
"""pixels from one line of text to the next"""
_LABEL_WIDTH = 180
"""the largest width of a row's name"""


def contact_sheet(dataset: Dataset, *, classes: int = 10, seed: int = 0, out: Path) -> Path:
    """Draw a PNG of up to that many classes under every transform and severity, and by domain.

    Of more classes some are taken at even steps. `seed` draws the noise and the permutation.
    """
    check_sheet(classes, out)
    chosen = spread(np.unique(dataset.labels), classes)
    names = [dataset.class_names[label] for label in chosen]
    sheet = draw(
        [*_domain_blocks(dataset, chosen, names), *_transform_blocks(dataset, chosen, names, seed)]
    )
    png = io.BytesIO()
    sheet.save(png, format="PNG")
    return saved_sheet(png.getvalue(), out)


def check_sheet(classes: int, out: Path) -> None:
    """UserError where no sheet can be drawn or written."""
    if out.suffix.lower() != ".png":
        raise UserError(f"a contact sheet is a .png file; got {out}")
    if classes < 1:
        raise UserError(f"a contact sheet needs at least one class; got {classes}")


def saved_sheet(png: bytes, out: Path) -> Path:
    """Write a sheet as a whole or not at all."""
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file:
        file.write(png)
    return out


def spread(values: np.ndarray, count: int) -> np.ndarray:
    """Up to `count` of the values at even steps, the first and the last among them."""
    if len(values) <= count:
        return values
    picked: np.ndarray = values[np.linspace(0, len(values) - 1, count).round().astype(int)]
    return picked


def _transform_blocks(
    dataset: Dataset, chosen: np.ndarray, names: Sequence[str], seed: int
) -> Iterator[Block]:
    """The first image of each class as it is and under every transform."""
    samples = [int(np.argmax(dataset.labels == label)) for label in chosen]
    originals = torch.from_numpy(dataset.images[samples])
    original = Group(heading="original", columns=(tiles_of(originals.numpy()),))
    transforms = [name for name in TRANSFORMS if name != "identity"]
    for start in range(0, len(transforms), PER_BLOCK):
        groups = [
            Group(
                heading=name,
                captions=tuple(map(str, SEVERITIES)),
                columns=tuple(
                    tiles_of(apply(originals, name, severity, seed=seed).numpy())
                    for severity in SEVERITIES
                ),
            )
            for name in transforms[start : start + PER_BLOCK]
        ]
        yield Block(
            title="Transforms" if start == 0 else "",
            captions_mean="severity",
            row_names=names,
            groups=(original, *groups),
        )


def _domain_blocks(dataset: Dataset, chosen: np.ndarray, names: Sequence[str]) -> Iterator[Block]:
    """Some images of each class in each domain; nothing for a data set without domains."""
    if dataset.domains is None:
        return
    shown = spread(np.arange(len(dataset.domain_names)), MAX_ACROSS)
    count = min(MAX_PER_DOMAIN, MAX_ACROSS // len(shown))
    blank = np.full_like(tiles_of(dataset.images[:1])[0], _BLANK)
    groups = []
    for domain in shown:
        columns = [[blank] * len(chosen) for _ in range(count)]
        for row, label in enumerate(chosen):
            mine = np.flatnonzero((dataset.labels == label) & (dataset.domains == domain))
            for column, sample in zip(columns, spread(mine, count), strict=False):
                column[row] = tiles_of(dataset.images[sample][None])[0]
        groups.append(
            Group(heading=dataset.domain_names[domain], columns=tuple(map(np.stack, columns)))
        )
    yield Block(title="Domains", row_names=names, groups=groups)


def tiles_of(images: np.ndarray, longer_side: int = TILE) -> np.ndarray:
    """Images at about the size they are shown in, always in colour."""
    height, width = images.shape[1:3]
    side = max(height, width)
    coloured = np.broadcast_to(images, (*images.shape[:3], 3))
    if side <= longer_side:
        factor = max(1, round(longer_side / side))
        # Pixels are repeated, not smoothed: what a transform does to them must stay visible.
        return coloured.repeat(factor, axis=1).repeat(factor, axis=2)
    size = (max(1, round(width * longer_side / side)), max(1, round(height * longer_side / side)))
    shrunk = [Image.fromarray(image).resize(size, Image.Resampling.BOX) for image in coloured]
    return np.stack([np.asarray(image) for image in shrunk])


# Drawing


@dataclass(frozen=True, kw_only=True)
class Group:
    """Columns under one heading."""

    heading: str
    captions: Sequence[str] = ()
    """one per column, below the heading; empty: none"""
    columns: Sequence[np.ndarray]
    """uint8 (rows, height, width, 3) each: a tile per row of the sheet"""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Named rows under one or more groups of columns; all tiles of one size."""

    title: str
    captions_mean: str = ""
    """what the captions are, written at the left of their line"""
    row_names: Sequence[str]
    groups: Sequence[Group]


@dataclass(frozen=True)
class Text:
    """A line of text on the sheet."""

    x: int
    y: int
    """the top of its line of `_LINE` pixels"""
    text: str
    bold: bool = False
    size: int = 12


def draw(blocks: Sequence[Block]) -> Image.Image:
    """All blocks one below the other."""
    texts, tiles = place(blocks)
    width = max(
        *(x + tile.shape[1] for x, _, tile in tiles),
        *(text.x + _width(text.text, text.bold, text.size) for text in texts),
    )
    height = max(y + max(tile.shape[0], _LINE) for _, y, tile in tiles)
    canvas = np.full((height + _MARGIN, width + _MARGIN, 3), 255, dtype=np.uint8)
    for x, y, tile in tiles:
        bottom, right = y + tile.shape[0], x + tile.shape[1]
        # A hairline, so that a white image has an edge on white paper.
        canvas[y - 1 : bottom + 1, x - 1 : right + 1] = _HAIRLINE
        canvas[y:bottom, x:right] = tile
    sheet = Image.fromarray(canvas)
    pen = ImageDraw.Draw(sheet)
    for text in texts:
        ink = (0, 0, 0) if text.bold else (77, 77, 77)
        font = _font(text.bold, text.size)
        pen.text((text.x, text.y + _LINE // 2), text.text, font=font, fill=ink, anchor="lm")
    return sheet


def place(blocks: Sequence[Block]) -> tuple[list[Text], list[tuple[int, int, np.ndarray]]]:
    """Where every text and every tile goes, in pixels from the upper left corner."""
    names = [name for block in blocks for name in (block.captions_mean, *block.row_names)]
    left = _MARGIN + max(_width(_fit(name, _LABEL_WIDTH)) for name in names) + 3 * _GAP
    texts: list[Text] = []
    tiles: list[tuple[int, int, np.ndarray]] = []
    top = _MARGIN
    for block in blocks:
        if block.title:
            texts.append(Text(_MARGIN, top, block.title, bold=True, size=15))
            top += _LINE + _GAP
        height, width = block.groups[0].columns[0].shape[1:3]
        first_row = top + _LINE * (2 if any(group.captions for group in block.groups) else 1)
        row_height = max(height, _LINE)  # names must not overlap beside flat tiles
        pitch = row_height + _GAP
        x = left
        for group in block.groups:
            group_width = len(group.columns) * (width + _GAP) + _GROUP_GAP - 2 * _GAP
            texts.append(Text(x, top, _fit(group.heading, group_width, bold=True), bold=True))
            for number, column in enumerate(group.columns):
                if group.captions:
                    caption = _fit(group.captions[number], width)
                    centred = x + (width - _width(caption)) // 2
                    texts.append(Text(centred, top + _LINE, caption))
                for row, tile in enumerate(column):
                    tiles.append((x, first_row + row * pitch + (row_height - height) // 2, tile))
                x += width + _GAP
            x += _GROUP_GAP - _GAP
        texts.append(Text(_MARGIN, top + _LINE, _fit(block.captions_mean, left - _MARGIN)))
        for row, name in enumerate(block.row_names):
            y = first_row + row * pitch + (row_height - _LINE) // 2
            texts.append(Text(_MARGIN, y, _fit(name, _LABEL_WIDTH)))
        top = first_row + len(block.row_names) * pitch + _MARGIN
    return [text for text in texts if text.text], tiles


@cache
def _font(bold: bool, size: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with matplotlib and has most scripts' letters."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), size)


def _width(text: str, bold: bool = False, size: int = 12) -> int:
    return int(np.ceil(_font(bold, size).getlength(text)))


def _fit(text: str, width: int, *, bold: bool = False) -> str:
    """The text in one line, or as much of its beginning as leaves room for dots, or nothing."""
    text = " ".join(text.encode(errors="replace").decode().split())  # "?" for an odd byte
    if _width(text, bold) <= width:
        return text
    shortened = (f"{text[:end].rstrip()}…" for end in range(min(len(text), width) - 1, -1, -1))
    return next((short for short in shortened if _width(short, bold) <= width), "")
