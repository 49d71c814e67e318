"""What drift costs a class, counted and estimated, and how much of the class has moved."""

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
from driftwise.report.canvas import Drawing, Margins, panels, short, text_inches
from driftwise.report.cells import Setting
from driftwise.report.events import Outcome, outcomes_of
from driftwise.report.run import Run, Verdict
from driftwise.report.verdicts import FACES, SPARED, outcome_patches

MAX_ROWS = 30
"""Checks of a class that are shown; the page's list of runs has more."""

_SHOWN = (Outcome.FOUND, Outcome.MISSED, Outcome.FALSE_ALARM, Outcome.BESIDE)
_LOOKS: dict[str, dict[str, Any]] = {
    "counted": {"marker": "o", "markersize": 4, "markerfacecolor": style.INK},
    "estimated": {"marker": "D", "markersize": 6, "markerfacecolor": "none"},
}
"""The one fits into the other: where both agree, both are seen."""

Check = tuple[int, int]
"""A task and the class that was checked there."""

Judged = tuple[Verdict, Outcome]


def harm_dots(setting: Setting) -> Drawing | None:
    """A row for each class that drifted or was flagged, at each task; the first seed."""
    told = {
        label: (cell.first, shown)
        for cell, label in zip(setting.cells, setting.labels, strict=True)
        if (shown := worth_showing(cell.first))
    }
    if not told:
        return None
    checks = sorted({check for _, shown in told.values() for check in shown})
    rows = checks[:MAX_ROWS]
    names = _row_names(setting.first, rows)
    left, beside = 0.3 + text_inches(names), 1.05
    columns = min(len(told), 3)
    across = 10.6 - left - beside * columns - 0.2 * (columns - 1)
    figure, axes = panels(
        len(told),
        width=across / columns if columns > 1 else 5.6,
        height=max(0.9, 0.21 * len(rows)),
        margins=Margins(
            left=left, right=beside, bottom=0.9, top=0.5, column_gap=beside + 0.2, row_gap=0.95
        ),
    )
    lowest = min(_lower_end(v) for _, shown in told.values() for v, _ in shown.values())
    for index, (panel, (label, (run, shown))) in enumerate(zip(axes, told.items(), strict=True)):
        for row, check in enumerate(rows):
            if check in shown:
                _draw_row(panel, row, *shown[check])
        _dress(panel, run, rows, lowest)
        if any(verdict.share is not None for verdict, _ in shown.values()):
            _write_above(panel, "moved", (1.0, 1.0), (18, 4))
        panel.set_title(f"{short(label, 22)}, seed {run.seed}", pad=14)
        panel.set_yticks(range(len(rows)), names)
        panel.tick_params(axis="y", length=0, labelleft=index % 3 == 0)
        if index % 3 == 0:
            _write_above(panel, "class", (0.0, 1.0), (-5, 4), ha="right")
    everything = [judged for _, shown in told.values() for judged in shown.values()]
    figure.legend(
        handles=_legend(everything),
        loc="lower center",
        ncols=7,
        handlelength=1.5,
        columnspacing=1.6,
    )
    return Drawing(
        figure=figure,
        title="What the drift cost",
        caption=_caption(setting, everything, left_out=len(checks) - len(rows)),
        alt="Dot plots of the accuracy that classes lost to drift; "
        + "; ".join(f"{label}: {_tally(shown)}" for label, (_, shown) in told.items())
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
    if verdict.harm is not None:
        reach = 2 * max(0.0, verdict.harm_error or 0.0)
        panel.errorbar(
            verdict.harm,
            row,
            xerr=[[reach], [np.clip(100 - verdict.harm, 0, reach)]],  # to 100: all is lost
            color=style.INK,
            elinewidth=1.1,
            capsize=2,
            zorder=3,
            **_LOOKS["counted"],
        )
    if verdict.harm_unlabelled is not None:
        panel.plot(verdict.harm_unlabelled, row, color=style.INK, zorder=4, **_LOOKS["estimated"])
    if verdict.spared:
        frame = Rectangle((0, row - 0.42), 1, 0.84, **SPARED)
        frame.set_transform(panel.get_yaxis_transform())
        panel.add_patch(frame)
    face, sign = FACES[outcome]
    _write_beside(
        panel, row, 9, sign, ha="center", bbox={"facecolor": face, "edgecolor": "none", "pad": 1.5}
    )
    _write_beside(panel, row, 18, verdict.share_words)


def _write_beside(panel: Axes, row: int, points: float, text: str, **look: Any) -> None:
    panel.annotate(
        text,
        (1.0, row),
        xycoords=panel.get_yaxis_transform(),
        xytext=(points, 0),
        textcoords="offset points",
        va="center",
        fontsize=7.5,
        **look,
    )


def _write_above(
    panel: Axes, text: str, corner: tuple[float, float], points: tuple[float, float], **look: Any
) -> None:
    panel.annotate(
        text,
        corner,
        xycoords="axes fraction",
        xytext=points,
        textcoords="offset points",
        fontsize=7.5,
        color=style.MUTED,
        **look,
    )


def _dress(panel: Axes, run: Run, rows: Sequence[Check], lowest: float) -> None:
    panel.set_xlim(min(-4.0, lowest - 3), 104)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlabel("points of accuracy lost")
    panel.grid(axis="x")
    panel.axvline(0, color=style.MUTED, linewidth=0.8)
    for place, (above, below) in enumerate(pairwise(rows)):
        if above[0] != below[0]:
            panel.axhline(place + 0.5, color=style.FAINT, linewidth=0.8)
    if run.min_harm is not None:
        panel.axvline(run.min_harm, color=style.DRIFT, linewidth=1.1, linestyle=(0, (4, 2)))
        panel.annotate(
            f"min_harm {run.min_harm:g}",
            (run.min_harm, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=7.5,
            color=style.DRIFT,
        )


def _legend(shown: Sequence[Judged]) -> list[Artist]:
    words = {
        "counted": "counted by labels" if any(v.harm is not None for v, _ in shown) else "",
        "estimated": "estimated without labels"
        if any(v.harm_unlabelled is not None for v, _ in shown)
        else "",
    }
    handles: list[Artist] = [
        Line2D([], [], color=style.INK, linestyle="", label=label, **_LOOKS[kind])
        for kind, label in words.items()
        if label
    ]
    if any(verdict.spared for verdict, _ in shown):
        handles.append(Patch(**SPARED, label="spared"))
    met = {outcome for _, outcome in shown}
    return [*handles, *outcome_patches(met)]


def _caption(setting: Setting, shown: Sequence[Judged], *, left_out: int) -> str:
    words = [
        "How much accuracy on a class the learner has lost to its change of look when it was"
        " checked: each class that had drifted or was flagged, the first seed.",
    ]
    if any(v.harm is not None for v, _ in shown):
        words.append("Bars: two standard errors to either side.")
    if any(v.harm_unlabelled is not None for v, _ in shown):
        words.append("The estimate without labels comes out too small for the worst drifts.")
    if any(v.share is not None for v, _ in shown):
        words.append("Moved: at least this share of the rows looks new, ± one standard error.")
    if any(cell.first.min_harm is not None for cell in setting.cells):
        words.append(
            "Drift whose harm, counted where there are labels, lies to the left of min_harm is"
            " spared: no labels are spent on it."
        )
    if left_out:
        words.append(f"{left_out} more are not shown; the runs below list them.")
    return " ".join(words)


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
