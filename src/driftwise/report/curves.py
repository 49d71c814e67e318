"""Lines: accuracy over tasks, and confidence against accuracy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from driftwise.report import style
from driftwise.report.canvas import Drawing, place, text_inches
from driftwise.report.cells import Cell, Setting, Stat, stat_of
from driftwise.report.events import changes, describe_events, range_words
from driftwise.report.run import Floats, Run

MAX_MARKERS = 50
"""Tasks along a line that carry a marker."""

_WIDTH = 7.3
"""Inches from the first task to the last."""


def accuracy_over_tasks(setting: Setting, looks: style.Looks) -> Drawing:
    """After each task, the mean accuracy over the tasks seen so far, one line per cell."""
    figure = Figure(figsize=(10.4, 3.9))
    axes = place(figure, 0.65, 0.55, _WIDTH, 2.9)
    num_tasks = setting.first.num_tasks
    endings = []
    for cell, label, look in zip(
        setting.cells, setting.labels, style.looks_by_cell(setting.cells, looks), strict=True
    ):
        ending = _ending(by_task(cell)[-1])
        endings.append(f"{label} {ending}")
        draw_curve(axes, cell, look, label=f"{label}   {ending}")
    _mark_changes(axes, setting)
    axes.set(
        xlim=(0.7, num_tasks + 0.3),
        ylim=(0, 102),
        xticks=few_ticks(num_tasks),
        xlabel="after task",
        ylabel="mean accuracy (%)",
    )
    axes.grid(axis="y")
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
        title="after the last task",
        alignment="left",
        handlelength=3.2,
        labelspacing=0.8,
    )
    events = describe_events(setting.first)
    return Drawing(
        figure=figure,
        title="Accuracy over tasks",
        caption="Mean accuracy over all tasks seen so far, measured after each task. Bands: one "
        "sample standard deviation over seeds to either side. A vertical line stands where classes "
        f"change their look: points to its right are measured on the new look. {events}",
        alt=f"Line chart of mean accuracy after each of {num_tasks} tasks; at the end: "
        f"{'; '.join(endings)}.",
    )


def draw_curve(
    axes: Axes, cell: Cell, look: style.Look, *, label: str = "", marker_size: float = 5.5
) -> None:
    """The mean accuracy after each task as a line, its spread over seeds as a band."""
    tasks = np.arange(1, cell.first.num_tasks + 1)
    stats = by_task(cell)
    means = np.array([stat.mean if stat else np.nan for stat in stats])
    spread = np.array([(stat.sd if stat else None) or 0.0 for stat in stats])
    axes.plot(
        tasks,
        means,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markersize=marker_size,
        markevery=-(-len(tasks) // MAX_MARKERS),
        markerfacecolor="white" if look.hollow else look.colour,
        linewidth=1.8 * min(1.0, marker_size / 4.5),
        label=label,
    )
    axes.fill_between(
        tasks, means - spread, means + spread, color=look.colour, alpha=0.14, linewidth=0
    )


def by_task(cell: Cell) -> list[Stat | None]:
    """After each task, the mean accuracy over the tasks seen so far, over seeds."""
    curves = np.stack([run.mean_accuracy for run in cell.runs])
    return [stat_of(None if np.isnan(v) else float(v) for v in after) for after in curves.T]


def _ending(stat: Stat | None) -> str:
    if stat is None:
        return "unknown"
    return f"{stat.mean:.1f}" if stat.sd is None else f"{stat.mean:.1f} ± {stat.sd:.1f}"


def few_ticks(num_tasks: int, most: int = 20) -> list[int]:
    """Task numbers to print below an axis.

    >>> few_ticks(10, most=5)
    [1, 3, 5, 7, 9]
    """
    return list(range(1, num_tasks + 1, -(-num_tasks // most)))


def _mark_changes(axes: Axes, setting: Setting) -> None:
    for at, words in zip(
        draw_changes(axes, setting.first), _words_that_fit(setting.first), strict=True
    ):
        axes.annotate(
            words,
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=style.DRIFT,
        )


def draw_changes(axes: Axes, run: Run) -> list[float]:
    """A vertical line wherever classes change their look; where the lines stand."""
    # Between the last measurement of the old look and the first one of the new.
    places = [task - 0.5 for task in changes(run)]
    for at in places:
        axes.axvline(at, color=style.DRIFT, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    return places


def _words_that_fit(run: Run) -> list[str]:
    """What stands above the lines where classes change: as much as does not overlap."""
    changed = changes(run)
    gap = min((late - early for early, late in pairwise(changed)), default=run.num_tasks)
    room = gap * _WIDTH / run.num_tasks
    for words in (
        [f"drift: {range_words(classes)}" for classes in changed.values()],
        ["drift"] * len(changed),
    ):
        if text_inches(words) <= room:
            return words
    return ["drift", *[""] * (len(changed) - 1)]


def reliability(setting: Setting, looks: style.Looks) -> Drawing | None:
    """Accuracy against confidence after the last task, rows of all seeds pooled."""
    figure = Figure(figsize=(5.3, 4.0))
    axes = place(figure, 0.6, 0.55, 3.0, 3.0)
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
    errors = []
    for cell, label, look in zip(
        setting.cells, setting.labels, style.looks_by_cell(setting.cells, looks), strict=True
    ):
        confidence, accuracy, count = pooled_bins(cell)
        if not len(count):
            continue
        error = cell.mean(lambda run: run.calibration.ece if run.calibration else None)
        words = "" if error is None else f"\nECE {error:.3f}"
        errors.append(label + words.replace("\n", " "))
        face = "white" if look.hollow else look.colour
        axes.plot(
            confidence,
            accuracy,
            color=look.colour,
            linestyle=look.line,
            linewidth=1.4,
            marker=look.marker,
            markersize=3,
            markerfacecolor=face,
            label=label + words,
            zorder=2,
        )
        axes.scatter(
            confidence,
            accuracy,
            s=12 + 110 * count / count.sum(),
            color=face,
            edgecolor=look.colour,
            marker=look.marker,
            zorder=3,
        )
    if not errors:
        return None
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="confidence", ylabel="share that is correct")
    axes.grid()
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.02), labelspacing=0.9, handlelength=2.6)
    return Drawing(
        figure=figure,
        title="Reliability",
        caption="Predictions after the last task, sorted into bins by confidence; larger markers "
        "hold more rows, all seeds pooled. On the dotted diagonal the network is right as often as "
        "it claims; below it, it claims too much. ECE: the mean gap.",
        alt=f"Reliability diagram; expected calibration error: {'; '.join(errors)}.",
    )


def pooled_bins(cell: Cell) -> tuple[Floats, Floats, Floats]:
    """Confidence, accuracy and count of ten equal bins over all seeds, empty ones left out."""
    found = [run.calibration for run in cell.runs if run.calibration is not None]
    if not found:
        return np.empty(0), np.empty(0), np.empty(0)
    confidence = np.concatenate([each.confidence for each in found])
    accuracy = np.concatenate([each.accuracy for each in found])
    count = np.concatenate([each.count for each in found])
    bins = np.clip(np.ceil(confidence * 10).astype(int) - 1, 0, 9)
    rows: Floats = np.bincount(bins, weights=count, minlength=10).astype(np.float64)
    filled = rows > 0
    means = [np.bincount(bins, weights=v * count, minlength=10) for v in (confidence, accuracy)]
    return means[0][filled] / rows[filled], means[1][filled] / rows[filled], rows[filled]
