"""Cost as a multiple of full relearning's, in one radar per method and buffer."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, short
from driftwise.report.cells import Setting
from driftwise.report.costs import BASIS, draw_radar
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.cost_figures import asked_labels
from driftwise.reproduce.places import Group, Spot
from driftwise.reproduce.plate import (
    Frame,
    buffer_words,
    gaps,
    line_handles,
    plate,
    scale_words,
)


def radar_grid(group: Group, sweep: Sweep, looks: style.Looks) -> Drawing:
    """Costs as multiples of full relearning's, one radar per method and buffer."""
    variants, buffers = group.variants, group.buffers
    drawn = plate(
        len(variants) * len(buffers),
        1.75,
        1.75,
        columns=len(variants),
        frame=Frame(
            headline=f"Cost, full relearning = 1: {group.title}",
            notes=scale_words(sweep, group.spots),
            legend=tuple(line_handles(group.adaptations, looks)),
        ),
        margins=Margins(left=0.95, right=0.45, bottom=0.65, top=0.8, column_gap=0.8, row_gap=1.1),
        projection="polar",
    )
    places = [(variant, buffer) for buffer in buffers for variant in variants]
    words = []
    for panel, (variant, buffer) in zip(drawn.panels, places, strict=True):
        spots = group.at(variant, buffer)
        cells = tuple(spot.cell for spot in spots if spot.cell is not None)
        told = "missing"
        if cells:
            relative, told = draw_radar(panel, Setting(cells=cells, variant=""), looks)
            below = [f"labels: {_labels(spots)}", *gaps(spots)]
            if set(relative.basis) != {BASIS}:
                below.append("largest = 1" if BASIS not in relative.basis else "partly largest = 1")
            panel.tick_params(axis="x", labelsize=7, pad=5)
            panel.set_yticks(panel.get_yticks()[1::2])
        else:
            panel.set(xticks=[], yticks=[])
            panel.spines["polar"].set_color(style.FAINT)
            below = gaps(spots)
        panel.text(
            0.5,
            -0.14,
            "\n".join(below),
            transform=panel.transAxes,
            ha="center",
            va="top",
            fontsize=7,
            color=style.MUTED,
        )
        words.append(f"{variant}, {buffer_words(buffer)}: {told}")
    for panel, variant in zip(drawn.panels, variants, strict=False):
        panel.text(
            0.5,
            1.34,
            short(variant, 20),
            transform=panel.transAxes,
            ha="center",
            fontsize=9.5,
            fontweight="bold",
        )
    for panel, buffer in zip(drawn.left, buffers, strict=True):
        panel.text(
            -0.45,
            0.5,
            buffer_words(buffer),
            transform=panel.transAxes,
            rotation=90,
            ha="center",
            va="center",
        )
    return Drawing(
        figure=drawn.figure,
        title=f"Cost, relative, {group.title}",
        caption="Labels that adaptation asked for, seconds and FLOPs (training, detection and "
        f"adaptation) as multiples of full relearning: {BASIS} = 1; where {BASIS} is missing or "
        "costs nothing, the largest is 1. Closer to the centre is cheaper. Below each: labels in "
        f"absolute numbers. {scale_words(sweep, group.spots)}",
        alt="Radar charts of relative costs (labels, seconds, FLOPs): " + "; ".join(words) + ".",
    )


def _labels(spots: Sequence[Spot]) -> str:
    words = []
    for spot in spots:
        asked = asked_labels(spot)
        if asked is not None:
            words.append(f"{spot.adaptation} {asked:,.0f}")
    return ", ".join(words) or "unknown"
