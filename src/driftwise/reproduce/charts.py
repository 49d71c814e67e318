"""The one way in which figures of a sweep are drawn, and the notes that they carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from driftwise.report import style
from driftwise.report.cells import MARK, mark, notes_below
from driftwise.report.facets import Drawing, Facets, facets
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.places import GridPoint, buffer_words, drift_words

Key = TypeVar("Key")


def chart(
    what: str,
    where: str,
    keys: Sequence[Key],
    size: tuple[float, float],
    draw: Callable[[Axes, Key], str],
    *,
    columns: int = 3,
    projection: str = "rectilinear",
    titles: Sequence[str] = (),
    x: str | None = None,
    y: str | Sequence[str] = "",
    share_x: bool = True,
    finish: Callable[[Facets], None] = lambda _: None,
    headline: str = "",
    legend: Sequence[Artist] = (),
    caption: str,
    alt: str,
    notes: str,
) -> Drawing:
    """A figure with a panel per key.

    Args:
        what: the figure shows.
        where: the setting that it shows it for.
        keys: one per panel, row by row.
        size: width and height of a panel in inches.
        draw: draws a panel; returns what it shows, in words.
        columns: panels side by side at most.
        projection: of all panels.
        titles: of the first row of panels.
        x: label of the x axes; None: `draw` labels all axes.
        y: label of the y axes, the same or one per row.
        share_x: whether only the lowest panels show the numbers of their x axis.
        finish: called with the panels before the legend is added.
        headline: above the legend; empty: `what`.
        legend: its entries.
        caption: how to read it.
        alt: the start of the alternative text; the words of all panels follow.
        notes: below the figure.
    """
    grid = facets(len(keys), size, columns=columns, projection=projection)
    words = [draw(panel, key) for panel, key in zip(grid.panels, keys, strict=True)]
    for panel, title in zip(grid.panels, titles, strict=False):
        panel.set_title(title)
    if x is not None:
        grid.label(x, y, share_x=share_x)
    finish(grid)
    grid.add_legend(legend, f"{headline or what}: {where}")
    return Drawing(
        figure=grid.figure,
        title=f"{what}, {where}",
        caption=caption,
        alt=f"{alt} {'; '.join(filter(None, words))}.",
        notes=notes,
    )


def scale_words(sweep: Sweep, points: Iterable[GridPoint]) -> str:
    """The scale, its buffers, how many runs are done, and what marks mean."""
    shown = list(points)
    real = {
        (point.buffer_size, point.cell.first.buffer_size)
        for point in shown
        if point.cell is not None
    }
    smaller = sorted((a, b) for a, b in real if a is not None and b is not None and a != b)
    note = sweep.scale_note.rstrip(".")
    scale = "Settings" if sweep.scale == "own" else f"Scale {sweep.scale}"
    words = [f"{scale}: {note}." if note else f"{scale}."]
    if smaller:
        sizes = (f"{real:,} samples for {nominal:,}" for nominal, real in smaller)
        words.append(f"Buffers: {', '.join(sizes)}.")
    words.append(f"{sweep.num_done:,} of {len(sweep.entries):,} runs of the sweep are done.")
    named = [(_name(point, shown), point.cell) for point in shown if point.cell is not None]
    if note := notes_below(named):
        words.append(f"{note}.")
    return " ".join(words)


def _name(point: GridPoint, among: Sequence[GridPoint]) -> str:
    """What distinguishes a place from the others of a figure."""
    words = [point.variant(), point.adaptation]
    if len({each.buffer_size for each in among}) > 1:
        words.append(buffer_words(point.buffer_size))
    if len({each.num_drifts for each in among}) > 1:
        words.append(drift_words(point.num_drifts))
    return " ".join(words)


def remark(panel: Axes, lines: Sequence[str]) -> None:
    """Small words in the lower left corner of a panel: what is missing there."""
    if lines:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.9}
        text = panel.text(0.03, 0.03, "\n".join(lines), transform=panel.transAxes, bbox=box)
        text.set(fontsize=7, color=style.MUTED, va="bottom", zorder=5)


def gaps(points: Sequence[GridPoint]) -> list[str]:
    """The adaptations that a panel lacks, and those that had nothing to act on, a line for each."""
    lines = []
    if missing := [point.adaptation for point in points if point.cell is None]:
        few = f"not yet: {', '.join(missing)}"
        lines.append("not run yet" if len(missing) == len(points) else few)
    if idle := [point.adaptation for point in points if mark(point.cell)]:
        lines.append(f"not adapted{MARK}: {', '.join(idle)}")
    return lines


def mark_point(panel: Axes, point: GridPoint, x: float, y: float) -> None:
    """The mark beside a point, if the adaptation had nothing to act on there."""
    if mark(point.cell):
        panel.annotate(MARK, (x, y), (3, 1), textcoords="offset points", fontsize=9, zorder=5)
