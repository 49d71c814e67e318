"""Labels, seconds and FLOPs: against accuracy, and as multiples of those of full relearning."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullLocator

from driftwise.report import style
from driftwise.report.cells import Setting, stat_of
from driftwise.report.costs import BASIS, COST_AXES, draw_radar
from driftwise.report.facets import Drawing, Facets, line_handle, short
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.charts import chart, gaps, mark_point, scale_words
from driftwise.reproduce.places import GridPoint, Group, buffer_words, grouped

_LABELS = next(iter(COST_AXES))
_MOST_SIGNS = 40
"""in a line below a radar, which is no wider"""
_WORDS = dict(zip(COST_AXES, ("labels requested", "seconds", "FLOPs"), strict=True))
_LINE = 0.085
"""The height of a method's name, as a fraction of a panel's."""
_LOG_FROM = 30.0
"""The ratio of the largest to the smallest cost from which an axis is logarithmic."""
_NUMBER = EngFormatter(sep="")


class Entry(NamedTuple):
    """A place by what it costs and what it reaches."""

    point: GridPoint
    cost: float
    accuracy: float


def cost_scatter(group: Group, sweep: Sweep, styles: style.Styles) -> Drawing | None:
    """Labels, seconds and FLOPs against final accuracy, a marker per method and adaptation."""
    notes = scale_words(sweep, group.points) + group.absent_words
    group = group.begun()
    entries = {
        (buffer, name): [
            Entry(point, cost, point.faa.mean)
            for point in group.points
            if point.buffer_size == buffer and point.cell is not None and point.faa is not None
            if (cost := point.cell.mean(read)) is not None
        ]
        for buffer in group.buffers
        for name, read in COST_AXES.items()
    }
    ends = [entry.accuracy for found in entries.values() for entry in found]
    if not ends:
        return None
    pad = max(2.0, 0.12 * (max(ends) - min(ends)))

    def draw(panel: Axes, key: tuple[int | None, str]) -> str:
        (buffer, name), found = key, entries[key]
        panel.set_ylim(min(ends) - pad, max(ends) + pad)
        panel.grid()
        _scatter(panel, found, styles)
        means = _means(found, group.adaptations, exact=name == _LABELS) or "nothing known yet"
        total = sum(point.buffer_size == buffer for point in group.points)
        missing = total - len(found)
        above = f"{means} ({missing} of {total} missing)" if missing and found else means
        panel.set_title(above, fontsize=7.5, fontweight="normal", color=style.MUTED, loc="left")
        return f"{_WORDS[name]}, {buffer_words(buffer)}: {means}"

    def label_costs(grid: Facets) -> None:
        for panel, (_, name) in zip(grid.panels, entries, strict=True):
            panel.set_xlabel(_WORDS[name])

    return chart(
        "Cost against accuracy",
        group.title,
        list(entries),
        (3.3, 2.6),
        draw,
        x="",
        y=[f"{buffer_words(buffer)}\nfinal average accuracy (%)" for buffer in group.buffers],
        share_x=False,
        finish=label_costs,
        legend=[line_handle(styles[name], name) for name in group.adaptations],
        caption="Final average accuracy against the labels that adaptation requested, and against "
        "the seconds and FLOPs of training, detection and adaptation; means over seeds. A thin "
        "line joins the adaptations of a method. Above each panel: the mean over its methods. "
        "Seconds depend on the machine.",
        alt="Scatter plots of cost against final accuracy; mean cost over methods:",
        notes=notes,
    )


def _scatter(panel: Axes, entries: Sequence[Entry], styles: style.Styles) -> None:
    # The entries of each method, from few labels to many: the same order for every cost.
    ordered = sorted(entries, key=lambda entry: (_labels(entry.point) or 0.0, entry.cost))
    paths = grouped(ordered, lambda entry: entry.point.variant())
    for path in paths.values():
        _, costs, accuracies = zip(*path, strict=True)
        panel.plot(costs, accuracies, color="#b4bbc3", linewidth=0.8, zorder=2)
    for entry in entries:
        face = styles[entry.point.adaptation]
        panel.scatter(*entry[1:], s=30, color=face.colour, marker=face.marker, zorder=3)
        mark_point(panel, entry.point, entry.cost, entry.accuracy)
    _scale_costs(panel, [entry.cost for entry in entries])
    _name_methods(panel, {method: path[-1] for method, path in paths.items()})


def _scale_costs(panel: Axes, costs: Sequence[float]) -> None:
    """Logarithmic where costs differ much, with zero still on the axis where something is free."""
    positive = [cost for cost in costs if cost > 0]
    if not positive:
        panel.set(xticks=[0] if costs else [], xlim=(-0.5, 1))
    elif max(positive) / min(positive) < _LOG_FROM and 0 not in costs:
        panel.xaxis.set_major_locator(MaxNLocator(nbins=4))
        panel.margins(x=0.12)
    else:
        low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
        high = max(high, low + 1)
        decades = [10.0**power for power in range(low, high + 1, max(1, (high - low) // 3))]
        if 0 in costs:
            panel.set_xscale("symlog", linthresh=10.0**low, linscale=0.6)
            panel.set_xlim(-0.25 * 10.0**low, 10.0**high * 1.1)
            decades = [0.0, *decades]
        else:
            panel.set_xscale("log")
            panel.set_xlim(10.0**low * 0.8, 10.0**high * 1.25)
        panel.xaxis.set_major_locator(FixedLocator(decades))
        panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(_NUMBER)


def _means(entries: Sequence[Entry], adaptations: Sequence[str], *, exact: bool) -> str:
    """What each adaptation costs on average over methods, in figures."""
    words = []
    for name in adaptations:
        stat = stat_of(entry.cost for entry in entries if entry.point.adaptation == name)
        if stat is not None:
            rounded = _NUMBER(float(f"{stat.mean:.3g}"))
            words.append(f"{name} {f'{stat.mean:,.0f}' if exact else rounded}")
    return ", ".join(words)


def _name_methods(panel: Axes, ends: Mapping[str, Entry]) -> None:
    """Each method's name to the right of the panel, joined to its last marker by a thin line."""
    low, high = panel.get_ylim()
    heights = [(entry.accuracy - low) / (high - low) for entry in ends.values()]
    for (method, entry), up in zip(ends.items(), spread_out(heights, _LINE), strict=True):
        panel.annotate(
            short(method, 12),
            (entry.cost, entry.accuracy),
            xytext=(1.02, up),
            textcoords="axes fraction",
            fontsize=7.5,
            va="center",
            arrowprops={"arrowstyle": "-", "color": style.MUTED, "linewidth": 0.4, "shrinkA": 0},
            annotation_clip=False,
        )


def spread_out(values: Sequence[float], gap: float) -> list[float]:
    """The values, changed as little as pushing up from below takes, until all are `gap` apart.

    >>> spread_out([5.0, 1.0, 1.5], 1.0)
    [5.0, 0.75, 1.75]
    """
    order = sorted(range(len(values)), key=lambda index: values[index])
    blocks: list[tuple[float, int]] = []  # the middle of each block's members, and their number
    for index in order:
        middle, count = values[index], 1
        while blocks and middle - blocks[-1][0] < gap * (count + blocks[-1][1]) / 2:
            below, more = blocks.pop()
            middle, count = (middle * count + below * more) / (count + more), count + more
        blocks.append((middle, count))
    placed = [
        middle + (member - (count - 1) / 2) * gap
        for middle, count in blocks
        for member in range(count)
    ]
    return [place for _, place in sorted(zip(order, placed, strict=True))]


def radar_grid(group: Group, sweep: Sweep, styles: style.Styles) -> Drawing:
    """Costs as multiples of full relearning's, one radar per method and buffer."""
    notes = scale_words(sweep, group.points) + group.absent_words
    group = group.begun()

    def draw(panel: Axes, key: tuple[str, int | None]) -> str:
        points = group.at(*key)
        cells = tuple(point.cell for point in points if point.cell is not None)
        words, below = "missing", gaps(points)
        if cells:
            relative, words = draw_radar(panel, Setting(cells=cells, variant=""), styles, 7)
            counts = [(point.adaptation, _labels(point)) for point in points]
            known = [f"{name} {count:,.0f}" for name, count in counts if count is not None]
            labels = f"labels: {', '.join(known) or 'unknown'}"
            below = [*textwrap.wrap(labels, _MOST_SIGNS), *below]
            if set(relative.basis) != {BASIS}:
                below.append("largest = 1" if BASIS not in relative.basis else "partly largest = 1")
        else:
            panel.set(xticks=[], yticks=[])
            panel.spines["polar"].set_color(style.FAINT)
        panel.set_xlabel("\n".join(below), fontsize=7, color=style.MUTED)
        return f"{key[0]}, {buffer_words(key[1])}: {words}"

    def label_buffers(grid: Facets) -> None:
        for panel, buffer in zip(grid.left, group.buffers, strict=True):
            panel.set_ylabel(buffer_words(buffer), labelpad=26)

    return chart(
        "Cost, relative",
        group.title,
        group.panels,
        (2.3, 2.5),
        draw,
        columns=len(group.variants),
        projection="polar",
        titles=[short(variant, 20) for variant in group.variants],
        finish=label_buffers,
        headline="Cost, full relearning = 1",
        legend=[line_handle(styles[name], name) for name in group.adaptations],
        caption="Labels that adaptation requested, seconds and FLOPs (training, detection and "
        f"adaptation) as multiples of full relearning: {BASIS} = 1; where {BASIS} is missing or "
        "costs nothing, the largest is 1. Closer to the centre is cheaper. Below each: labels in "
        "absolute numbers.",
        alt="Radar charts of relative costs (labels, seconds, FLOPs):",
        notes=notes,
    )


def _labels(point: GridPoint) -> float | None:
    """How many labels adaptation requested, mean over seeds."""
    return None if point.cell is None else point.cell.mean(COST_AXES[_LABELS])
