"""Labels, seconds and FLOPs against accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator, NullFormatter, NullLocator

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, short
from driftwise.report.cells import stat_of
from driftwise.report.costs import COST_AXES, Read
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.places import Group, Spot
from driftwise.reproduce.plate import (
    Frame,
    buffer_words,
    line_handles,
    mark_point,
    plate,
    scale_words,
)

_LABELS = next(iter(COST_AXES))
_WORDS = dict(zip(COST_AXES, ("labels asked for", "seconds", "FLOPs"), strict=True))
_NAME_INCHES, _LINE_INCHES = 0.75, 0.14
"""The room that a method's name takes."""
_LOG_FROM = 30.0
"""The ratio of the largest to the smallest cost from which an axis is logarithmic."""


class Point(NamedTuple):
    """A place by what it costs and what it reaches."""

    spot: Spot
    cost: float
    accuracy: float


def cost_scatter(group: Group, sweep: Sweep, looks: style.Looks) -> Drawing | None:
    """Labels, seconds and FLOPs against final accuracy, a marker per method and adaptation."""
    buffers = group.buffers
    points = {
        (buffer, name): _points(group, buffer, read)
        for buffer in buffers
        for name, read in COST_AXES.items()
    }
    if not any(points.values()):
        return None
    drawn = plate(
        len(points),
        2.7,
        2.1,
        columns=len(COST_AXES),
        frame=Frame(
            headline=f"Cost against accuracy: {group.title}",
            notes=scale_words(sweep, group.spots),
            legend=tuple(line_handles(group.adaptations, looks)),
        ),
        margins=Margins(left=0.8, right=0.65, bottom=0.5, top=0.3, column_gap=0.75, row_gap=0.8),
    )
    words = []
    for panel, ((buffer, name), found) in zip(drawn.panels, points.items(), strict=True):
        asked = [spot for spot in group.spots if spot.buffer_size == buffer]
        _scatter(panel, found, looks)
        means = _means(found, group.adaptations, exact=name == _LABELS) or "nothing known yet"
        gaps = len(asked) - len(found)
        above = f"{means} ({gaps} of {len(asked)} missing)" if gaps and found else means
        panel.set_title(above, fontsize=7.5, fontweight="normal", color=style.MUTED, loc="left")
        panel.set_xlabel(_WORDS[name])
        words.append(f"{_WORDS[name]}, {buffer_words(buffer)}: {means}")
    ends = [point.accuracy for found in points.values() for point in found]
    pad = max(2.0, 0.12 * (max(ends) - min(ends)))
    for panel in drawn.panels:
        panel.set_ylim(min(ends) - pad, max(ends) + pad)
        panel.grid()
    for panel, found in zip(drawn.panels, points.values(), strict=True):
        if found:
            _name_methods(panel, found)
    for panel, buffer in zip(drawn.left, buffers, strict=True):
        panel.set_ylabel(f"{buffer_words(buffer)}\nfinal average accuracy (%)")
    return Drawing(
        figure=drawn.figure,
        title=f"Cost against accuracy, {group.title}",
        caption="Final average accuracy against the labels that adaptation asked for, and against "
        "the seconds and FLOPs of training, detection and adaptation; means over seeds. A thin "
        "line joins the adaptations of a method. Above each panel: the mean over its methods. "
        f"Seconds depend on the machine. {scale_words(sweep, group.spots)}",
        alt="Scatter plots of cost against final accuracy; mean cost over methods: "
        + "; ".join(words)
        + ".",
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


def _scatter(panel: Axes, points: Sequence[Point], looks: style.Looks) -> None:
    for path in _by_method(points).values():
        panel.plot(
            [point.cost for point in path],
            [point.accuracy for point in path],
            color="#b4bbc3",
            linewidth=0.8,
            zorder=2,
        )
    for point in points:
        look = looks[point.spot.adaptation]
        panel.scatter(
            point.cost, point.accuracy, s=30, color=look.colour, marker=look.marker, zorder=3
        )
        mark_point(panel, point.spot, point.cost, point.accuracy)
    _scale_costs(panel, [point.cost for point in points])


def _by_method(points: Sequence[Point]) -> Mapping[str, list[Point]]:
    """The points of each method, from few labels to many: the same order for every cost."""
    paths: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: (asked_labels(point.spot) or 0.0, point.cost)):
        paths.setdefault(point.spot.variant(), []).append(point)
    return paths


def _scale_costs(panel: Axes, costs: Sequence[float]) -> None:
    """Logarithmic where costs differ much, with zero still on the axis where something is free."""
    positive = [cost for cost in costs if cost > 0]
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    if not positive:
        panel.set(xticks=[0] if costs else [], xlim=(-0.5, 1))
        return
    if max(positive) / min(positive) < _LOG_FROM and 0 not in costs:
        panel.xaxis.set_major_locator(MaxNLocator(nbins=4))
        panel.margins(x=0.12)
        return
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
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_minor_formatter(NullFormatter())


def _means(points: Sequence[Point], adaptations: Sequence[str], *, exact: bool) -> str:
    """What each adaptation costs on average over methods, in figures."""
    engineer = EngFormatter(sep="")
    words = []
    for name in adaptations:
        stat = stat_of(point.cost for point in points if point.spot.adaptation == name)
        if stat is not None:
            rounded = engineer(float(f"{stat.mean:.3g}"))
            words.append(f"{name} {f'{stat.mean:,.0f}' if exact else rounded}")
    return ", ".join(words)


def _name_methods(panel: Axes, points: Sequence[Point]) -> None:
    """Each method's name beside its last point; names that would overlap move up or down."""
    box, figure = panel.get_position(), panel.figure
    assert isinstance(figure, Figure)
    width, height = np.array([box.width, box.height]) * figure.get_size_inches()
    ends = [(method, path[-1]) for method, path in _by_method(points).items()]
    to_shares = panel.transData + panel.transAxes.inverted()
    places = to_shares.transform([(p.cost, p.accuracy) for _, p in ends]) * (width, height)
    for cluster in _clusters([float(x) for x, _ in places], _NAME_INCHES):
        heights = spread_out([float(places[index][1]) for index in cluster], _LINE_INCHES)
        for index, up in zip(cluster, heights, strict=True):
            method, point = ends[index]
            panel.annotate(
                short(method, 12),
                (point.cost, point.accuracy),
                xytext=((places[index][0] + 0.2) / width, up / height),
                textcoords="axes fraction",
                fontsize=7.5,
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
                arrowprops={"arrowstyle": "-", "color": style.INK, "linewidth": 0.5, "shrinkA": 0},
                annotation_clip=False,
            )


def _clusters(values: Sequence[float], gap: float) -> list[list[int]]:
    """Which of the values, by index, form rows of neighbours less than `gap` apart."""
    clusters: list[list[int]] = []
    last = -math.inf
    for index in sorted(range(len(values)), key=lambda index: values[index]):
        if values[index] - last >= gap:
            clusters.append([])
        clusters[-1].append(index)
        last = values[index]
    return clusters


def spread_out(values: Sequence[float], gap: float) -> list[float]:
    """The values, moved as little as pushing up from below takes, until all are `gap` apart.

    >>> spread_out([5.0, 1.0, 1.5], 1.0)
    [5.0, 0.75, 1.75]
    """
    order = sorted(range(len(values)), key=lambda index: values[index])
    blocks: list[list[float]] = []  # each: the middle of its members, and how many they are
    for index in order:
        blocks.append([values[index], 1.0])
        while len(blocks) > 1 and _touch(blocks[-2], blocks[-1], gap):
            (above, more), (below, fewer) = blocks.pop(), blocks.pop()
            count = more + fewer
            blocks.append([(above * more + below * fewer) / count, count])
    placed = [
        middle + (member - (count - 1) / 2) * gap
        for middle, count in blocks
        for member in range(int(count))
    ]
    result = [0.0] * len(values)
    for index, height in zip(order, placed, strict=True):
        result[index] = height
    return result


def _touch(below: Sequence[float], above: Sequence[float], gap: float) -> bool:
    return above[0] - below[0] < gap * (above[1] + below[1]) / 2


def asked_labels(spot: Spot) -> float | None:
    """How many labels adaptation asked for, mean over seeds."""
    return None if spot.cell is None else spot.cell.mean(COST_AXES[_LABELS])
