"""All figures of a sweep, those of the paper among them: chosen by what its places differ in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from driftwise.report import style
from driftwise.report.cells import Cell, Stat, mark, place_of, stat_of
from driftwise.report.curves import (
    by_task,
    draw_changes,
    draw_curve,
    few_ticks,
    means_and_spreads,
    stat_words,
)
from driftwise.report.event_words import describe_events
from driftwise.report.facets import (
    Drawing,
    Facets,
    RenderedFigure,
    draw_band,
    line_handle,
    render,
    short,
)
from driftwise.report.sweeps import Place, Sweep
from driftwise.reproduce.charts import chart, gaps, mark_point, remark, scale_words
from driftwise.reproduce.cost_figures import cost_scatter, radar_grid
from driftwise.reproduce.feature_maps import FeatureMaps, draw_feature_maps, projection
from driftwise.reproduce.places import (
    FLOOR,
    GridPoint,
    Group,
    buffer_words,
    distinct,
    drift_words,
    grid_points,
    groups_of,
    setting_words,
)

Published = Callable[[Place], float | None]
"""The published final average accuracy of a place; None: there is none."""

Pair = tuple[Stat | None, float | None]
"""our gain, and the published one"""

SEVERITY_NAMES = ("transform", "severity")
ERROR_NAMES = ("tpr", "fpr")
_UNCHANGED = (None, "identity", "none", "original")
_UNDRIFTED = style.Style(colour="#9aa3ad", marker="", line="-")
_COLOURS = matplotlib.colormaps["Blues"]
_MAX_NUMBERED = 8
"""Steps along an axis up to which each field of a map shows its numbers."""
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


def draw_paper_figures(
    sweep: Sweep,
    *,
    published: Published = lambda _: None,
    features: FeatureMaps | None = None,
) -> tuple[RenderedFigure, ...]:
    """Every figure of `paper_drawings`, rendered."""
    with matplotlib.rc_context(style.RC):
        drawings = paper_drawings(sweep, published=published, features=features)
        return tuple(render(kind, drawing) for kind, drawing in drawings.items())


def paper_drawings(
    sweep: Sweep,
    *,
    published: Published = lambda _: None,
    features: FeatureMaps | None = None,
) -> dict[str, Drawing]:
    """Every figure that a sweep has data for, finished or not; gaps stay visible.

    A sweep over severities gives accuracy by severity, one over a detector's errors their map, any
    other accuracy over tasks, gain over vanilla, cost against accuracy and cost relative to full
    relearning.

    Args:
        sweep: planned and finished runs.
        published: the published accuracy of a place.
        features: maps of the first task's classes.
    """
    points = grid_points(sweep)
    styles = style.styles_of(point.adaptation for point in points)
    drawings = list(_drawings(points, sweep, styles, published))
    if features is not None:
        done = next((point.cell.first for point in points if point.cell is not None), None)
        drawing = draw_feature_maps(
            features,
            title=sweep.name if done is None else done.benchmark,
            notes=f"Two dimensions by {projection()}. {scale_words(sweep, points)}",
            class_names=() if done is None else done.class_names,
        )
        drawings.append(("features", drawing))
    return {
        re.sub(r"[^A-Za-z0-9+-]+", "-", kind).strip("-")[:100]: drawing
        for kind, drawing in drawings
        if drawing is not None
    }


def _drawings(
    points: Sequence[GridPoint], sweep: Sweep, styles: style.Styles, published: Published
) -> Iterator[tuple[str, Drawing | None]]:
    """File names without their ending, and what goes into them."""
    if _is_over(SEVERITY_NAMES, points):
        for name, here in _by_setting("severity", points, SEVERITY_NAMES):
            yield name, severity_panels(here, sweep, styles)
        return
    if _is_over(ERROR_NAMES, points):
        for name, here in _by_setting("detector", points, ERROR_NAMES):
            yield name, detector_map(here, sweep)
        return
    groups = groups_of(points)
    for group in groups:
        yield f"accuracy-{group.slug}", accuracy_grid(group, sweep, styles)
    for name in distinct(f"{group.benchmark}{group.suffix}" for group in groups):
        alike = [group for group in groups if f"{group.benchmark}{group.suffix}" == name]
        yield f"gain-{name}", gain_bars(alike, sweep, styles, published)
    for group in groups:
        if group.num_drifts or len(group.adaptations) > 1:
            yield f"cost-{group.slug}", cost_scatter(group, sweep, styles)
            yield f"radar-{group.slug}", radar_grid(group, sweep, styles)


def _is_over(names: Sequence[str], points: Sequence[GridPoint]) -> bool:
    """Whether a sweep knows all these settings, and its places differ in one of them."""
    known = any(all(point.place.get(name) is not None for name in names) for point in points)
    return known and any(name in point.others for point in points for name in names)


def _by_setting(
    kind: str, points: Sequence[GridPoint], names: Sequence[str]
) -> Iterator[tuple[str, list[GridPoint]]]:
    """A file name, and the places that are alike in all but `names` and the adaptation.

    A place without drift belongs to every number of drifts.
    """

    def setting(point: GridPoint) -> str:
        variant = point.variant(*names)
        return f"{kind}-{point.benchmark}-{variant}-b{point.buffer_size or 0}"

    drifted = [point for point in points if point.num_drifts]
    for name, count in distinct((setting(point), point.num_drifts) for point in drifted):
        alike = [point for point in points if setting(point) == name]
        here = [point for point in alike if point.num_drifts == count]
        yield f"{name}-d{count}", [*here, *(point for point in alike if not point.num_drifts)]


def accuracy_grid(group: Group, sweep: Sweep, styles: style.Styles) -> Drawing:
    """After each task the mean accuracy over the tasks seen so far: methods x buffers.

    Methods and buffers of which nothing has run are named, and get no empty panels.
    """
    notes = scale_words(sweep, group.points) + group.absent_words
    group = group.begun()
    runs = [point.cell.first for point in group.points if point.cell is not None]
    num_tasks = max(run.num_tasks for run in runs)

    def draw(panel: Axes, key: tuple[str, int | None]) -> str:
        variant, buffer = key
        points = group.at(variant, buffer)
        undrifted = group.undrifted_at(variant, buffer)
        if undrifted is not None:
            draw_curve(panel, undrifted, _UNDRIFTED, marker_size=4)
        done = [(p.cell, styles[p.adaptation]) for p in points if p.cell is not None]
        for cell, line in done:
            draw_curve(panel, cell, line, marker_size=4)
        if done:
            draw_changes(panel, done[0][0].first)
        remark(panel, gaps(points))
        panel.set(xlim=(0.6, num_tasks + 0.4), ylim=(0, 102), xticks=few_ticks(num_tasks, most=10))
        panel.grid(axis="y")
        ends = [None if point.cell is None else by_task(point.cell)[-1] for point in points]
        named = (f"{p.adaptation} {_mean(end)}" for p, end in zip(points, ends, strict=True))
        return f"{variant}, {buffer_words(buffer)}: {', '.join(named)}"

    legend = [line_handle(styles[name], name) for name in group.adaptations]
    if group.undrifted:
        legend.append(line_handle(_UNDRIFTED, "vanilla, no drift"))
    if group.num_drifts:
        drift = style.Style(colour=style.DRIFT, marker="", line=style.DASHED)
        legend.append(line_handle(drift, "drift"))
    grey = " Grey: the same without drift." if group.undrifted else ""
    return chart(
        "Accuracy over tasks",
        group.title,
        group.panels,
        (2.2, 1.9),
        draw,
        columns=len(group.variants),
        titles=[short(variant, 24) for variant in group.variants],
        x="after task",
        y=[f"{buffer_words(each)}\nmean accuracy (%)" for each in group.buffers],
        legend=legend,
        caption="Mean accuracy over all tasks seen so far, measured after each task. Bands: one "
        "sample standard deviation over seeds to either side. A vertical orange line marks drift."
        f"{grey} {describe_events(runs[0])}",
        alt="Line charts of mean accuracy after each task, one per method and buffer; at the end:",
        notes=notes,
    )


def _mean(stat: Stat | None) -> str:
    return "missing" if stat is None else f"{stat.mean:.1f}"


def severity_panels(
    points: Sequence[GridPoint], sweep: Sweep, styles: style.Styles
) -> Drawing | None:
    """Final accuracy at each severity, one panel per transform; None if no run with drift is done.

    Args:
        points: differ in transform, severity and adaptation only. Those without drift give the
            level that the others are compared with.
        sweep: their sweep.
        styles: by adaptation.
    """
    undrifted = [p for p in points if not p.num_drifts or p.place.get("transform") in _UNCHANGED]
    drifted = [point for point in points if point not in undrifted]
    if all(point.cell is None for point in drifted):
        return None
    severities = sorted({_severity(point) for point in drifted})
    adaptations = sorted(distinct(point.adaptation for point in drifted), key=place_of)
    # The accuracy without drift, by preference without adaptation.
    by_preference = sorted(undrifted, key=lambda point: place_of(point.adaptation))
    level = next((point.faa for point in by_preference if point.cell is not None), None)

    def draw(panel: Axes, transform: str) -> str:
        here = [point for point in drifted if point.place["transform"] == transform]
        if level is not None:
            spread = level.sd or 0.0
            panel.axhline(level.mean, color=style.MUTED, linewidth=1, zorder=1)
            ends = level.mean - spread, level.mean + spread
            panel.axhspan(*ends, color=style.MUTED, alpha=0.12, linewidth=0)
        words = []
        for name in adaptations:
            line = [p for p in here if p.adaptation == name and p.faa is not None]
            known = {_severity(point): point.faa for point in line}
            stats = [known.get(severity) for severity in severities]
            form = styles[name]
            means, spreads = means_and_spreads(stats)
            draw_band(panel, severities, means, spreads, form.colour, **form.line_options(4.5))
            for point in line:
                if point.faa is not None:
                    mark_point(panel, point, _severity(point), point.faa.mean)
            words.append(f"{name} {', '.join(map(_mean, stats))}")
        if missing := sum(point.cell is None for point in here):
            remark(panel, [f"{missing} of {len(here)} points not run yet"])
        panel.set(title=transform, ylim=(0, 102))
        panel.set_xlim(min(severities) - 0.3, max(severities) + 0.3)
        panel.set_xticks(severities, [f"{severity:g}" for severity in severities])
        panel.grid(axis="y")
        return f"{transform}: {'; '.join(words)}"

    legend = [line_handle(styles[name], name) for name in adaptations]
    compared = "There is no run without drift to compare with."
    if level is not None:
        label = f"no drift {stat_words(level)}"
        legend.append(Line2D([], [], color=style.MUTED, linewidth=1, label=label))
        compared = f"Grey line: vanilla without drift, {stat_words(level)}."
    return chart(
        "Accuracy by severity",
        setting_words(drifted[0], *SEVERITY_NAMES),
        distinct(str(point.place["transform"]) for point in drifted),
        (2.7, 2.1),
        draw,
        x="severity",
        y="final accuracy (%)",
        legend=legend,
        caption="Final average accuracy after drift of each kind and severity, mean over seeds; "
        f"bands: one sample standard deviation to either side. {compared}",
        alt="Line charts of final accuracy against severity;",
        notes=scale_words(sweep, points),
    )


def _severity(point: GridPoint) -> float:
    return float(point.place.get("severity") or 0)


def detector_map(points: Sequence[GridPoint], sweep: Sweep) -> Drawing | None:
    """Final accuracy by rate of drifts found and rate of false alarms, a map per adaptation.

    `points` differ in tpr, fpr and adaptation only; those without a tpr had no detector and are
    in the caption. None if no field is known.
    """
    fields = [p for p in points if None not in [p.place.get(name) for name in ERROR_NAMES]]
    known = [point.faa.mean for point in fields if point.faa is not None]
    if not known:
        return None
    rates = {p: [float(p.place[name] or 0) for name in ERROR_NAMES] for p in fields}
    found, alarmed = (sorted(set(column)) for column in zip(*rates.values(), strict=True))
    low = 5 * np.floor(min(known) / 5)
    high = max(5 * np.ceil(max(known) / 5), low + 5)

    def draw(panel: Axes, name: str) -> str:
        table = np.full((len(found), len(alarmed)), np.nan)
        words = []
        for point in (point for point in fields if point.adaptation == name):
            tpr, fpr = rates[point]
            words.append(f"{tpr:g} found and {fpr:g} alarmed {_mean(point.faa)}")
            if point.faa is None:
                continue
            row, column = found.index(tpr), alarmed.index(fpr)
            table[row, column] = point.faa.mean
            if max(table.shape) <= _MAX_NUMBERED:
                text = panel.text(column + 0.5, row + 0.5, _field(point), fontsize=7)
                is_dark = point.faa.mean > low + 0.55 * (high - low)
                text.set(ha="center", va="center", color="white" if is_dark else style.INK)
        panel.patch.set(facecolor="white", edgecolor=style.FAINT, hatch="////")
        colours = {"cmap": _COLOURS, "vmin": low, "vmax": high}
        panel.pcolormesh(np.ma.masked_invalid(table), **colours, edgecolors="white", linewidth=1.5)
        panel.set_title(name)
        panel.set_xticks(np.arange(len(alarmed)) + 0.5, [f"{rate:g}" for rate in alarmed])
        panel.set_yticks(np.arange(len(found)) + 0.5, [f"{rate:g}" for rate in found])
        panel.tick_params(length=0)
        return f"{name}: {', '.join(words)}"

    rest = "; ".join(
        f"{point.adaptation}, {drift_words(point.num_drifts)} "
        + ("not run yet" if point.faa is None else f"{point.faa.mean:.1f}")
        for point in points
        if point not in fields
    )
    return chart(
        "Accuracy by detector error",
        setting_words(fields[0], *ERROR_NAMES),
        sorted(distinct(point.adaptation for point in fields), key=place_of),
        (max(2.2, 0.9 * len(alarmed)), max(2.0, 0.7 + 0.46 * len(found))),
        draw,
        x="rate of false alarms",
        y="rate of drifts found",
        finish=lambda grid: grid.add_colour_bar(_COLOURS, low, high, "final accuracy (%)"),
        caption="Final average accuracy in percent, mean over seeds, where the detector finds a "
        "given fraction of the drifts and raises a given fraction of false alarms; below it the labels "
        "that adaptation requested. Hatched: not run yet."
        + (f" For comparison: {rest}." if rest else ""),
        alt="Heat maps of final accuracy;",
        notes=scale_words(sweep, points),
    )


def _field(point: GridPoint) -> str:
    """Accuracy and labels in a field of a map."""
    assert point.cell is not None
    assert point.faa is not None
    labels = point.cell.mean(lambda run: run.labels.get("adaptation"))
    spread = "" if point.faa.sd is None else f" ±{point.faa.sd:.1f}"
    below = "" if labels is None else f"\n{labels:,.0f} labels"
    return f"{point.faa.mean:.1f}{spread}{mark(point.cell)}{below}"


def gain_bars(
    groups: Sequence[Group],
    sweep: Sweep,
    styles: style.Styles,
    published: Published = lambda _: None,
) -> Drawing | None:
    """Accuracy of each adaptation minus that of `vanilla`, by method: drift counts x buffers.

    `groups` are of one benchmark, with the same methods. None if nothing can be compared.
    """
    notes = scale_words(sweep, [point for group in groups for point in group.points])
    notes += "".join(distinct(group.absent_words for group in groups))
    groups = [group.begun() for group in groups]
    adaptations = [a for a in distinct(a for g in groups for a in g.adaptations) if a != FLOOR]
    buffers = distinct(buffer for group in groups for buffer in group.buffers)
    gains = {
        (group, buffer): {
            variant: _gains(group.at(variant, buffer), adaptations, published)
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
    ticks = {
        (group, buffer): [_tick(name, row, group.at(name, buffer)) for name, row in rows.items()]
        for (group, buffer), rows in gains.items()
    }
    longest = max(
        len(line) for each in ticks.values() for tick in each for line in tick.split("\n")
    )
    width_of_method = max(0.95, 0.3 * len(bars), 0.066 * longest)

    def draw(panel: Axes, key: tuple[Group, int | None]) -> str:
        group, buffer = key
        rows = gains[key]
        panel.axhline(0, color=style.MUTED, linewidth=0.8)
        for index, row in enumerate(rows.values()):
            _draw_bars(panel, index, row, bars)
        panel.set_xticks(range(len(rows)), ticks[key], fontsize=7, linespacing=1.25)
        where = f"{drift_words(group.num_drifts)}, {buffer_words(buffer)}"
        panel.set(xlim=(-0.55, num_methods - 0.45), title=where)
        panel.tick_params(axis="x", length=0)
        panel.grid(axis="y")
        return "; ".join(f"{name}, {where}: {_gain_words(row)}" for name, row in rows.items())

    def share_y(grid: Facets) -> None:
        ends = [end for panel in grid.panels for end in panel.get_ylim()]
        for panel in grid.panels:
            panel.set_ylim(min(ends), max(ends))

    legend: list[Artist] = [Patch(**face, label=name) for name, face in bars.items()]
    diamonds = ""
    if any(theirs is not None for _, theirs in found):
        legend.append(Line2D([], [], label="published, at the paper's scale", **_DIAMOND))
        diamonds = " Diamonds: the published means, at the paper's scale."
    return chart(
        "Gain over vanilla",
        groups[0].benchmark,
        list(gains),
        (max(2.0, width_of_method * num_methods), 2.4 + 0.13 * len(bars)),
        draw,
        columns=len(groups),
        x="",
        y="gain in final accuracy\n(percentage points)",
        share_x=False,
        finish=share_y,
        legend=legend,
        caption="Final average accuracy of each adaptation minus that of vanilla under the same "
        "drift, seed by seed; bars: means, whiskers: one sample standard deviation of the "
        f"differences, a dash: not run yet.{diamonds}",
        alt="Bar charts of the gain over vanilla in percentage points;",
        notes=notes,
    )


def _gains(
    points: Sequence[GridPoint], adaptations: Sequence[str], published: Published
) -> dict[str, Pair]:
    """Of each adaptation in one panel, our gain over vanilla and the published one."""
    by_name = {point.adaptation: point for point in points}
    floor = by_name.get(FLOOR)
    gains: dict[str, Pair] = {}
    for name in adaptations:
        point = by_name.get(name)
        if point is None or floor is None:
            gains[name] = None, None
            continue
        ends = published(point.place), published(floor.place)
        theirs = None if ends[0] is None or ends[1] is None else ends[0] - ends[1]
        gains[name] = paired_gain(point.cell, floor.cell), theirs
    return gains


def paired_gain(cell: Cell | None, floor: Cell | None) -> Stat | None:
    """The difference in final average accuracy over the seeds that both have."""
    if cell is None or floor is None:
        return None
    before = {run.seed: run.faa for run in floor.runs}
    pairs = [(run.faa, before.get(run.seed)) for run in cell.runs]
    return stat_of(a - b for a, b in pairs if a is not None and b is not None)


def _draw_bars(
    panel: Axes, place: int, row: Mapping[str, Pair], bars: Mapping[str, dict[str, Any]]
) -> None:
    """The bars of one method, together 0.74 wide, of the 1 that a method has."""
    width = 0.74 / len(bars)
    for index, (name, (ours, theirs)) in enumerate(row.items()):
        at = place + (index - (len(row) - 1) / 2) * width
        if ours is None:
            panel.text(at, 0, "–", ha="center", va="bottom", color=style.MUTED)
        else:
            line: dict[str, Any] = {"ecolor": style.INK, "capsize": 2.5}
            line["error_kw"] = {"linewidth": 1}
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


def _gain_words(row: Mapping[str, Pair]) -> str:
    return ", ".join(
        f"{name} {'missing' if ours is None else f'{ours.mean:+.1f}'}"
        + ("" if theirs is None else f" (published {theirs:+.1f})")
        for name, (ours, theirs) in row.items()
    )
