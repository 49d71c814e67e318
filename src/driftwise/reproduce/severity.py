"""Accuracy against the severity of drift, one panel per transform."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins
from driftwise.report.cells import Stat, place_of
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.places import Spot, distinct, drift_words
from driftwise.reproduce.plate import (
    Frame,
    buffer_words,
    line_handles,
    mark_point,
    plate,
    remark,
    scale_words,
)

NAMES = ("transform", "severity")
_UNCHANGED = (None, "identity", "none", "original")


def severity_panels(spots: Sequence[Spot], sweep: Sweep, looks: style.Looks) -> Drawing | None:
    """Final accuracy at each severity; `spots` differ in transform, severity and adaptation only.

    Places without drift among them give the level that the others are compared with. None if no
    run with drift is done.
    """
    drifted = [spot for spot in spots if not is_calm(spot)]
    if not any(spot.cell is not None for spot in drifted):
        return None
    transforms = distinct(str(spot.place["transform"]) for spot in drifted)
    severities = sorted({_severity(spot) for spot in drifted})
    adaptations = sorted(distinct(spot.adaptation for spot in drifted), key=place_of)
    calm = _calm_level(spots)
    legend = line_handles(adaptations, looks)
    if calm is not None:
        legend.append(
            Line2D([], [], color=style.MUTED, linewidth=1, label=f"no drift {_told(calm)}")
        )
    first = drifted[0]
    title = f"{first.benchmark}, {first.variant(*NAMES)}, {buffer_words(first.buffer_size)}"
    title = f"{title}, {drift_words(first.num_drifts)}"
    drawn = plate(
        len(transforms),
        2.5,
        1.75,
        columns=3,
        frame=Frame(
            headline=f"Accuracy by severity: {title}",
            notes=scale_words(sweep, spots),
            legend=tuple(legend),
        ),
        margins=Margins(left=0.8, bottom=0.5, top=0.3, column_gap=0.25, row_gap=0.65),
    )
    words = []
    for index, (panel, transform) in enumerate(zip(drawn.panels, transforms, strict=True)):
        here = [spot for spot in drifted if spot.place["transform"] == transform]
        if calm is not None:
            _draw_level(panel, calm)
        for name in adaptations:
            _draw_line(panel, [s for s in here if s.adaptation == name], severities, looks[name])
        missing = sum(spot.cell is None for spot in here)
        if missing:
            remark(panel, [f"{missing} of {len(here)} points not run yet"])
        panel.set_title(transform)
        panel.set(ylim=(0, 102), xlim=(min(severities) - 0.3, max(severities) + 0.3))
        panel.set_xticks(severities, [f"{severity:g}" for severity in severities])
        panel.tick_params(labelleft=index % 3 == 0)
        panel.grid(axis="y")
        if index + 3 >= len(transforms):
            panel.set_xlabel("severity")
        if index % 3 == 0:
            panel.set_ylabel("final average accuracy (%)")
        words.append(f"{transform}: {_alt(here)}")
    level = (
        "There is no run without drift to compare with."
        if calm is None
        else f"Grey line: vanilla without drift, {_told(calm)}."
    )
    return Drawing(
        figure=drawn.figure,
        title=f"Accuracy by severity, {title}",
        caption="Final average accuracy after drift of each kind and severity, mean over seeds; "
        f"bands: one sample standard deviation to either side. {level} "
        f"{scale_words(sweep, spots)}",
        alt="Line charts of final accuracy against severity; " + "; ".join(words) + ".",
    )


def is_calm(spot: Spot) -> bool:
    """Whether nothing changes its look at this place."""
    return not spot.num_drifts or spot.place.get("transform") in _UNCHANGED


def _severity(spot: Spot) -> float:
    return float(spot.place.get("severity") or 0)


def _calm_level(spots: Sequence[Spot]) -> Stat | None:
    """The undrifted accuracy, by preference without adaptation."""
    calm = sorted(filter(is_calm, spots), key=lambda spot: place_of(spot.adaptation))
    cells = [spot.cell for spot in calm if spot.cell is not None]
    return cells[0].stat(lambda run: run.faa) if cells else None


def _draw_level(panel: Axes, calm: Stat) -> None:
    panel.axhline(calm.mean, color=style.MUTED, linewidth=1, zorder=1)
    if calm.sd is not None:
        panel.axhspan(
            calm.mean - calm.sd, calm.mean + calm.sd, color=style.MUTED, alpha=0.12, linewidth=0
        )


def _draw_line(
    panel: Axes, spots: Sequence[Spot], severities: Sequence[float], look: style.Look
) -> None:
    stats = {_severity(s): s.cell.stat(lambda r: r.faa) for s in spots if s.cell is not None}
    found = [stats.get(severity) for severity in severities]
    means = np.array([np.nan if stat is None else stat.mean for stat in found])
    spread = np.array([0.0 if stat is None else stat.sd or 0.0 for stat in found])
    panel.plot(
        severities,
        means,
        color=look.colour,
        linestyle=look.line,
        linewidth=1.6,
        marker=look.marker,
        markersize=4.5,
    )
    for spot in spots:
        if (stat := stats.get(_severity(spot))) is not None:
            mark_point(panel, spot, _severity(spot), stat.mean)
    panel.fill_between(
        severities, means - spread, means + spread, color=look.colour, alpha=0.14, linewidth=0
    )


def _alt(spots: Sequence[Spot]) -> str:
    words = []
    for name in sorted(distinct(spot.adaptation for spot in spots), key=place_of):
        line = sorted((s for s in spots if s.adaptation == name), key=_severity)
        means = [None if s.cell is None else s.cell.mean(lambda run: run.faa) for s in line]
        words.append(f"{name} " + ", ".join("missing" if m is None else f"{m:.1f}" for m in means))
    return "; ".join(words)


def _told(stat: Stat) -> str:
    return f"{stat.mean:.1f}" if stat.sd is None else f"{stat.mean:.1f} ± {stat.sd:.1f}"
