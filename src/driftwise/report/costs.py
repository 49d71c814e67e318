"""What adaptation costs: labels, seconds and FLOPs, absolute and against full relearning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.projections.polar import PolarAxes
from matplotlib.ticker import MaxNLocator

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, panels, short
from driftwise.report.cells import Cell, Setting
from driftwise.report.columns import compact
from driftwise.report.run import COSTS, Run

BASIS = "fr"
"""The adaptation whose costs are 1.0."""

Read = Callable[[Run], float | None]

COST_AXES: Mapping[str, Read] = {
    "adaptation\nlabels": lambda run: run.labels.get("adaptation"),
    "seconds": lambda run: run.cost(run.seconds),
    "FLOPs": lambda run: run.cost(run.flops),
}
FILLS = ("solid", "hatched", "open")
"""How the parts of a bar are told apart, in the order in which they are stacked."""

_PHASE_WORDS = dict(zip(COSTS, ("training", "detection", "adaptation"), strict=True))


class Part(NamedTuple):
    """A part of a stacked bar."""

    name: str
    read: Read


@dataclass(frozen=True, kw_only=True)
class RelativeCosts:
    """Costs as multiples of a basis."""

    values: tuple[tuple[float | None, ...], ...]
    """one row per cell: labels, seconds, FLOPs; None: not known"""
    basis: tuple[str, ...]
    """what 1.0 stands for on each axis: "fr", or "the largest" """


def relative_costs(setting: Setting) -> RelativeCosts:
    """Each cell's costs, divided by those of full relearning, by preference with its detector.

    On an axis where full relearning is missing or costs nothing, the largest cell is 1.0.
    """
    columns, basis = [], []
    for read in COST_AXES.values():
        costs = [cell.mean(read) for cell in setting.cells]
        yardsticks = [_cost_of_basis(setting, cell, read) for cell in setting.cells]
        largest = max((cost for cost in costs if cost is not None), default=0.0)
        by_basis = all(yardsticks)
        basis.append(BASIS if by_basis else "the largest")
        columns.append(
            [
                None if cost is None else cost / ((yardstick if by_basis else largest) or 1.0)
                for cost, yardstick in zip(costs, yardsticks, strict=True)
            ]
        )
    return RelativeCosts(values=tuple(zip(*columns, strict=True)), basis=tuple(basis))


def _cost_of_basis(setting: Setting, cell: Cell, read: Read) -> float | None:
    basis = setting.find(BASIS, cell.detector)
    return None if basis is None else basis.mean(read)


def cost_radar(setting: Setting, looks: style.Looks) -> Drawing:
    """Three costs of each cell as multiples of those of full relearning."""
    figure = Figure(figsize=(5.3, 4.0))
    axes = figure.add_axes((0.07, 0.04, 0.58, 0.76), projection="polar")
    relative, words = draw_radar(axes, setting, looks)
    figure.legend(*axes.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0.72, 0.97))
    return Drawing(
        figure=figure,
        title="Cost, relative",
        caption="Adaptation labels, seconds and FLOPs (training, detection and adaptation), "
        f"{_basis(relative)} Closer to the centre is cheaper.",
        alt=f"Radar chart of relative costs (labels, seconds, FLOPs): {words}.",
    )


def draw_radar(axes: Axes, setting: Setting, looks: style.Looks) -> tuple[RelativeCosts, str]:
    """One closed line per cell on polar axes; what it shows, as numbers and in words."""
    assert isinstance(axes, PolarAxes)
    relative = relative_costs(setting)
    angles = np.linspace(0, 2 * np.pi, len(COST_AXES), endpoint=False).tolist()
    words = []
    for costs, label, look in zip(
        relative.values, setting.labels, style.looks_by_cell(setting.cells, looks), strict=True
    ):
        known = [0.0 if cost is None else cost for cost in costs]
        axes.plot(
            [*angles, angles[0]],
            [*known, known[0]],
            color=look.colour,
            linestyle=look.line,
            linewidth=1.8,
            marker=look.marker,
            markersize=5,
            markerfacecolor="white" if look.hollow else look.colour,
            label=short(label, 20),
            clip_on=False,
        )
        axes.fill(angles, known, color=look.colour, alpha=0.07, linewidth=0)
        shares = ", ".join("unknown" if cost is None else f"{cost:.2f}" for cost in costs)
        words.append(f"{label} {shares}")
    _dress_radar(axes, angles, max([1.0, *(c for row in relative.values for c in row if c)]))
    return relative, "; ".join(words)


def _basis(relative: RelativeCosts) -> str:
    by_basis = relative.basis.count(BASIS)
    if by_basis == len(COST_AXES):
        return f"as multiples of full relearning: {BASIS} = 1.0."
    if not by_basis:
        return f"as multiples of the largest = 1.0, because there is no {BASIS} to compare with."
    odd = [
        name.replace("\n", " ")
        for name, basis in zip(COST_AXES, relative.basis, strict=True)
        if basis != BASIS
    ]
    return (
        f"as multiples of full relearning: {BASIS} = 1.0, except for {' and '.join(odd)}, where "
        f"{BASIS} has nothing to divide by and the largest is 1.0."
    )


def _dress_radar(axes: PolarAxes, angles: Sequence[float], largest: float) -> None:
    axes.set_theta_zero_location("N")
    axes.set_rlabel_position(25)  # where the sides of a full triangle cross no label
    axes.set(xticks=angles, xticklabels=list(COST_AXES), ylim=(0, largest))
    axes.tick_params(axis="x", pad=7)
    ticks = [0.25, 0.5, 0.75, 1.0] if largest < 1.6 else sorted({1.0, *range(1, int(largest) + 1)})
    axes.set_yticks(ticks[:: max(1, len(ticks) // 5)])
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(color=style.FAINT)
    axes.spines["polar"].set_visible(False)
    circle = np.linspace(0, 2 * np.pi, 121)
    axes.plot(circle, np.ones_like(circle), color=style.MUTED, linewidth=0.8, zorder=1)


def cost_bars(setting: Setting, looks: style.Looks) -> Drawing:
    """Labels, seconds and FLOPs of each cell, with their parts."""
    count = len(setting.cells)
    figure, axes = panels(
        3, 2.75, 0.5 + 0.42 * count, Margins(left=1.35, bottom=0.95, column_gap=0.45, right=0.45)
    )
    books: list[tuple[str, list[Part]]] = [
        ("labels", [Part(kind, _labels_of(kind)) for kind in ("adaptation", "monitoring")]),
        ("seconds", [Part(word, _seconds_of(phase)) for phase, word in _PHASE_WORDS.items()]),
        ("GFLOPs", [Part(word, _gigaflops_of(phase)) for phase, word in _PHASE_WORDS.items()]),
    ]
    words = []
    for index, (panel, (title, parts)) in enumerate(zip(axes, books, strict=True)):
        totals = _stacked_bars(panel, setting, looks, parts)
        panel.set_title(title, loc="left")
        panel.set_yticks(range(count), [short(label, 18) for label in setting.labels])
        panel.tick_params(axis="y", length=0)
        panel.invert_yaxis()
        if index:
            panel.tick_params(labelleft=False)
        panel.legend(
            handles=[
                Patch(**filled(style.MUTED, fill), label=part.name)
                for part, fill in zip(parts, FILLS, strict=False)
            ],
            loc="upper left",
            bbox_to_anchor=(-0.03, -0.28 * 1.3 / (0.5 + 0.42 * count)),
            ncols=3,
            handlelength=1.2,
            columnspacing=0.9,
            handletextpad=0.4,
            fontsize=7.5,
        )
        words.append(
            f"{title}: "
            + ", ".join(f"{n} {t}" for n, t in zip(setting.labels, totals, strict=True))
        )
    return Drawing(
        figure=figure,
        title="Cost, absolute",
        caption="Mean over seeds. Labels: those the adaptation asked for, and those that sorted "
        "the monitored rows by class. Seconds depend on the machine and its other work; FLOPs do "
        "not.",
        alt="Bar charts of cost; " + "; ".join(words) + ".",
    )


def filled(colour: str, fill: str) -> dict[str, Any]:
    """How matplotlib is told to fill a bar."""
    return {
        "facecolor": colour if fill == "solid" else "white",
        "edgecolor": colour,
        "hatch": "/////" if fill == "hatched" else "",
        "linewidth": 0.9,
    }


def _labels_of(kind: str) -> Read:
    return lambda run: run.labels.get(kind)


def _seconds_of(phase: str) -> Read:
    return lambda run: run.seconds.get(phase)


def _gigaflops_of(phase: str) -> Read:
    def read(run: Run) -> float | None:
        flops = run.flops.get(phase)
        return None if flops is None else flops / 1e9

    return read


def _stacked_bars(
    panel: Axes,
    setting: Setting,
    looks: style.Looks,
    parts: Sequence[Part],
) -> list[str]:
    """Draw one bar per cell; the totals as they are printed beside the bars."""
    totals = []
    sums = []
    for row, cell in enumerate(setting.cells):
        look = looks[cell.adaptation]
        sizes = [cell.mean(part.read) for part in parts]
        start = 0.0
        for size, fill in zip(sizes, FILLS, strict=False):
            panel.barh(row, size or 0.0, left=start, height=0.62, **filled(look.colour, fill))
            start += size or 0.0
        sums.append(start)
        totals.append(compact(start) if any(s is not None for s in sizes) else "unknown")
    for row, (total, end) in enumerate(zip(totals, sums, strict=True)):
        panel.annotate(
            total, (end, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    panel.set_xlim(0, max([*sums, 1e-9]) * 1.22)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=4))
    panel.grid(axis="x")
    return totals
