"""What each adaptation gains over doing nothing, beside what was published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from driftwise.report import style
from driftwise.report.cells import Cell, Stat, mark, stat_of
from driftwise.report.facets import Drawing, facets, short
from driftwise.report.sweeps import Place, Sweep
from driftwise.reproduce.notes import scale_words
from driftwise.reproduce.places import FLOOR, GridPoint, Group, buffer_words, distinct, drift_words

Published = Callable[[Place], float | None]
"""The published final average accuracy of a place; None: there is none."""

Pair = tuple[Stat | None, float | None]
"""our gain, and the published one"""

_FILLS = ("solid", "hatched", "open")
_DIAMOND: dict[str, Any] = {
    "linestyle": "",
    "marker": "D",
    "markersize": 5,
    "markerfacecolor": "white",
    "markeredgecolor": style.INK,
    "markeredgewidth": 1.1,
    "zorder": 4,
}


def gain_bars(
    groups: Sequence[Group], sweep: Sweep, styles: style.Styles, published: Published | None = None
) -> Drawing | None:
    """Accuracy of each adaptation minus that of `vanilla`, by method: drift counts x buffers.

    `groups` are of one benchmark, with the same methods. None if nothing can be compared.
    """
    adaptations = [
        name for name in distinct(a for g in groups for a in g.adaptations) if name != FLOOR
    ]
    buffers = distinct(buffer for group in groups for buffer in group.buffers)
    gains = {
        (group, buffer): {
            variant: {
                name: _compare(group, variant, buffer, name, published) for name in adaptations
            }
            for variant in group.variants
        }
        for buffer in buffers
        for group in groups
    }
    found = [pair for rows in gains.values() for row in rows.values() for pair in row.values()]
    if all(ours is None for ours, _ in found):
        return None
    bars = {
        name: style.filled(styles[name].colour, _FILLS[index % len(_FILLS)])
        for index, name in enumerate(adaptations)
    }
    num_methods = max(len(group.variants) for group in groups)
    size = max(2.0, max(0.95, 0.3 * len(bars)) * num_methods), 2.4 + 0.13 * len(bars)
    grid = facets(len(gains), size, columns=len(groups))
    words = []
    for panel, ((group, buffer), rows) in zip(grid.panels, gains.items(), strict=True):
        where = f"{drift_words(group.num_drifts)}, {buffer_words(buffer)}"
        _draw(panel, list(rows.values()), bars)
        ticks = [_tick(name, row, group.at(name, buffer)) for name, row in rows.items()]
        panel.set_xticks(range(len(rows)), ticks, fontsize=7, linespacing=1.25)
        panel.set(xlim=(-0.55, num_methods - 0.45), title=where)
        panel.tick_params(axis="x", length=0)
        panel.grid(axis="y")
        words += [f"{variant}, {where}: {_words(row)}" for variant, row in rows.items()]
    ends = [end for panel in grid.panels for end in panel.get_ylim()]
    for panel in grid.panels:
        panel.set_ylim(min(ends), max(ends))
    grid.label("", "gain in final accuracy\n(percentage points)", share_x=False)
    legend: list[Artist] = [Patch(**face, label=name) for name, face in bars.items()]
    diamonds = ""
    if any(theirs is not None for _, theirs in found):
        legend.append(Line2D([], [], label="published, at the paper's scale", **_DIAMOND))
        diamonds = " Diamonds: the published means, at the paper's scale."
    grid.add_legend(legend, f"Gain over vanilla: {groups[0].benchmark}")
    return Drawing(
        figure=grid.figure,
        title=f"Gain over vanilla, {groups[0].benchmark}",
        caption="Final average accuracy of each adaptation minus that of vanilla under the same "
        "drift, seed by seed; bars: means, whiskers: one sample standard deviation of the "
        f"differences, a dash: not run yet.{diamonds}",
        alt="Bar charts of the gain over vanilla in percentage points; " + "; ".join(words) + ".",
        notes=scale_words(sweep, [point for group in groups for point in group.points]),
    )


def _compare(
    group: Group, variant: str, buffer: int | None, adaptation: str, published: Published | None
) -> Pair:
    points = {point.adaptation: point for point in group.at(variant, buffer)}
    ours, floor = points.get(adaptation), points.get(FLOOR)
    if ours is None or floor is None:
        return None, None
    ends = [None if published is None else published(point.place) for point in (ours, floor)]
    theirs = None if ends[0] is None or ends[1] is None else ends[0] - ends[1]
    return paired_gain(ours.cell, floor.cell), theirs


def paired_gain(cell: Cell | None, floor: Cell | None) -> Stat | None:
    """The difference in final average accuracy over the seeds that both have."""
    if cell is None or floor is None:
        return None
    before = {run.seed: run.faa for run in floor.runs}
    differences = []
    for run in cell.runs:
        base = before.get(run.seed)
        if run.faa is not None and base is not None:
            differences.append(run.faa - base)
    return stat_of(differences)


def _draw(
    panel: Axes, rows: Sequence[Mapping[str, Pair]], bars: Mapping[str, dict[str, Any]]
) -> None:
    """A group of bars per method; each group is 0.74 wide, of the 1 that a method has."""
    width = 0.74 / len(bars)
    panel.axhline(0, color=style.MUTED, linewidth=0.8)
    for slot, row in enumerate(rows):
        for index, (name, (ours, theirs)) in enumerate(row.items()):
            at = slot + (index - (len(row) - 1) / 2) * width
            if ours is None:
                panel.text(at, 0, "–", ha="center", va="bottom", color=style.MUTED)
            else:
                line: dict[str, Any] = {
                    "ecolor": style.INK,
                    "capsize": 2.5,
                    "error_kw": {"linewidth": 1},
                }
                panel.bar(at, ours.mean, width * 0.88, yerr=ours.sd, **line, **bars[name])
            if theirs is not None:
                panel.plot(at, theirs, **_DIAMOND)


def _tick(variant: str, row: Mapping[str, Pair], points: Sequence[GridPoint]) -> str:
    marks = {point.adaptation: mark(point.cell) for point in points}
    lines = [
        f"{short(name, 8)} {ours.mean:+.1f}"
        + ("" if ours.sd is None else f"±{ours.sd:.1f}")
        + marks[name]
        for name, (ours, _) in row.items()
        if ours is not None
    ]
    return "\n".join([short(variant, 14), *lines])


def _words(row: Mapping[str, Pair]) -> str:
    return ", ".join(
        f"{name} {'missing' if ours is None else f'{ours.mean:+.1f}'}"
        + ("" if theirs is None else f" (published {theirs:+.1f})")
        for name, (ours, theirs) in row.items()
    )
