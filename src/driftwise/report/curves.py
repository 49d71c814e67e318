"""Lines: accuracy over tasks, and confidence against accuracy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes

from driftwise.report import style
from driftwise.report.cells import Cell, Setting, Stat, stat_of
from driftwise.report.event_words import changes, describe_events, range_words
from driftwise.report.facets import Drawing, draw_band, facets
from driftwise.report.saved_run import Floats, Run

MAX_MARKERS = 50
"""Tasks along a line that carry a marker."""

_WIDTH = 7.5
"""Inches that the accuracy over tasks takes, without its legend."""


def accuracy_over_tasks(setting: Setting, styles: style.Styles) -> Drawing:
    """After each task, the mean accuracy over the tasks seen so far, one line per cell."""
    grid = facets(1, (_WIDTH, 3.6))
    (axes,) = grid.panels
    num_tasks = setting.first.num_tasks
    endings = []
    for cell, label, line in zip(
        setting.cells, setting.labels, style.styles_by_cell(setting.cells, styles), strict=True
    ):
        ending = stat_words(by_task(cell)[-1])
        endings.append(f"{label} {ending}")
        draw_curve(axes, cell, line, label=f"{label}   {ending}")
    draw_changes(axes, setting.first, with_words=True)
    axes.set(
        xlim=(0.7, num_tasks + 0.3),
        ylim=(0, 102),
        xticks=few_ticks(num_tasks),
        xlabel="after task",
        ylabel="mean accuracy (%)",
    )
    axes.grid(axis="y")
    grid.add_legend_beside(axes.get_legend_handles_labels()[0], "after the last task")
    return Drawing(
        figure=grid.figure,
        title="Accuracy over tasks",
        caption="Mean accuracy over all tasks seen so far, measured after each task. Bands: one "
        "sample standard deviation over seeds to either side. A vertical line marks drift: points "
        f"to its right are measured on the new concept. {describe_events(setting.first)}",
        alt=f"Line chart of mean accuracy after each of {num_tasks} tasks; at the end: "
        f"{'; '.join(endings)}.",
    )


def draw_curve(
    axes: Axes, cell: Cell, line: style.Style, *, label: str = "", marker_size: float = 5.5
) -> None:
    """The mean accuracy after each task as a line, its spread over seeds as a band."""
    tasks = range(1, cell.first.num_tasks + 1)
    means, spreads = means_and_spreads(by_task(cell))
    options = {**line.line_options(marker_size), "markevery": -(-len(tasks) // MAX_MARKERS)}
    draw_band(axes, tasks, means, spreads, line.colour, label=label, **options)


def means_and_spreads(stats: list[Stat | None]) -> tuple[Floats, Floats]:
    """Means, NaN where nothing is known, and sample standard deviations, 0 where one seed is."""
    means = np.array([np.nan if stat is None else stat.mean for stat in stats])
    return means, np.array([0.0 if stat is None else stat.sd or 0.0 for stat in stats])


def by_task(cell: Cell) -> list[Stat | None]:
    """After each task, the mean accuracy over the tasks seen so far, over seeds."""
    curves = np.stack([run.mean_accuracy for run in cell.runs])
    return [stat_of(None if np.isnan(v) else float(v) for v in after) for after in curves.T]


def stat_words(stat: Stat | None) -> str:
    """A mean and its spread, for a legend."""
    if stat is None:
        return "unknown"
    return f"{stat.mean:.1f}" if stat.sd is None else f"{stat.mean:.1f} ± {stat.sd:.1f}"


def few_ticks(num_tasks: int, most: int = 20) -> list[int]:
    """Task numbers to print below an axis.

    >>> few_ticks(10, most=5)
    [1, 3, 5, 7, 9]
    """
    return list(range(1, num_tasks + 1, -(-num_tasks // most)))


def draw_changes(axes: Axes, run: Run, *, with_words: bool = False) -> None:
    """A vertical line between the last task of the old concept and the first one of the new."""
    for task, words in zip(changes(run), _words_that_fit(run), strict=True):
        axes.axvline(task - 0.5, color=style.DRIFT, linewidth=1.2, linestyle=style.DASHED, zorder=1)
        if with_words:
            axes.annotate(
                words,
                (task - 0.5, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=style.DRIFT,
            )


def _words_that_fit(run: Run) -> list[str]:
    """What stands above the lines of drift: as much as does not overlap."""
    changed = changes(run)
    gap = min((late - early for early, late in pairwise(changed)), default=run.num_tasks)
    letters = gap / run.num_tasks * _WIDTH * 14
    full = [f"drift: {range_words(classes)}" for classes in changed.values()]
    if max(map(len, full), default=0) <= letters:
        return full
    return ["drift"] * len(full) if letters >= 5 else ["drift", *[""] * (len(full) - 1)]


def reliability(setting: Setting, styles: style.Styles) -> Drawing | None:
    """Accuracy against confidence after the last task, samples of all seeds pooled."""
    grid = facets(1, (3.9, 3.8))
    (axes,) = grid.panels
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=0.9, linestyle=(0, (2, 2)))
    errors = []
    for cell, label, line in zip(
        setting.cells, setting.labels, style.styles_by_cell(setting.cells, styles), strict=True
    ):
        confidence, accuracy, count = pooled_bins(cell)
        if not len(count):
            continue
        error = cell.mean(lambda run: run.calibration.ece if run.calibration else None)
        words = "" if error is None else f"ECE {error:.3f}"
        errors.append(f"{label} {words}".strip())
        options = {**line.line_options(3), "label": f"{label}\n{words}".strip(), "zorder": 2}
        axes.plot(confidence, accuracy, **options)
        axes.scatter(
            confidence,
            accuracy,
            s=12 + 110 * count / count.sum(),
            color=line.face,
            edgecolor=line.colour,
            marker=line.marker,
            zorder=3,
        )
    if not errors:
        return None
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="confidence", ylabel="fraction correct")
    axes.set_aspect("equal")
    axes.grid()
    grid.add_legend_beside(axes.get_legend_handles_labels()[0])
    return Drawing(
        figure=grid.figure,
        title="Reliability",
        caption="Predictions after the last task, sorted into bins by confidence; larger markers "
        "hold more samples, all seeds pooled. On the dotted diagonal the network is right as often "
        "as it is confident; below it, it is overconfident. ECE: the mean gap.",
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
    samples: Floats = np.bincount(bins, weights=count, minlength=10).astype(np.float64)
    known = samples > 0
    means = [np.bincount(bins, weights=v * count, minlength=10) for v in (confidence, accuracy)]
    return means[0][known] / samples[known], means[1][known] / samples[known], samples[known]
