"""The verdicts of a detector beside the truth, and how much accuracy the drift cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from driftwise.report import style
from driftwise.report.cells import Setting
from driftwise.report.event_words import Outcome, outcomes_of
from driftwise.report.facets import Drawing, facets, short
from driftwise.report.heat_maps import MAX_FRAMES, MAX_NUMBERED, draw_grid, set_ticks
from driftwise.report.saved_run import Run, Verdict

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
    least = sorted({c.first.min_harm for c in setting.cells if c.first.min_harm is not None})
    parts = {
        "Each class that was checked at each task, "
        f"{'the only seed' if only else 'the first seed only'}.": True,
        "The number is the p-value (or the score s of a detector without p-values).": _has_room(
            setting.first
        ),
        "A claim is right from a class's drift until the class was adapted with fresh samples; "
        "claiming drift of an unchanged class is a false alarm.": True,
        "The monitored samples were not sorted by their true class, so that one class's drift "
        "raises alarms for others too: these are no false alarms.": Outcome.BESIDE in met,
        f"A dashed frame: drift that costs the class fewer than "
        f"{' or '.join(f'{each:g}' for each in least)} points of accuracy, so that no labels "
        "are spent on it.": spared and least,
    }
    return Drawing(
        figure=grid.figure,
        title="Verdicts of the detector",
        caption=" ".join(words for words, applies in parts.items() if applies),
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


# --- harm ----------------------------------------------------------------------------------------

MAX_ROWS = 30
"""Checks of a class that are shown; the page's list of runs has more."""

_SHOWN_HARM = (Outcome.FOUND, Outcome.MISSED, Outcome.FALSE_ALARM, Outcome.BESIDE)
_MARKERS: dict[str, dict[str, Any]] = {
    "counted": {"marker": "o", "markersize": 4, "markerfacecolor": style.INK},
    "estimated": {"marker": "D", "markersize": 6, "markerfacecolor": "none"},
}
"""The one fits into the other: where both agree, both are seen."""
_HARMS = {
    "counted": ("harm", "counted by labels"),
    "estimated": ("harm_unlabelled", "estimated without labels"),
}
"""Fact of a verdict and its name in the legend."""

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
                _draw_check(panel, row, *shown[check])
        _draw_limits(panel, run, rows, lowest)
        if any(verdict.share is not None for verdict, _ in shown.values()):
            _annotate(panel, "drifted", (1.0, 1.0), (18, 4), color=style.MUTED)
        panel.set_title(f"{short(label, 22)}, seed {run.seed}", pad=14)
        panel.set_yticks(range(len(rows)), _row_names(setting.first, rows))
        panel.tick_params(axis="y", length=0)
    grid.label("points of accuracy lost", share_x=False)
    for panel in grid.left:
        _annotate(panel, "class", (0.0, 1.0), (-5, 4), ha="right", color=style.MUTED)
    grid.add_legend(_harm_legend(judged))
    return Drawing(
        figure=grid.figure,
        title="What the drift cost",
        caption=_harm_caption(setting, judged, left_out=len(checks) - len(rows)),
        alt="Dot plots of the accuracy that classes lost to drift; "
        + "; ".join(f"{label}: {_harm_tally(shown)}" for label, (_, shown) in found.items())
        + ".",
    )


def worth_showing(run: Run) -> Mapping[Check, Judged]:
    """Checks of classes that drifted or were flagged, and of which the harm is known."""
    judged = zip(run.verdicts, outcomes_of(run), strict=True)
    return {(v.task, v.label): (v, o) for v, o in judged if o in _SHOWN_HARM and v.has_harm}


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


def _draw_check(panel: Axes, row: int, verdict: Verdict, outcome: Outcome) -> None:
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


def _values(judged: Iterable[Judged], name: str) -> list[float]:
    """What is known of one fact of the verdicts."""
    found = [getattr(verdict, name) for verdict, _ in judged]
    return [value for value in found if value is not None]


def _harm_legend(judged: Sequence[Judged]) -> list[Artist]:
    handles: list[Artist] = [
        Line2D([], [], color=style.INK, linestyle="", label=label, **_MARKERS[kind])
        for kind, (fact, label) in _HARMS.items()
        if _values(judged, fact)
    ]
    if any(verdict.spared for verdict, _ in judged):
        handles.append(Patch(**SPARED, label="spared"))
    return [*handles, *outcome_patches({outcome for _, outcome in judged})]


def _harm_caption(setting: Setting, judged: Sequence[Judged], *, left_out: int) -> str:
    parts = {
        "How much accuracy on a class the learner had lost to drift when it was checked: each "
        "class that had drifted or was flagged, the first seed.": True,
        "Bars: two standard errors to either side.": _values(judged, "harm"),
        "The estimate without labels comes out too small for the worst drifts.": _values(
            judged, "harm_unlabelled"
        ),
        "Drifted: at least this fraction of the samples is of the new concept, ± one standard "
        "error.": _values(judged, "share"),
        "Drift whose harm, counted where there are labels, lies to the left of min_harm is spared: "
        "no labels are spent on it.": any(c.first.min_harm is not None for c in setting.cells),
        f"{left_out} more are not shown; the runs below list them.": left_out > 0,
    }
    return " ".join(words for words, applies in parts.items() if applies)


def _harm_tally(shown: Mapping[Check, Judged]) -> str:
    words = [
        f"{kind} {min(values):.0f} to {max(values):.0f} points"
        for kind, (fact, _) in _HARMS.items()
        if (values := _values(shown.values(), fact))
    ]
    num_spared = sum(verdict.spared for verdict, _ in shown.values())
    return ", ".join([*words, *([f"{num_spared} spared"] if num_spared else [])])
