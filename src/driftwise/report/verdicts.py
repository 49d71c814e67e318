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
from driftwise.report.cells import Setting
from driftwise.report.events import Outcome, outcomes_of
from driftwise.report.facets import Drawing, facets, short
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

_COLOURS = ListedColormap([face for face, _ in FACES.values()])
_USUAL = set(Outcome) - {Outcome.BESIDE}


def verdict_grid(setting: Setting) -> Drawing | None:
    """Class by task, the detector's verdict and whether it was right; the first seed."""
    monitored = [
        (cell.first, label)
        for cell, label in zip(setting.cells, setting.labels, strict=True)
        if cell.first.verdicts
    ]
    if not monitored:
        return None
    names = [short(name) for name in setting.first.class_names]
    size = 3.3 if len(monitored) > 1 else 6.8, float(np.clip(0.6 + 0.26 * len(names), 2.2, 7.0))
    grid = facets(len(monitored), size)
    for panel, (run, label) in zip(grid.panels, monitored, strict=True):
        _draw_verdicts(panel, run, names)
        panel.set_title(f"{short(label, 22)} ({short(run.detector, 12)}), seed {run.seed}")
    grid.label("checked at task", "class", share_x=False)
    met = {outcome for run, _ in monitored for outcome in outcomes_of(run)}
    spared = any(verdict.spared for run, _ in monitored for verdict in run.verdicts)
    frame = [Patch(**SPARED, label="flagged, but spared")] if spared else []
    grid.add_legend([*outcome_patches({*_USUAL, *met}), *frame])
    only = all(len(cell.runs) == 1 for cell in setting.cells)
    words = [
        "Each class that was checked at each task, "
        f"{'the only seed' if only else 'the first seed only'}."
    ]
    if _has_room(setting.first):
        words.append("The number is the p-value (or the score s of a detector without p-values).")
    words.append(
        "A claim is right from a class's drift until the class was adapted with fresh samples; "
        "claiming drift of an unchanged class is a false alarm."
    )
    if Outcome.BESIDE in met:
        words.append(
            "The monitored samples were not sorted by their true class, so that one class's drift "
            "raises alarms for others too: these are no false alarms."
        )
    least = sorted({c.first.min_harm for c in setting.cells if c.first.min_harm is not None})
    if spared and least:
        words.append(
            f"A dashed frame: drift that costs the class fewer than "
            f"{' or '.join(f'{each:g}' for each in least)} points of accuracy, so that no labels "
            "are spent on it."
        )
    return Drawing(
        figure=grid.figure,
        title="Verdicts of the detector",
        caption=" ".join(words),
        alt="Grids of verdicts by class and task; "
        + "; ".join(f"{label}: {_tally(run)}" for run, label in monitored)
        + ".",
    )


def outcome_patches(kinds: Collection[Outcome]) -> list[Patch]:
    """The legend's entries for these outcomes."""
    return [
        Patch(facecolor=face, edgecolor=style.MUTED, linewidth=0.4, label=f"{sign}  {kind.value}")
        for kind, (face, sign) in FACES.items()
        if kind in kinds
    ]


def _draw_verdicts(panel: Axes, run: Run, names: list[str]) -> None:
    outcomes = list(zip(run.verdicts, outcomes_of(run), strict=True))
    kinds = {kind: index for index, kind in enumerate(FACES)}
    grid = np.full((len(names), run.num_tasks), np.nan)
    for verdict, outcome in outcomes:
        grid[verdict.label, verdict.task - 1] = kinds[outcome]
    width = 0.8 if len(names) <= MAX_NUMBERED else 0.2
    draw_grid(panel, grid, cmap=_COLOURS, vmin=-0.5, vmax=len(kinds) - 0.5, linewidth=width)
    set_ticks(panel, names, [str(task) for task in range(1, run.num_tasks + 1)])
    for verdict in [verdict for verdict in run.verdicts if verdict.spared][:MAX_FRAMES]:
        corner = verdict.task - 1 + 0.04, verdict.label + 0.1
        panel.add_patch(Rectangle(corner, 0.92, 0.8, **SPARED))
    if not _has_room(run):
        return
    for verdict, outcome in outcomes:
        words = f"{FACES[outcome][1]} {_evidence(verdict)}".strip()
        text = panel.text(verdict.task - 0.5, verdict.label + 0.52, words, ha="center", va="center")
        text.set_fontsize(6.8 if run.num_tasks <= 6 else 5)


def _has_room(run: Run) -> bool:
    """Whether each field of the grid can carry its symbol and number."""
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
