"""How much accuracy drift costs a class, counted and estimated, and the fraction that drifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from driftwise.report import style
from driftwise.report.cells import Setting
from driftwise.report.events import Outcome, outcomes_of
from driftwise.report.facets import Drawing, facets, short
from driftwise.report.run import Run, Verdict
from driftwise.report.verdicts import FACES, SPARED, outcome_patches

MAX_ROWS = 30
"""Checks of a class that are shown; the page's list of runs has more."""

_SHOWN = (Outcome.FOUND, Outcome.MISSED, Outcome.FALSE_ALARM, Outcome.BESIDE)
_MARKERS: dict[str, dict[str, Any]] = {
    "counted": {"marker": "o", "markersize": 4, "markerfacecolor": style.INK},
    "estimated": {"marker": "D", "markersize": 6, "markerfacecolor": "none"},
}
"""The one fits into the other: where both agree, both are seen."""

Check = tuple[int, int]
"""A task and the class that was checked there."""

Judged = tuple[Verdict, Outcome]


def harm_dots(setting: Setting) -> Drawing | None:
    """A line for each class that drifted or was flagged, at each task; the first seed."""
    found = {
        label: (cell.first, shown)
        for cell, label in zip(setting.cells, setting.labels, strict=True)
        if (shown := worth_showing(cell.first))
    }
    if not found:
        return None
    checks = sorted({check for _, shown in found.values() for check in shown})
    rows = checks[:MAX_ROWS]
    judged = [each for _, shown in found.values() for each in shown.values()]
    lowest = min(_lower_end(verdict) for verdict, _ in judged)
    grid = facets(len(found), (3.4 if len(found) > 1 else 6.4, 1.1 + 0.2 * len(rows)))
    for panel, (label, (run, shown)) in zip(grid.panels, found.items(), strict=True):
        for row, check in enumerate(rows):
            if check in shown:
                _draw_row(panel, row, *shown[check])
        _draw_limits(panel, run, rows, lowest)
        if any(verdict.share is not None for verdict, _ in shown.values()):
            _annotate(panel, "drifted", (1.0, 1.0), (18, 4), color=style.MUTED)
        panel.set_title(f"{short(label, 22)}, seed {run.seed}", pad=14)
        panel.set_yticks(range(len(rows)), _row_names(setting.first, rows))
        panel.tick_params(axis="y", length=0)
    grid.label("points of accuracy lost", share_x=False)
    for panel in grid.left:
        _annotate(panel, "class", (0.0, 1.0), (-5, 4), ha="right", color=style.MUTED)
    grid.add_legend(_legend(judged))
    return Drawing(
        figure=grid.figure,
        title="What the drift cost",
        caption=_caption(setting, judged, left_out=len(checks) - len(rows)),
        alt="Dot plots of the accuracy that classes lost to drift; "
        + "; ".join(f"{label}: {_tally(shown)}" for label, (_, shown) in found.items())
        + ".",
    )


def worth_showing(run: Run) -> Mapping[Check, Judged]:
    """Checks of classes that drifted or were flagged, and of which the harm is known."""
    judged = zip(run.verdicts, outcomes_of(run), strict=True)
    return {(v.task, v.label): (v, o) for v, o in judged if o in _SHOWN and v.has_harm}


def _row_names(run: Run, rows: Sequence[Check]) -> list[str]:
    """The class, and the task where it is not that of the row above."""
    names = []
    for index, (task, label) in enumerate(rows):
        is_first = index == 0 or rows[index - 1][0] != task
        names.append(f"{f'task {task}   ' if is_first else ''}{short(run.class_names[label], 12)}")
    return names


def _lower_end(verdict: Verdict) -> float:
    error = verdict.harm_error or 0.0
    return min((verdict.harm or 0.0) - 2 * error, verdict.harm_unlabelled or 0.0)


def _draw_row(panel: Axes, row: int, verdict: Verdict, outcome: Outcome) -> None:
    line: dict[str, Any] = {"color": style.INK, "zorder": 3}
    if verdict.harm is not None:
        reach = 2 * max(0.0, verdict.harm_error or 0.0)
        bars = [[reach], [np.clip(100 - verdict.harm, 0, reach)]]  # to 100: all is lost
        marker = _MARKERS["counted"]
        panel.errorbar(verdict.harm, row, xerr=bars, elinewidth=1.1, capsize=2, **line, **marker)
    if verdict.harm_unlabelled is not None:
        panel.plot(verdict.harm_unlabelled, row, **line, **_MARKERS["estimated"])
    across = panel.get_yaxis_transform()
    if verdict.spared:
        panel.add_patch(Rectangle((0, row - 0.42), 1, 0.84, transform=across, **SPARED))
    face, sign = FACES[outcome]
    beside: dict[str, Any] = {"xycoords": across, "va": "center"}
    box = {"facecolor": face, "edgecolor": "none", "pad": 1.5}
    _annotate(panel, sign, (1.0, row), (9, 0), ha="center", bbox=box, **beside)
    _annotate(panel, verdict.share_words, (1.0, row), (18, 0), **beside)


def _annotate(
    panel: Axes, text: str, at: tuple[float, float], points: tuple[float, float], **options: Any
) -> None:
    """Small words beside a place of the panel, so many points away."""
    options = {"xycoords": "axes fraction", "fontsize": 7.5, **options}
    panel.annotate(text, at, xytext=points, textcoords="offset points", **options)


def _draw_limits(panel: Axes, run: Run, rows: Sequence[Check], lowest: float) -> None:
    panel.set(xlim=(min(-4.0, lowest - 3), 104), ylim=(len(rows) - 0.5, -0.5))
    panel.grid(axis="x")
    panel.axvline(0, color=style.MUTED, linewidth=0.8)
    for place, (above, below) in enumerate(pairwise(rows)):
        if above[0] != below[0]:
            panel.axhline(place + 0.5, color=style.FAINT, linewidth=0.8)
    if run.min_harm is not None:
        panel.axvline(run.min_harm, color=style.DRIFT, linewidth=1.1, linestyle=style.DASHED)
        at = run.min_harm, 1.0
        line = {"xycoords": ("data", "axes fraction"), "color": style.DRIFT}
        _annotate(panel, f"min_harm {run.min_harm:g}", at, (0, 3), **line)


def _legend(judged: Sequence[Judged]) -> list[Artist]:
    verdicts = [verdict for verdict, _ in judged]
    words = {
        "counted": any(v.harm is not None for v in verdicts) and "counted by labels",
        "estimated": any(v.harm_unlabelled is not None for v in verdicts)
        and "estimated without labels",
    }
    handles: list[Artist] = [
        Line2D([], [], color=style.INK, linestyle="", label=label, **_MARKERS[kind])
        for kind, label in words.items()
        if label
    ]
    if any(verdict.spared for verdict in verdicts):
        handles.append(Patch(**SPARED, label="spared"))
    return [*handles, *outcome_patches({outcome for _, outcome in judged})]


def _caption(setting: Setting, judged: Sequence[Judged], *, left_out: int) -> str:
    verdicts = [verdict for verdict, _ in judged]
    parts = {
        "How much accuracy on a class the learner had lost to drift when it was checked: each "
        "class that had drifted or was flagged, the first seed.": True,
        "Bars: two standard errors to either side.": any(v.harm is not None for v in verdicts),
        "The estimate without labels comes out too small for the worst drifts.": any(
            v.harm_unlabelled is not None for v in verdicts
        ),
        "Drifted: at least this fraction of the samples is of the new concept, ± one standard "
        "error.": any(v.share is not None for v in verdicts),
        "Drift whose harm, counted where there are labels, lies to the left of min_harm is spared: "
        "no labels are spent on it.": any(c.first.min_harm is not None for c in setting.cells),
        f"{left_out} more are not shown; the runs below list them.": left_out > 0,
    }
    return " ".join(words for words, applies in parts.items() if applies)


def _tally(shown: Mapping[Check, Judged]) -> str:
    verdicts = [verdict for verdict, _ in shown.values()]
    counted = [v.harm for v in verdicts if v.harm is not None]
    estimated = [v.harm_unlabelled for v in verdicts if v.harm_unlabelled is not None]
    words = [
        f"{name} {min(values):.0f} to {max(values):.0f} points"
        for name, values in (("counted", counted), ("estimated", estimated))
        if values
    ]
    num_spared = sum(verdict.spared for verdict in verdicts)
    return ", ".join([*words, *([f"{num_spared} spared"] if num_spared else [])])
