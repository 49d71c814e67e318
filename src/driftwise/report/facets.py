"""Faceted figures: panels in a grid under one headline and one legend, with notes below.

Constrained layout places everything. A figure grows by what its legend and its notes take, so that
the panels keep their size.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from driftwise.report import style
from driftwise.report.saved_run import Floats

PNG_DOTS_PER_INCH = 150


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """A figure and the words that belong to it."""

    figure: Figure
    title: str
    caption: str
    """how to read it"""
    alt: str
    """what it shows, for somebody who cannot see it"""
    notes: str = ""
    """printed below the figure, and part of caption and alternative text"""


@dataclass(frozen=True, kw_only=True)
class RenderedFigure:
    """A finished figure, ready to be written or put into a page."""

    kind: str
    """what it shows, fit for a file name"""
    title: str
    caption: str
    alt: str
    png: bytes
    svg: bytes
    pdf: bytes

    @property
    def files(self) -> dict[str, bytes]:
        """Its contents by the ending of a file's name."""
        return {"png": self.png, "svg": self.svg, "pdf": self.pdf}


@dataclass(frozen=True, kw_only=True, eq=False)
class Facets:
    """A figure with a grid of panels."""

    figure: Figure
    panels: tuple[Axes, ...]
    """row by row; the last row may be incomplete"""
    columns: int

    @property
    def bottom(self) -> tuple[Axes, ...]:
        """In each column the lowest panel."""
        return self.panels[-self.columns :]

    @property
    def left(self) -> tuple[Axes, ...]:
        """In each row the first panel."""
        return self.panels[:: self.columns]

    def label(self, x: str = "", y: str | Iterable[str] = "", *, share_x: bool = True) -> None:
        """Label the outer panels alone.

        Args:
            x: below the lowest panel of each column.
            y: beside the first panel of each row, the same or one text per row.
            share_x: whether only the lowest panels show the numbers of their x axis.
        """
        for panel in self.panels:
            below = panel in self.bottom or not share_x
            panel.tick_params(labelleft=panel in self.left, labelbottom=below)
        for panel in self.bottom:
            panel.set_xlabel(x)
        for panel, text in zip(self.left, repeat(y) if isinstance(y, str) else y, strict=False):
            panel.set_ylabel(text)

    def add_legend(self, handles: Sequence[Artist] = (), headline: str = "") -> None:
        """Put a headline and a legend above the panels, in as few lines as fit."""
        width, height = self.figure.get_size_inches()
        headline = wrapped(headline, width - 0.3, 10.5, bold=True)
        for columns in range(max(1, len(handles)), 0, -1):
            legend = self._legend("outside upper left", handles, headline, ncols=columns)
            needed, high = _inches(legend)
            if needed <= width - 0.1 or columns == 1:
                break
            legend.remove()
        self.figure.set_size_inches(max(width, needed + 0.1), height + high)

    def add_legend_beside(self, handles: Sequence[Artist], title: str = "") -> None:
        """Put a legend to the right of the panels, one line per entry."""
        width, height = self.figure.get_size_inches()
        needed, high = _inches(self._legend("outside right upper", handles, title))
        self.figure.set_size_inches(width + needed, max(height, high + 0.2))

    def _legend(self, where: Any, handles: Sequence[Artist], title: str, **options: Any) -> Legend:
        is_headline = "upper left" in where
        return self.figure.legend(
            handles=list(handles),
            loc=where,
            title=title or None,
            title_fontproperties={"size": 10.5, "weight": "bold"} if is_headline else None,
            alignment="left",
            handlelength=2.6,
            columnspacing=1.6,
            **options,
        )

    def add_colour_bar(self, colours: Colormap, low: float, high: float, label: str) -> None:
        """Show to the right what the colours of all panels mean."""
        bar = self.figure.colorbar(
            ScalarMappable(Normalize(low, high), colours),
            ax=list(self.panels),
            label=label,
            aspect=30,
            pad=0.02,
            fraction=0.06,
        )
        bar.ax.tick_params(labelsize=7)
        bar.outline.set_visible(False)


def facets(
    count: int,
    size: tuple[float, float],
    *,
    columns: int = 3,
    projection: str = "rectilinear",
) -> Facets:
    """Make a figure with `count` panels, row by row.

    Args:
        count: how many panels.
        size: width and height in inches that a panel and its labels take.
        columns: how many panels stand side by side at most.
        projection: of all panels.
    """
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(
        figsize=(max(5.2, 0.6 + columns * size[0]), 0.2 + rows * size[1]),
        layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.02, hspace=0.03),
    )
    grid = figure.add_gridspec(rows, columns)
    panels = tuple(
        figure.add_subplot(grid[divmod(index, columns)], projection=projection)
        for index in range(count)
    )
    return Facets(figure=figure, panels=panels, columns=columns)


def line_handle(line: style.Style, label: str) -> Line2D:
    """The legend's entry for a line of this style."""
    return Line2D([], [], **line.line_options(), label=label)


def draw_band(
    panel: Axes, x: Sequence[float], mean: Floats, spread: Floats, colour: str, **line: Any
) -> None:
    """A line, (n,), with a band of `spread` to either side."""
    panel.plot(x, mean, **{"color": colour, **line})
    panel.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.14, linewidth=0)


def _inches(legend: Legend) -> tuple[float, float]:
    box, figure = legend.get_window_extent(), legend.figure
    assert isinstance(figure, Figure)
    return box.width / figure.dpi, box.height / figure.dpi


def wrapped(text: str, inches: float, points: float, *, bold: bool = False) -> str:
    """Break a text into lines of about this width."""
    letters = inches * 72 / (points * (0.66 if bold else 0.57))
    return textwrap.fill(text, max(20, int(letters)))


def short(text: str, limit: int = 16) -> str:
    """A name that does not burst a figure.

    >>> short("a-name-that-goes-on-and-on")
    'a-name-that-goe…'
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def render(kind: str, drawing: Drawing) -> RenderedFigure:
    """A drawing as contents of files, its notes printed below it."""
    lay_out(drawing)
    return RenderedFigure(
        kind=kind,
        title=drawing.title,
        caption=f"{drawing.caption} {drawing.notes}".strip(),
        alt=f"{drawing.alt} {drawing.notes}".strip(),
        png=to_png(drawing.figure),
        svg=to_svg(drawing.figure),
        pdf=to_pdf(drawing.figure),
    )


def lay_out(drawing: Drawing) -> None:
    """Print the notes below the figure, and fix the layout: its files share it."""
    place(drawing)
    drawing.figure.set_layout_engine("none")


def place(drawing: Drawing) -> None:
    """Print the notes below the figure, and place everything, once, in the style of now."""
    figure = drawing.figure
    if drawing.notes:
        width, height = figure.get_size_inches()
        text = wrapped(drawing.notes, width - 0.3, 7.5)
        figure.set_size_inches(width, height + 0.1 + 0.15 * len(text.splitlines()))
        below = figure.supxlabel(text, x=0.1 / width, ha="left", fontsize=7.5, color=style.MUTED)
        below.set_linespacing(1.35)
    with _missing_glyphs_ignored():
        figure.draw_without_rendering()


def to_png(figure: Figure) -> bytes:
    """The figure as PNG, without a date or a version in it."""
    return _save(figure, "png", {"Software": None})


def to_svg(figure: Figure) -> bytes:
    """The figure as SVG: equal figures give equal bytes, and nothing points outside."""
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    text = _save(figure, "svg", nothing).decode()
    return re.sub(r"<!DOCTYPE[^>]*>\s*", "", text, count=1).encode()


def to_pdf(figure: Figure) -> bytes:
    """The figure as PDF, without a date or a version in it, its text as text."""
    return _save(figure, "pdf", dict.fromkeys(("Creator", "Producer", "CreationDate")))


def _save(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    file = io.BytesIO()
    with _missing_glyphs_ignored():
        figure.savefig(file, format=kind, dpi=PNG_DOTS_PER_INCH, metadata=metadata)
    return file.getvalue()


@contextmanager
def _missing_glyphs_ignored() -> Iterator[None]:
    """A class name in a script that the font lacks shows boxes; that needs no warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
