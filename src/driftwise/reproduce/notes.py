"""What figures of a sweep print beside its numbers: scale, progress, gaps and marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes

from driftwise.report import style
from driftwise.report.cells import MARK, mark, notes_below
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.places import GridPoint, buffer_words, drift_words


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
    words = [f"Scale {sweep.scale}: {note}." if note else f"Scale {sweep.scale}."]
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
