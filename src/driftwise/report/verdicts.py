"""The verdicts of a detector beside the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch, Rectangle

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, panels, short, text_inches
from driftwise.report.cells import Setting
from driftwise.report.events import Outcome, outcomes_of
from driftwise.report.grids import MAX_FRAMES, MAX_NUMBERED, draw_grid, set_ticks
from driftwise.report.run import Run, Verdict

FACES = {
    Outcome.FOUND: ("#8fd3bd", "✓"),
    Outcome.MISSED: ("#f09a6a", "✗"),
    Outcome.FALSE_ALARM: ("#f6cf6d", "!"),
    Outcome.BESIDE: ("#d9cdea", "~"),
    Outcome.QUIET: ("#eef1f4", "·"),
    Outcome.UNTESTABLE: ("#c3c9d0", "?"),
}
"""Tints of the palette under dark text, each with a symbol of its own."""

SPARED: dict[str, Any] = {
    "fill": False,
    "edgecolor": style.INK,
    "linewidth": 1.1,
    "linestyle": (0, (2.5, 1.5)),
}
"""The frame around drift on which no labels are spent."""

_USUAL = set(Outcome) - {Outcome.BESIDE}


def verdict_grid(setting: Setting) -> Drawing | None:
    """Class by task, what the detector said and whether that was right; the first seed."""
    monitored = [
        (cell.first, label)
        for cell, label in zip(setting.cells, setting.labels, strict=True)
        if cell.first.verdicts
    ]
    if not monitored:
        return None
    names = [short(name) for name in setting.first.class_names]
    left = 0.5 + text_inches(names)
    columns = min(len(monitored), 3)
    figure, axes = panels(
        len(monitored),
        width=(10.6 - left - 0.2 - 0.3 * (columns - 1)) / columns if columns > 1 else 7.0,
        height=float(np.clip(len(names) * 0.28, 1.6, 6.5)),
        margins=Margins(left=left, bottom=1.15),
    )
    for index, (panel, (run, label)) in enumerate(zip(axes, monitored, strict=True)):
        _draw_verdicts(panel, run, names)
        panel.set_title(f"{short(label, 24)} ({short(run.detector, 12)}), seed {run.seed}")
        panel.set_xlabel("checked at task")
        if index % 3:
            panel.tick_params(labelleft=False)
        else:
            panel.set_ylabel("class")
    tallies = [f"{label}: {_tally(run)}" for run, label in monitored]
    met = {outcome for run, _ in monitored for outcome in outcomes_of(run)}
    any_spared = any(verdict.spared for run, _ in monitored for verdict in run.verdicts)
    figure.legend(
        handles=[
            *outcome_patches({*_USUAL, *met}),
            *([Patch(**SPARED, label="flagged, but spared")] if any_spared else []),
        ],
        loc="lower center",
        ncols=4,
        handlelength=1.3,
        columnspacing=1.6,
    )
    seeds = (
        "the only seed" if all(len(c.runs) == 1 for c in setting.cells) else "the first seed only"
    )
    numbers = "The number is the p-value (or the score s where a detector gives no p-value). "
    if not _has_room(setting.first):
        numbers = ""
    return Drawing(
        figure=figure,
        title="Verdicts of the detector",
        caption=f"Each class that was checked at each task, {seeds}. {numbers}A claim is "
        "right from a class's drift until it has been met with fresh samples; claiming drift of an "
        f"unchanged class is a false alarm.{_beside(met)}{_spared(setting, any_spared=any_spared)}",
        alt="Grids of verdicts by class and task; " + "; ".join(tallies) + ".",
    )


def outcome_patches(kinds: Collection[Outcome]) -> list[Patch]:
    """What a legend says of these outcomes."""
    return [
        Patch(facecolor=face, edgecolor=style.MUTED, linewidth=0.4, label=f"{sign}  {kind.value}")
        for kind, (face, sign) in FACES.items()
        if kind in kinds
    ]


def _beside(met: Collection[Outcome]) -> str:
    if Outcome.BESIDE not in met:
        return ""
    return (
        " The watched rows were not told apart by their true class, so that one class's drift"
        " raises alarms for others too: these are no false alarms."
    )


def _spared(setting: Setting, *, any_spared: bool) -> str:
    least = sorted({c.first.min_harm for c in setting.cells if c.first.min_harm is not None})
    if not any_spared or not least:
        return ""
    points = " or ".join(f"{each:g}" for each in least)
    return (
        f" A dashed frame: drift that costs the class fewer than {points} points of accuracy, so "
        "that no labels are spent on it."
    )


def _draw_verdicts(panel: Axes, run: Run, names: list[str]) -> None:
    outcomes = list(zip(run.verdicts, outcomes_of(run), strict=True))
    kinds = {kind: index for index, kind in enumerate(FACES)}
    grid = np.full((len(names), run.num_tasks), np.nan)
    for verdict, outcome in outcomes:
        grid[verdict.label, verdict.task - 1] = kinds[outcome]
    draw_grid(
        panel,
        grid,
        cmap=ListedColormap([face for face, _ in FACES.values()]),
        vmin=-0.5,
        vmax=len(kinds) - 0.5,
        linewidth=0.8 if len(names) <= MAX_NUMBERED else 0.2,
    )
    set_ticks(panel, names, [str(task) for task in range(1, run.num_tasks + 1)])
    for verdict in [verdict for verdict in run.verdicts if verdict.spared][:MAX_FRAMES]:
        corner = verdict.task - 1 + 0.04, verdict.label + 0.1
        panel.add_patch(Rectangle(corner, 0.92, 0.8, **SPARED))
    if not _has_room(run):
        return
    for verdict, outcome in outcomes:
        panel.text(
            verdict.task - 0.5,
            verdict.label + 0.52,
            f"{FACES[outcome][1]} {_evidence(verdict)}".strip(),
            ha="center",
            va="center",
            fontsize=6.8 if run.num_tasks <= 6 else 5,
        )


def _has_room(run: Run) -> bool:
    """Whether each cell of the grid can carry its symbol and number."""
    return len(run.class_names) <= 2 * MAX_NUMBERED and run.num_tasks <= MAX_NUMBERED


def _evidence(verdict: Verdict) -> str:
    if verdict.p_value is not None:
        if verdict.p_value < 0.001:
            return "<.001"
        return f"{verdict.p_value:.3f}".removeprefix("0")
    return "" if verdict.score is None else f"s {verdict.score:.2g}"


def _tally(run: Run) -> str:
    counts = Counter(outcomes_of(run))
    tally = [f"{counts[kind]} {kind.value}" for kind in Outcome if counts[kind]]
    return ", ".join([*tally, *([f"{run.num_spared} spared"] if run.num_spared else [])])
