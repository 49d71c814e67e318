"""Accuracy over tasks, in one panel per method and buffer."""

from __future__ import annotations

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, short
from driftwise.report.cells import Stat
from driftwise.report.curves import by_task, draw_changes, draw_curve, few_ticks
from driftwise.report.events import describe_events
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.places import Group, Spot
from driftwise.reproduce.plate import (
    Frame,
    buffer_words,
    drift_handle,
    gaps,
    line_handle,
    line_handles,
    plate,
    remark,
    scale_words,
)

_CALM = style.Look(colour="#9aa3ad", marker="", line="-")


def accuracy_grid(group: Group, sweep: Sweep, looks: style.Looks) -> Drawing:
    """After each task the mean accuracy over the tasks seen so far: methods x buffers.

    Methods and buffers of which nothing has run are named, and get no empty panels.
    """
    begun = [
        (variant, buffer)
        for variant in group.variants
        for buffer in group.buffers
        if any(spot.cell is not None for spot in group.at(variant, buffer))
    ]
    variants = [each for each in group.variants if each in {variant for variant, _ in begun}]
    buffers = [each for each in group.buffers if each in {buffer for _, buffer in begun}]
    absent = [
        *(variant for variant in group.variants if variant not in variants),
        *(buffer_words(buffer) for buffer in group.buffers if buffer not in buffers),
    ]
    scale = scale_words(sweep, group.spots)
    if absent:
        scale = f"{scale} Not run yet: {', '.join(absent)}."
    legend = line_handles(group.adaptations, looks)
    if group.calm:
        legend.append(line_handle(_CALM, "vanilla, no drift"))
    if group.num_drifts:
        legend.append(drift_handle())
    drawn = plate(
        len(variants) * len(buffers),
        2.05,
        1.75,
        columns=len(variants),
        frame=Frame(
            headline=f"Accuracy over tasks: {group.title}",
            notes=scale,
            legend=tuple(legend),
        ),
        margins=Margins(left=0.8, bottom=0.5, top=0.3, column_gap=0.2, row_gap=0.35),
    )
    places = [(variant, buffer) for buffer in buffers for variant in variants]
    done = [spot.cell.first for spot in group.spots if spot.cell is not None]
    num_tasks = max(run.num_tasks for run in done)
    endings = []
    for panel, (variant, buffer) in zip(drawn.panels, places, strict=True):
        spots = group.at(variant, buffer)
        calm = group.calm_at(variant, buffer)
        if calm is not None:
            draw_curve(panel, calm, _CALM, marker_size=4)
        for spot in spots:
            if spot.cell is not None:
                draw_curve(panel, spot.cell, looks[spot.adaptation], marker_size=4)
        runs = [spot.cell.first for spot in spots if spot.cell is not None]
        if runs:
            draw_changes(panel, runs[0])
        remark(panel, gaps(spots))
        panel.set(xlim=(0.6, num_tasks + 0.4), ylim=(0, 102), xticks=few_ticks(num_tasks, most=10))
        panel.tick_params(labelleft=panel in drawn.left, labelbottom=panel in drawn.bottom)
        panel.grid(axis="y")
        endings.append(f"{variant}, {buffer_words(buffer)}: {_endings(spots)}")
    for panel, variant in zip(drawn.panels, variants, strict=False):
        panel.set_title(short(variant, 24))
    for panel, buffer in zip(drawn.left, buffers, strict=True):
        panel.set_ylabel(f"{buffer_words(buffer)}\nmean accuracy (%)")
    for panel in drawn.bottom:
        panel.set_xlabel("after task")
    grey = " Grey: the same without drift." if group.calm else ""
    return Drawing(
        figure=drawn.figure,
        title=f"Accuracy over tasks, {group.title}",
        caption="Mean accuracy over all tasks seen so far, measured after each task. Bands: one "
        "sample standard deviation over seeds to either side. A vertical orange line stands where "
        f"classes change their look.{grey} {describe_events(done[0])} "
        f"{scale}",
        alt="Line charts of mean accuracy after each task, one per method and buffer; at the end: "
        + "; ".join(endings)
        + ".",
    )


def _endings(spots: list[Spot]) -> str:
    stats = [(s.adaptation, None if s.cell is None else by_task(s.cell)[-1]) for s in spots]
    return ", ".join(f"{adaptation} {_words(stat)}" for adaptation, stat in stats)


def _words(stat: Stat | None) -> str:
    return "missing" if stat is None else f"{stat.mean:.1f}"
