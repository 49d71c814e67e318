"""Blank figures with everything placed in inches, and turning them into files.

Fixed places cost no layout pass (which would draw each figure twice) and make equal files from
equal numbers.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

PNG_DOTS_PER_INCH = 150
NOTE_POINTS = 7.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """A figure and the words that belong to it."""

    figure: Figure
    title: str
    caption: str
    """how to read it"""
    alt: str
    """what it shows, for somebody who cannot see it"""
    note: str = ""
    """printed below the figure, and part of caption and alternative text"""


@dataclass(frozen=True, kw_only=True)
class Margins:
    """Inches around and between panels."""

    left: float = 0.7
    right: float = 0.2
    bottom: float = 0.5
    top: float = 0.4
    column_gap: float = 0.3
    row_gap: float = 0.75


def place(
    figure: Figure,
    left: float,
    bottom: float,
    width: float,
    height: float,
    projection: str = "rectilinear",
) -> Axes:
    """Axes at a place given in inches from the lower left corner."""
    across, up = figure.get_size_inches()
    rectangle = (left / across, bottom / up, width / across, height / up)
    return figure.add_axes(rectangle, projection=projection)


def panels(
    count: int,
    width: float,
    height: float,
    margins: Margins,
    columns: int = 3,
    projection: str = "rectilinear",
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels of a given size in inches, row by row."""
    across = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(
        figsize=(
            margins.left + across * width + (across - 1) * margins.column_gap + margins.right,
            margins.bottom + rows * height + (rows - 1) * margins.row_gap + margins.top,
        )
    )
    axes = []
    for index in range(count):
        row, column = divmod(index, columns)
        left = margins.left + column * (width + margins.column_gap)
        bottom = margins.bottom + (rows - 1 - row) * (height + margins.row_gap)
        axes.append(place(figure, left, bottom, width, height, projection))
    return figure, axes


def text_inches(texts: Sequence[str], size: float = 8.0) -> float:
    """About how wide the longest of these texts is, set in `size` points."""
    return max(map(len, texts), default=0) * size * 0.62 / 72


def short(text: str, limit: int = 16) -> str:
    """A name that does not burst a figure.

    >>> short("a-name-that-goes-on-and-on")
    'a-name-that-goe…'
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def print_below(figure: Figure, note: str) -> float:
    """Print a note under everything else; the inches by which the figure grows downwards."""
    across, up = figure.get_size_inches()
    letters = int((across - 0.4) / text_inches(["x"], NOTE_POINTS) * 1.08)
    lines = textwrap.wrap(note, max(20, letters))
    figure.text(
        0.2 / across, -0.04 / up, "\n".join(lines), va="top", fontsize=NOTE_POINTS, linespacing=1.35
    )
    return 0.15 + 0.15 * len(lines)


def to_png(figure: Figure, *, below: float = 0.0) -> bytes:
    """The figure as PNG, without a date or a version in it, and `below` inches under it."""
    return _save(figure, "png", {"Software": None}, below)


def to_svg(figure: Figure, *, below: float = 0.0) -> bytes:
    """The figure as SVG: equal figures give equal bytes, and nothing points outside."""
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    text = _save(figure, "svg", nothing, below).decode()
    return re.sub(r"<!DOCTYPE[^>]*>\s*", "", text, count=1).encode()


def _save(figure: Figure, kind: str, metadata: dict[str, None], below: float) -> bytes:
    file = io.BytesIO()
    across, up = figure.get_size_inches()
    box = Bbox.from_bounds(0, -below, across, up + below) if below else None
    with warnings.catch_warnings():
        # A class name in a script that the font lacks shows boxes; that is no reason to complain.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(file, format=kind, dpi=PNG_DOTS_PER_INCH, metadata=metadata, bbox_inches=box)
    return file.getvalue()
