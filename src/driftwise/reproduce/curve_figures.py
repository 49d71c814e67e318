"""Accuracy over tasks by method and buffer, and final accuracy by severity of drift."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from driftwise.report import style
from driftwise.report.cells import Stat, place_of
from driftwise.report.curves import (
    by_task,
    draw_changes,
    draw_curve,
    few_ticks,
    means_and_spreads,
    stat_words,
)
from driftwise.report.events import describe_events
from driftwise.report.facets import Drawing, draw_band, facets, line_handle, short
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.notes import gaps, mark_point, remark, scale_words
from driftwise.reproduce.places import GridPoint, Group, buffer_words, distinct, setting_words

SEVERITY_NAMES = ("transform", "severity")
_UNCHANGED = (None, "identity", "none", "original")
_UNDRIFTED = style.Style(colour="#9aa3ad", marker="", line="-")


def accuracy_grid(group: Group, sweep: Sweep, styles: style.Styles) -> Drawing:
    """After each task the mean accuracy over the tasks seen so far: methods x buffers.

    Methods and buffers of which nothing has run are named, and get no empty panels.
    """
    begun = [point for point in group.points if point.cell is not None]
    variants = [each for each in group.variants if each in {point.variant() for point in begun}]
    buffers = [each for each in group.buffers if each in {point.buffer_size for point in begun}]
    absent = [
        *(variant for variant in group.variants if variant not in variants),
        *(buffer_words(buffer) for buffer in group.buffers if buffer not in buffers),
    ]
    runs = [point.cell.first for point in begun if point.cell is not None]
    num_tasks = max(run.num_tasks for run in runs)
    places = [(variant, buffer) for buffer in buffers for variant in variants]
    grid = facets(len(places), (2.2, 1.9), columns=len(variants))
    endings = []
    for panel, (variant, buffer) in zip(grid.panels, places, strict=True):
        points = group.at(variant, buffer)
        undrifted = group.undrifted_at(variant, buffer)
        if undrifted is not None:
            draw_curve(panel, undrifted, _UNDRIFTED, marker_size=4)
        done = [
            (point.cell, styles[point.adaptation]) for point in points if point.cell is not None
        ]
        for cell, line in done:
            draw_curve(panel, cell, line, marker_size=4)
        if done:
            draw_changes(panel, done[0][0].first)
        remark(panel, gaps(points))
        panel.set(xlim=(0.6, num_tasks + 0.4), ylim=(0, 102), xticks=few_ticks(num_tasks, most=10))
        panel.grid(axis="y")
        endings.append(f"{variant}, {buffer_words(buffer)}: {_endings(points)}")
    for panel, variant in zip(grid.panels, variants, strict=False):
        panel.set_title(short(variant, 24))
    grid.label("after task", [f"{buffer_words(each)}\nmean accuracy (%)" for each in buffers])
    legend = [line_handle(styles[name], name) for name in group.adaptations]
    if group.undrifted:
        legend.append(line_handle(_UNDRIFTED, "vanilla, no drift"))
    if group.num_drifts:
        drift = style.Style(colour=style.DRIFT, marker="", line=style.DASHED)
        legend.append(line_handle(drift, "drift"))
    grid.add_legend(legend, f"Accuracy over tasks: {group.title}")
    grey = " Grey: the same without drift." if group.undrifted else ""
    missing = f" Not run yet: {', '.join(absent)}." if absent else ""
    return Drawing(
        figure=grid.figure,
        title=f"Accuracy over tasks, {group.title}",
        caption="Mean accuracy over all tasks seen so far, measured after each task. Bands: one "
        "sample standard deviation over seeds to either side. A vertical orange line marks drift."
        f"{grey} {describe_events(runs[0])}",
        alt="Line charts of mean accuracy after each task, one per method and buffer; at the end: "
        + "; ".join(endings)
        + ".",
        notes=scale_words(sweep, group.points) + missing,
    )


def _endings(points: list[GridPoint]) -> str:
    stats = [(s.adaptation, None if s.cell is None else by_task(s.cell)[-1]) for s in points]
    return ", ".join(
        f"{adaptation} {'missing' if stat is None else f'{stat.mean:.1f}'}"
        for adaptation, stat in stats
    )


def severity_panels(
    points: Sequence[GridPoint], sweep: Sweep, styles: style.Styles
) -> Drawing | None:
    """Final accuracy at each severity, one panel per transform.

    Args:
        points: differ in transform, severity and adaptation only. Those without drift give the
            level that the others are compared with.
        sweep: their sweep.
        styles: by adaptation.

    Returns:
        None if no run with drift is done.
    """
    drifted = [point for point in points if not is_undrifted(point)]
    if not any(point.cell is not None for point in drifted):
        return None
    transforms = distinct(str(point.place["transform"]) for point in drifted)
    severities = sorted({_severity(point) for point in drifted})
    adaptations = sorted(distinct(point.adaptation for point in drifted), key=place_of)
    level = _undrifted_level(points)
    grid = facets(len(transforms), (2.7, 2.1))
    words = []
    for panel, transform in zip(grid.panels, transforms, strict=True):
        here = [point for point in drifted if point.place["transform"] == transform]
        if level is not None:
            spread = level.sd or 0.0
            panel.axhline(level.mean, color=style.MUTED, linewidth=1, zorder=1)
            ends = level.mean - spread, level.mean + spread
            panel.axhspan(*ends, color=style.MUTED, alpha=0.12, linewidth=0)
        lines = []
        for name in adaptations:
            line = [point for point in here if point.adaptation == name]
            lines.append(f"{name} {_draw_line(panel, line, severities, styles[name])}")
        words.append(f"{transform}: {'; '.join(lines)}")
        missing = sum(point.cell is None for point in here)
        if missing:
            remark(panel, [f"{missing} of {len(here)} points not run yet"])
        panel.set(title=transform, ylim=(0, 102))
        panel.set_xlim(min(severities) - 0.3, max(severities) + 0.3)
        panel.set_xticks(severities, [f"{severity:g}" for severity in severities])
        panel.grid(axis="y")
    grid.label("severity", "final accuracy (%)")
    legend = [line_handle(styles[name], name) for name in adaptations]
    if level is not None:
        label = f"no drift {stat_words(level)}"
        legend.append(Line2D([], [], color=style.MUTED, linewidth=1, label=label))
    title = setting_words(drifted[0], *SEVERITY_NAMES)
    grid.add_legend(legend, f"Accuracy by severity: {title}")
    compared = (
        "There is no run without drift to compare with."
        if level is None
        else f"Grey line: vanilla without drift, {stat_words(level)}."
    )
    return Drawing(
        figure=grid.figure,
        title=f"Accuracy by severity, {title}",
        caption="Final average accuracy after drift of each kind and severity, mean over seeds; "
        f"bands: one sample standard deviation to either side. {compared}",
        alt="Line charts of final accuracy against severity; " + "; ".join(words) + ".",
        notes=scale_words(sweep, points),
    )


def is_undrifted(point: GridPoint) -> bool:
    """Whether no class drifts at this place."""
    return not point.num_drifts or point.place.get("transform") in _UNCHANGED


def _severity(point: GridPoint) -> float:
    return float(point.place.get("severity") or 0)


def _undrifted_level(points: Sequence[GridPoint]) -> Stat | None:
    """The accuracy without drift, by preference without adaptation."""
    here = sorted(filter(is_undrifted, points), key=lambda point: place_of(point.adaptation))
    cells = [point.cell for point in here if point.cell is not None]
    return cells[0].stat(lambda run: run.faa) if cells else None


def _draw_line(
    panel: Axes, points: Sequence[GridPoint], severities: Sequence[float], line: style.Style
) -> str:
    """Draw the line of an adaptation; its numbers in words."""
    known = {_severity(s): s.cell.stat(lambda r: r.faa) for s in points if s.cell is not None}
    stats = [known.get(severity) for severity in severities]
    means, spreads = means_and_spreads(stats)
    draw_band(panel, severities, means, spreads, line.colour, **line.line_options(4.5))
    for point in points:
        if (stat := known.get(_severity(point))) is not None:
            mark_point(panel, point, _severity(point), stat.mean)
    return ", ".join("missing" if stat is None else f"{stat.mean:.1f}" for stat in stats)
