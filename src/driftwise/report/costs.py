"""What adaptation costs: labels, seconds and FLOPs, absolute and against full relearning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.projections.polar import PolarAxes
from matplotlib.ticker import MaxNLocator

from driftwise.report import style
from driftwise.report.cells import Setting
from driftwise.report.comparison import compact, duration, operations
from driftwise.report.facets import Drawing, facets, short
from driftwise.report.saved_run import COSTS, Run

BASIS = "fr"
"""The adaptation whose costs are 1.0."""

Read = Callable[[Run], float | None]

COST_AXES: Mapping[str, Read] = {
    "adaptation\nlabels": lambda run: run.labels.get("adaptation"),
    "seconds": lambda run: run.cost(run.seconds),
    "FLOPs": lambda run: run.cost(run.flops),
}

_FILLS = {"training": "solid", "detection": "hatched", "adaptation": "open"}
"""How the parts of a bar are distinguished, in the order in which they are stacked."""


@dataclass(frozen=True, kw_only=True)
class RelativeCosts:
    """Costs as multiples of a basis."""

    values: tuple[tuple[float | None, ...], ...]
    """(cells, 3): labels, seconds, FLOPs; None: not known"""
    basis: tuple[str, ...]
    """what 1.0 stands for on each axis: "fr", or "the largest" """


def relative_costs(setting: Setting) -> RelativeCosts:
    """Each cell's costs, divided by those of full relearning, by preference with its detector.

    On an axis where full relearning is missing or costs nothing, the largest cell is 1.0.
    """
    rivals = [setting.find(BASIS, cell.detector) for cell in setting.cells]
    columns, basis = [], []
    for read in COST_AXES.values():
        costs = [cell.mean(read) for cell in setting.cells]
        units = [rival.mean(read) if rival else None for rival in rivals]
        basis.append(BASIS if all(units) else "the largest")
        if not all(units):
            units = [max((cost for cost in costs if cost is not None), default=0.0)] * len(costs)
        pairs = zip(costs, units, strict=True)
        columns.append([None if cost is None else cost / (unit or 1.0) for cost, unit in pairs])
    return RelativeCosts(values=tuple(zip(*columns, strict=True)), basis=tuple(basis))


def cost_radar(setting: Setting, styles: style.Styles) -> Drawing:
    """Three costs of each cell as multiples of those of full relearning."""
    grid = facets(1, (3.9, 3.7), projection="polar")
    relative, words = draw_radar(grid.panels[0], setting, styles)
    grid.add_legend_beside(grid.panels[0].get_legend_handles_labels()[0])
    return Drawing(
        figure=grid.figure,
        title="Cost, relative",
        caption="Adaptation labels, seconds and FLOPs (training, detection and adaptation), "
        f"{_basis_words(relative)} Closer to the centre is cheaper.",
        alt=f"Radar chart of relative costs (labels, seconds, FLOPs): {words}.",
    )


def draw_radar(
    axes: Axes, setting: Setting, styles: style.Styles, font_size: float = 8
) -> tuple[RelativeCosts, str]:
    """One closed line per cell on polar axes; what it shows, as numbers and in words."""
    assert isinstance(axes, PolarAxes)
    relative = relative_costs(setting)
    angles = np.linspace(0, 2 * np.pi, len(COST_AXES), endpoint=False).tolist()
    words = []
    for costs, label, line in zip(
        relative.values, setting.labels, style.styles_by_cell(setting.cells, styles), strict=True
    ):
        known = [0.0 if cost is None else cost for cost in costs]
        axes.plot(
            [*angles, angles[0]],
            [*known, known[0]],
            label=short(label, 20),
            clip_on=False,
            **line.line_options(),
        )
        axes.fill(angles, known, color=line.colour, alpha=0.07, linewidth=0)
        words.append(f"{label} " + ", ".join("unknown" if c is None else f"{c:.2f}" for c in costs))
    largest = max([1.0, *(cost for row in relative.values for cost in row if cost)])
    ticks = [0.5, 1.0] if largest < 1.6 else range(1, int(largest) + 1, max(1, int(largest) // 4))
    axes.set(xticks=angles, ylim=(0, largest), yticks=list(ticks))
    axes.set_xticklabels(list(COST_AXES), fontsize=font_size)
    axes.set_theta_zero_location("N")
    axes.set_rlabel_position(25)  # where the sides of a full triangle cross no label
    axes.tick_params(axis="x", pad=8)
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(color=style.FAINT)
    axes.spines["polar"].set_visible(False)
    circle = np.linspace(0, 2 * np.pi, 121)
    axes.plot(circle, np.ones_like(circle), color=style.MUTED, linewidth=0.8, zorder=1)
    return relative, "; ".join(words)


def _basis_words(relative: RelativeCosts) -> str:
    others = [
        name.replace("\n", " ")
        for name, basis in zip(COST_AXES, relative.basis, strict=True)
        if basis != BASIS
    ]
    if len(others) == len(COST_AXES):
        return f"as multiples of the largest = 1.0, because there is no {BASIS} to compare with."
    words = f"as multiples of full relearning: {BASIS} = 1.0"
    if not others:
        return f"{words}."
    return (
        f"{words}, except for {' and '.join(others)}, where {BASIS} has nothing to divide by and "
        "the largest is 1.0."
    )


def cost_bars(setting: Setting, styles: style.Styles) -> Drawing:
    """Labels, seconds and FLOPs of each cell, with their parts."""
    phases = list(zip(_FILLS, COSTS, strict=True))
    parts: Mapping[str, Mapping[str, Read]] = {
        "labels": {
            "detection": lambda run: run.labels.get("monitoring"),
            "adaptation": lambda run: run.labels.get("adaptation"),
        },
        "time": {part: _phase("seconds", phase) for part, phase in phases},
        "FLOPs": {part: _phase("flops", phase) for part, phase in phases},
    }
    grid = facets(3, (3.1, 0.6 + 0.36 * len(setting.cells)))
    words = []
    for panel, (title, reads) in zip(grid.panels, parts.items(), strict=True):
        write = {"time": duration, "FLOPs": operations}.get(title, compact)
        totals = _stacked_bars(panel, setting, styles, reads, write)
        panel.set_title(title, loc="left")
        panel.set_yticks(range(len(totals)), [short(label, 18) for label in setting.labels])
        panel.tick_params(axis="y", length=0)
        panel.invert_yaxis()
        named = zip(setting.labels, totals, strict=True)
        words.append(f"{title}: " + ", ".join(f"{name} {total}" for name, total in named))
    grid.label()
    names = {"detection": "detection (labels: monitoring)"}
    grid.add_legend(
        [
            Patch(**style.filled(style.MUTED, fill), label=names.get(part, part))
            for part, fill in _FILLS.items()
        ]
    )
    return Drawing(
        figure=grid.figure,
        title="Cost, absolute",
        caption="Mean over seeds. Labels: those that the adaptation requested, and those that "
        "sorted the monitored samples by class. Time depends on the machine and its other work; "
        "FLOPs do not.",
        alt="Bar charts of cost; " + "; ".join(words) + ".",
    )


def _phase(book: str, phase: str) -> Read:
    def read(run: Run) -> float | None:
        value: float | None = getattr(run, book).get(phase)
        return value

    return read


def _stacked_bars(
    panel: Axes,
    setting: Setting,
    styles: style.Styles,
    reads: Mapping[str, Read],
    write: Callable[[float], str],
) -> list[str]:
    """Draw one bar per cell; the totals as they are printed beside the bars."""
    totals, ends = [], []
    for row, cell in enumerate(setting.cells):
        sizes = {part: cell.mean(read) for part, read in reads.items()}
        end = 0.0
        for part, size in sizes.items():
            face = style.filled(styles[cell.adaptation].colour, _FILLS[part])
            panel.barh(row, size or 0.0, left=end, height=0.62, **face)
            end += size or 0.0
        ends.append(end)
        is_known = any(size is not None for size in sizes.values())
        totals.append(write(end) if is_known else "unknown")
        panel.annotate(
            totals[-1], (end, row), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    panel.set_xlim(0, (max(ends) or 1.0) * 1.35)  # class statistics cost no counted FLOPs
    panel.xaxis.set_major_locator(MaxNLocator(nbins=3))
    panel.xaxis.set_major_formatter(lambda value, _: write(value))
    panel.grid(axis="x")
    return totals
