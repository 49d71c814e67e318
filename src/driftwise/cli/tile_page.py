"""Rows of image tiles under headings, as one figure.

Everything is placed in whole pixels, so that no image is resampled and nothing depends on a
layout pass. Ink is black and grey only: the colours on the page are the images' own.
"""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

_DOTS_PER_INCH = 100
_GAP, _GROUP_GAP, _MARGIN = 4, 18, 20
_LINE = 20
"""pixels from one line of text to the next"""
_LABEL_WIDTH = 180
"""the most that a row's name gets"""
_HAIRLINE = 200

_PLAIN = FontProperties(family="DejaVu Sans", size=8.5)
_BOLD = FontProperties(family="DejaVu Sans", size=8.5, weight="bold")
_TITLE = FontProperties(family="DejaVu Sans", size=11, weight="bold")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Columns under one heading."""

    heading: str
    captions: tuple[str, ...]
    """one per column, below the heading"""
    columns: tuple[np.ndarray, ...]
    """uint8 (rows, height, width, channels) each: a tile per row of the page"""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Named rows under one or more groups of columns; all tiles of one size."""

    title: str
    captions_mean: str = ""
    """what the captions are, written at the left of their line"""
    row_names: tuple[str, ...]
    groups: tuple[Group, ...]


def draw(blocks: Sequence[Block]) -> Figure:
    """All blocks one below the other."""
    pen = _Pen()
    names = [name for block in blocks for name in (block.captions_mean, *block.row_names)]
    label_width = max(pen.width(pen.fit(name, _LABEL_WIDTH, _PLAIN), _PLAIN) for name in names)
    left = _MARGIN + label_width + _GAP * 3
    images: list[tuple[int, int, np.ndarray]] = []
    top, right = _MARGIN, 0
    for block in blocks:
        if block.title:
            pen.write(_MARGIN, top, block.title, _TITLE, width=None)
            top += _LINE + _GAP
        top = _draw_block(block, pen, images, left=left, top=top)
        right = max(right, max(x + tile.shape[1] for x, _, tile in images))
    canvas = np.full((top, right + _MARGIN, 3), 255, dtype=np.uint8)
    for x, y, tile in images:
        height, width = tile.shape[:2]
        # A hairline, so that a white image has an edge on white paper.
        canvas[y - 1 : y + height + 1, x - 1 : x + width + 1] = _HAIRLINE
        canvas[y : y + height, x : x + width] = tile
    return pen.figure_over(canvas)


def _draw_block(
    block: Block,
    pen: _Pen,
    images: list[tuple[int, int, np.ndarray]],
    *,
    left: int,
    top: int,
) -> int:
    """Note where everything in a block goes; the first free pixel row below it."""
    height: int = block.groups[0].columns[0].shape[1]
    width: int = block.groups[0].columns[0].shape[2]
    has_captions = any(caption for group in block.groups for caption in group.captions)
    first_row = top + _LINE * (2 if has_captions else 1)
    row_height = max(height, _LINE)  # names must not run into each other beside flat tiles
    pitch = row_height + _GAP
    x = left
    for group in block.groups:
        group_width = len(group.columns) * (width + _GAP) - _GAP
        pen.write(x, top, group.heading, _BOLD, width=group_width + _GROUP_GAP - _GAP)
        for caption, column in zip(group.captions, group.columns, strict=True):
            centred = x + (width - pen.width(caption, _PLAIN)) // 2
            pen.write(max(x, centred), top + _LINE, caption, _PLAIN, width=width)
            for index, tile in enumerate(column):
                images.append((x, first_row + index * pitch + (row_height - height) // 2, tile))
            x += width + _GAP
        x += _GROUP_GAP - _GAP
    pen.write(_MARGIN, top + _LINE, block.captions_mean, _PLAIN, width=left - _MARGIN)
    for index, name in enumerate(block.row_names):
        middle = first_row + index * pitch + row_height // 2
        pen.write(_MARGIN, middle - _LINE // 2, name, _PLAIN, width=_LABEL_WIDTH)
    return first_row + len(block.row_names) * pitch + _MARGIN


class _Pen:
    """Remembers what to write where, in pixels from the upper left corner."""

    def __init__(self) -> None:
        self._texts: list[tuple[int, int, str, FontProperties]] = []

    def write(self, x: int, y: int, text: str, font: FontProperties, *, width: int | None) -> None:
        """Put a text in the line that begins at y, cut short where it is wider than `width`."""
        fitting = _drawable(text) if width is None else self.fit(text, width, font)
        if fitting:
            self._texts.append((x, y, fitting, font))

    def fit(self, text: str, width: int, font: FontProperties) -> str:
        """The text, or as much of its beginning as leaves room for dots, or nothing."""
        text = " ".join(_drawable(text).split())
        if self.width(text, font) <= width:
            return text

        def shortened(end: int) -> str:
            return f"{text[:end].rstrip()}…"

        # Measuring is slow and a longer text is wider: halve instead of going through all.
        num_fitting = bisect.bisect_right(
            range(len(text)), width, key=lambda end: self.width(shortened(end), font)
        )
        return shortened(num_fitting - 1) if num_fitting else ""

    def width(self, text: str, font: FontProperties) -> int:
        """Pixels that a text takes."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")
            points, _, _ = text_to_path.get_text_width_height_descent(_drawable(text), font, False)
        return math.ceil(points * _DOTS_PER_INCH / 72)

    def figure_over(self, canvas: np.ndarray) -> Figure:
        """A figure of the canvas's size with everything written on it."""
        height, width = canvas.shape[:2]
        right = max(
            [width, *(x + self.width(text, font) + _MARGIN for x, _, text, font in self._texts)]
        )
        canvas = np.pad(canvas, ((0, 0), (0, right - width), (0, 0)), constant_values=255)
        figure = Figure(
            figsize=(right / _DOTS_PER_INCH, height / _DOTS_PER_INCH), dpi=_DOTS_PER_INCH
        )
        figure.figimage(canvas)
        for x, y, text, font in self._texts:
            figure.text(
                x / right,
                1 - (y + _LINE / 2) / height,
                text,
                fontproperties=font,
                va="center_baseline",
                color="black" if font is not _PLAIN else "0.3",
                parse_math=False,  # a class may be named "$"
            )
        return figure


def _drawable(text: str) -> str:
    """The text with a mark for each byte that stands for no letter, as in a file's odd name."""
    return text.encode(errors="replace").decode()
