"""Labels, seconds and FLOPs: against accuracy, and as multiples of those of full relearning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullLocator

from driftwise.report import style
from driftwise.report.cells import Setting, stat_of
from driftwise.report.costs import BASIS, COST_AXES, Read, draw_radar
from driftwise.report.facets import Drawing, facets, line_handle, short
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.notes import gaps, mark_point, scale_words
from driftwise.reproduce.places import Group, Spot, buffer_words

_LABELS = next(iter(COST_AXES))
_WORDS = dict(zip(COST_AXES, ("labels requested", "seconds", "FLOPs"), strict=True))
_LINE = 0.085
"""The height of a method's name, as a fraction of a panel's."""
_LOG_FROM = 30.0
"""The ratio of the largest to the smallest cost from which an axis is logarithmic."""
_NUMBER = EngFormatter(sep="")


class Point(NamedTuple):
    """A place by what it costs and what it reaches."""

    spot: Spot
    cost: float
    accuracy: float


def cost_scatter(group: Group, sweep: Sweep, styles: style.Styles) -> Drawing | None:
    """Labels, seconds and FLOPs against final accuracy, a marker per method and adaptation."""
    points = {
        (buffer, name): _points(group, buffer, read)
        for buffer in group.buffers
        for name, read in COST_AXES.items()
    }
    ends = [point.accuracy for found in points.values() for point in found]
    if not ends:
        return None
    pad = max(2.0, 0.12 * (max(ends) - min(ends)))
    grid = facets(len(points), (3.3, 2.6))
    words = []
    for panel, ((buffer, name), found) in zip(grid.panels, points.items(), strict=True):
        panel.set_ylim(min(ends) - pad, max(ends) + pad)
        panel.grid()
        _scatter(panel, found, styles)
        means = _means(found, group.adaptations, exact=name == _LABELS) or "nothing known yet"
        total = sum(spot.buffer_size == buffer for spot in group.spots)
        missing = total - len(found)
        above = f"{means} ({missing} of {total} missing)" if missing and found else means
        panel.set_title(above, fontsize=7.5, fontweight="normal", color=style.MUTED, loc="left")
        words.append(f"{_WORDS[name]}, {buffer_words(buffer)}: {means}")
    rows = [f"{buffer_words(buffer)}\nfinal average accuracy (%)" for buffer in group.buffers]
    grid.label("", rows, share_x=False)
    for panel, (_, name) in zip(grid.panels, points, strict=True):
        panel.set_xlabel(_WORDS[name])
    legend = [line_handle(styles[name], name) for name in group.adaptations]
    grid.add_legend(legend, f"Cost against accuracy: {group.title}")
    return Drawing(
        figure=grid.figure,
        title=f"Cost against accuracy, {group.title}",
        caption="Final average accuracy against the labels that adaptation requested, and against "
        "the seconds and FLOPs of training, detection and adaptation; means over seeds. A thin "
        "line joins the adaptations of a method. Above each panel: the mean over its methods. "
        "Seconds depend on the machine.",
        alt="Scatter plots of cost against final accuracy; mean cost over methods: "
        + "; ".join(words)
        + ".",
        notes=scale_words(sweep, group.spots),
    )


def _points(group: Group, buffer: int | None, read: Read) -> list[Point]:
    points = []
    for spot in group.spots:
        if spot.buffer_size != buffer or spot.cell is None:
            continue
        cost, accuracy = spot.cell.mean(read), spot.cell.mean(lambda run: run.faa)
        if cost is not None and accuracy is not None:
            points.append(Point(spot, cost, accuracy))
    return points


def _scatter(panel: Axes, points: Sequence[Point], styles: style.Styles) -> None:
    paths = _by_method(points)
    for path in paths.values():
        _, costs, accuracies = zip(*path, strict=True)
        panel.plot(costs, accuracies, color="#b4bbc3", linewidth=0.8, zorder=2)
    for point in points:
        face = styles[point.spot.adaptation]
        panel.scatter(*point[1:], s=30, color=face.colour, marker=face.marker, zorder=3)
        mark_point(panel, point.spot, point.cost, point.accuracy)
    _scale_costs(panel, [point.cost for point in points])
    _name_methods(panel, {method: path[-1] for method, path in paths.items()})


def _by_method(points: Sequence[Point]) -> Mapping[str, list[Point]]:
    """The points of each method, from few labels to many: the same order for every cost."""
    paths: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: (_labels(point.spot) or 0.0, point.cost)):
        paths.setdefault(point.spot.variant(), []).append(point)
    return paths


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


def _means(points: Sequence[Point], adaptations: Sequence[str], *, exact: bool) -> str:
    """What each adaptation costs on average over methods, in figures."""
    words = []
    for name in adaptations:
        stat = stat_of(point.cost for point in points if point.spot.adaptation == name)
        if stat is not None:
            rounded = _NUMBER(float(f"{stat.mean:.3g}"))
            words.append(f"{name} {f'{stat.mean:,.0f}' if exact else rounded}")
    return ", ".join(words)


def _name_methods(panel: Axes, ends: Mapping[str, Point]) -> None:
    """Each method's name to the right of the panel, joined to its last point by a thin line."""
    low, high = panel.get_ylim()
    heights = [(point.accuracy - low) / (high - low) for point in ends.values()]
    for (method, point), up in zip(ends.items(), spread_out(heights, _LINE), strict=True):
        panel.annotate(
            short(method, 12),
            (point.cost, point.accuracy),
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
    variants, buffers = group.variants, group.buffers
    places = [(variant, buffer) for buffer in buffers for variant in variants]
    grid = facets(len(places), (2.3, 2.5), columns=len(variants), projection="polar")
    words = []
    for panel, (variant, buffer) in zip(grid.panels, places, strict=True):
        spots = group.at(variant, buffer)
        cells = tuple(spot.cell for spot in spots if spot.cell is not None)
        shown = "missing"
        below = gaps(spots)
        if cells:
            relative, shown = draw_radar(panel, Setting(cells=cells, variant=""), styles, 7)
            below = [f"labels: {_label_words(spots)}", *below]
            if set(relative.basis) != {BASIS}:
                below.append("largest = 1" if BASIS not in relative.basis else "partly largest = 1")
        else:
            panel.set(xticks=[], yticks=[])
            panel.spines["polar"].set_color(style.FAINT)
        panel.set_xlabel("\n".join(below), fontsize=7, color=style.MUTED)
        words.append(f"{variant}, {buffer_words(buffer)}: {shown}")
    for panel, variant in zip(grid.panels, variants, strict=False):
        panel.set_title(short(variant, 20))
    for panel, buffer in zip(grid.left, buffers, strict=True):
        panel.set_ylabel(buffer_words(buffer), labelpad=26)
    legend = [line_handle(styles[name], name) for name in group.adaptations]
    grid.add_legend(legend, f"Cost, full relearning = 1: {group.title}")
    return Drawing(
        figure=grid.figure,
        title=f"Cost, relative, {group.title}",
        caption="Labels that adaptation requested, seconds and FLOPs (training, detection and "
        f"adaptation) as multiples of full relearning: {BASIS} = 1; where {BASIS} is missing or "
        "costs nothing, the largest is 1. Closer to the centre is cheaper. Below each: labels in "
        "absolute numbers.",
        alt="Radar charts of relative costs (labels, seconds, FLOPs): " + "; ".join(words) + ".",
        notes=scale_words(sweep, group.spots),
    )


def _labels(spot: Spot) -> float | None:
    """How many labels adaptation requested, mean over seeds."""
    return None if spot.cell is None else spot.cell.mean(COST_AXES[_LABELS])


def _label_words(spots: Sequence[Spot]) -> str:
    counts = [(spot.adaptation, _labels(spot)) for spot in spots]
    known = [f"{name} {count:,.0f}" for name, count in counts if count is not None]
    return ", ".join(known) or "unknown"
