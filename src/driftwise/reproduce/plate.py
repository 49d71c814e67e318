"""A plate: panels under one headline and legend, with the scale of the sweep printed below."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from driftwise.report import style
from driftwise.report.canvas import NOTE_POINTS, Margins, panels, text_inches
from driftwise.report.cells import MARK, mark, notes_below
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.places import Spot, drift_words

_HEADLINE_POINTS = 10.5
_EDGE = 0.2
"""Inches that stay white at the left and right."""
_HANDLE_INCHES, _MAX_LEGEND_INCHES = 0.65, 6.0
_HEADLINE_INCHES, _LEGEND_INCHES, _NOTE_INCHES = 0.42, 0.24, 0.15


@dataclass(frozen=True, kw_only=True, eq=False)
class Plate:
    """A figure with a grid of panels."""

    figure: Figure
    panels: tuple[Axes, ...]
    """row by row"""
    columns: int

    @property
    def bottom(self) -> tuple[Axes, ...]:
        """In each column the lowest panel."""
        return self.panels[-self.columns :]

    @property
    def left(self) -> tuple[Axes, ...]:
        """In each row the first panel."""
        return self.panels[:: self.columns]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What surrounds the panels of a plate."""

    headline: str
    notes: str
    """printed below, by `scale_words`"""
    legend: tuple[Artist, ...] = ()


def plate(
    count: int,
    width: float,
    height: float,
    *,
    columns: int,
    frame: Frame,
    margins: Margins,
    projection: str = "rectilinear",
) -> Plate:
    """A plate of `count` panels of at least a size in inches, around them `margins`, then `frame`.

    Few panels are drawn wider, so that the words above and below them fit.
    """
    across = min(count, columns)
    inner = margins.left + across * width + (across - 1) * margins.column_gap + margins.right
    labels = [str(handle.get_label()) for handle in frame.legend]
    entries = [_HANDLE_INCHES + text_inches([label], 8.5) for label in labels]
    headline = text_inches([frame.headline], _HEADLINE_POINTS)
    total = max(inner, 2 * _EDGE + max(headline, min(sum(entries), _MAX_LEGEND_INCHES)), 4.5)
    room = total - 2 * _EDGE
    fits = sum(entries) <= room
    legend_columns = len(labels) if fits else max(1, int(room / max(entries)))
    legend_inches = -(-len(labels) // max(1, legend_columns)) * _LEGEND_INCHES
    lines = _wrapped(frame.notes, room)
    figure, axes = panels(
        count,
        width + (total - inner) / across,
        height,
        replace(
            margins,
            bottom=margins.bottom + 0.15 + len(lines) * _NOTE_INCHES,
            top=margins.top + _HEADLINE_INCHES + legend_inches,
        ),
        columns,
        projection,
    )
    up = figure.get_size_inches()[1]
    figure.text(
        _EDGE / total,
        1 - 0.12 / up,
        frame.headline,
        va="top",
        fontsize=_HEADLINE_POINTS,
        fontweight="bold",
    )
    if frame.legend:
        figure.legend(
            handles=list(frame.legend),
            loc="upper left",
            bbox_to_anchor=((_EDGE + 0.03) / total, 1 - (_HEADLINE_INCHES - 0.07) / up),
            ncols=legend_columns,
            handlelength=2.6,
            columnspacing=1.6,
            borderaxespad=0,
            borderpad=0,
        )
    figure.text(
        _EDGE / total,
        0.12 / up,
        "\n".join(lines),
        va="bottom",
        fontsize=NOTE_POINTS,
        color=style.MUTED,
        linespacing=1.35,
    )
    return Plate(figure=figure, panels=tuple(axes), columns=across)


def _wrapped(text: str, inches: float) -> list[str]:
    return textwrap.wrap(text, max(20, int(inches / text_inches(["x"], NOTE_POINTS) * 1.08)))


def scale_words(sweep: Sweep, spots: Iterable[Spot]) -> str:
    """The scale, what it makes of the buffers, how far the runs have come, and what marks mean."""
    shown = list(spots)
    real = {
        (spot.buffer_size, spot.cell.first.buffer_size) for spot in shown if spot.cell is not None
    }
    smaller = sorted((a, b) for a, b in real if a is not None and b is not None and a != b)
    note = sweep.scale_note.rstrip(".")
    words = [f"Scale {sweep.scale}: {note}." if note else f"Scale {sweep.scale}."]
    if smaller:
        words.append(
            "Buffers: " + ", ".join(f"{rows:,} rows for {asked:,}" for asked, rows in smaller) + "."
        )
    words.append(f"{sweep.num_done:,} of {len(sweep.entries):,} runs of the sweep are done.")
    named = [(_name(spot, shown), spot.cell) for spot in shown if spot.cell is not None]
    if note := notes_below(named):
        words.append(f"{note}.")
    return " ".join(words)


def _name(spot: Spot, among: Sequence[Spot]) -> str:
    """What tells a place from the others of a figure."""
    words = [spot.variant(), spot.adaptation]
    if len({each.buffer_size for each in among}) > 1:
        words.append(buffer_words(spot.buffer_size))
    if len({each.num_drifts for each in among}) > 1:
        words.append(drift_words(spot.num_drifts))
    return " ".join(words)


def buffer_words(buffer_size: int | None) -> str:
    """The name of a row of panels.

    >>> buffer_words(5000)
    'buffer 5,000'
    """
    return "no buffer" if buffer_size is None else f"buffer {buffer_size:,}"


def line_handle(look: style.Look, label: str) -> Line2D:
    """The legend's entry for an adaptation."""
    options: dict[str, Any] = {
        "color": look.colour,
        "linestyle": look.line,
        "linewidth": 1.6,
        "marker": look.marker,
        "markersize": 5,
        "markerfacecolor": "white" if look.hollow else look.colour,
    }
    return Line2D([], [], **options, label=label)


def drift_handle() -> Line2D:
    """The legend's entry for the lines that mark drift."""
    return Line2D([], [], color=style.DRIFT, linewidth=1.2, linestyle=(0, (4, 2)), label="drift")


def line_handles(adaptations: Iterable[str], looks: style.Looks) -> list[Line2D]:
    """The legend's entries for these adaptations."""
    return [line_handle(looks[name], name) for name in adaptations]


def remark(panel: Axes, lines: Sequence[str]) -> None:
    """Small words in the lower left corner of a panel: what is missing there."""
    if lines:
        panel.text(
            0.03,
            0.03,
            "\n".join(lines),
            transform=panel.transAxes,
            fontsize=7,
            color=style.MUTED,
            va="bottom",
            zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.9},
        )


def gaps(spots: Sequence[Spot]) -> list[str]:
    """The adaptations that a panel lacks, and those that had nothing to act on, a line for each."""
    lines = []
    if missing := [spot.adaptation for spot in spots if spot.cell is None]:
        few = f"not yet: {', '.join(missing)}"
        lines.append("not run yet" if len(missing) == len(spots) else few)
    if idle := [spot.adaptation for spot in spots if mark(spot.cell)]:
        lines.append(f"not adapted{MARK}: {', '.join(idle)}")
    return lines


def mark_point(panel: Axes, spot: Spot, x: float, y: float) -> None:
    """The mark beside a point, if the adaptation had nothing to act on there."""
    if mark(spot.cell):
        panel.annotate(MARK, (x, y), (3, 1), textcoords="offset points", fontsize=9, zorder=5)
