"""Heat maps: accuracy by task and by class, and who is taken for whom."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, panels, place, short, text_inches
from driftwise.report.cells import Cell, Setting, mean_known
from driftwise.report.events import changes, describe_events, spans
from driftwise.report.run import Floats

MAX_NUMBERED = 14
"""Rows or columns up to which each cell of a heat map carries its number."""

MAX_PATHS = 1500
"""Cells of a grid up to which each is a shape of its own."""
MAX_FRAMES = 300
"""Frames that are drawn around cells."""

_COLOURS = matplotlib.colormaps["Blues"]
_BAR_INCHES = 0.75


def accuracy_matrix(setting: Setting) -> Drawing:
    """Accuracy on each task after each task, one panel per cell."""
    num_tasks = setting.first.num_tasks
    figure, axes = _heat_panels(setting, height=2.6, label_inches=0.15)
    tasks = [str(task) for task in range(1, num_tasks + 1)]
    finals = []
    for panel, cell, label in zip(axes, setting.cells, setting.labels, strict=True):
        means = mean_known([run.accuracy for run in cell.runs])
        _heat(panel, means, [str(t) for t in range(1, len(means) + 1)], tasks)
        panel.set_title(short(label, 30))
        panel.set_xlabel("accuracy on task")
        finals.append(f"{label} {_ending(means[-1])}")
    _label_first_column(axes, "after task")
    _colour_bar(figure, axes[-1], "accuracy (%)")
    return Drawing(
        figure=figure,
        title="Accuracy matrix",
        caption="Row: after this task; column: accuracy on that task, in percent, mean over seeds. "
        "Down a column one sees a task being forgotten or, after a drift, recovered.",
        alt="Heat maps of accuracy after each task on each task; last row: "
        + "; ".join(finals)
        + ".",
    )


def _ending(values: Floats) -> str:
    return ", ".join("–" if np.isnan(value) else f"{value:.0f}" for value in values)


def per_class(setting: Setting) -> Drawing | None:
    """Accuracy of each class after each task; drifted classes are framed at their event."""
    names = [short(name) for name in setting.first.class_names]
    num_classes, num_tasks = len(names), setting.first.num_tasks
    if not num_classes:
        return None
    figure, axes = _heat_panels(setting, _height(num_classes), text_inches(names))
    tasks = [str(task) for task in range(1, num_tasks + 1)]
    for panel, cell, label in zip(axes, setting.cells, setting.labels, strict=True):
        _heat(panel, per_class_means(cell), names, tasks[: cell.first.num_tasks])
        framed = [
            (task, *span)
            for task, classes in changes(cell.first).items()
            for span in spans(classes)
        ]
        for task, first, last in framed[:MAX_FRAMES]:
            frame = Rectangle(
                (task - 1, first),
                1,
                last - first + 1,
                fill=False,
                edgecolor=style.DRIFT,
                linewidth=1.8,
            )
            frame.set_clip_on(False)
            panel.add_patch(frame)
        panel.set_title(short(label, 30))
        panel.set_xlabel("after task")
    _label_first_column(axes, "class")
    _colour_bar(figure, axes[-1], "accuracy (%)")
    return Drawing(
        figure=figure,
        title="Accuracy per class",
        caption="Accuracy of each class after each task, in percent, mean over seeds. An orange "
        "frame marks a task at which classes change their look: what follows to the right is how "
        "they recover. " + describe_events(setting.first),
        alt=f"Heat maps of the accuracy of {num_classes} classes after each of {num_tasks} tasks, "
        f"for {', '.join(setting.labels)}.",
    )


def per_class_means(cell: Cell) -> Floats:
    """(classes, tasks) percent, mean over seeds; NaN before a class has arrived."""
    num_classes, num_tasks = len(cell.first.class_names), cell.first.num_tasks
    tables = []
    for run in cell.runs:
        table = np.full((num_classes, num_tasks), np.nan)
        for task, after in enumerate(run.per_class[:num_tasks]):
            table[list(after), task] = list(after.values())
        tables.append(table)
    return mean_known(tables)


def confusion(setting: Setting) -> Drawing | None:
    """After the last task, as what each class is recognised, in percent of its rows."""
    if any(cell.first.confusion is None for cell in setting.cells):
        return None
    names = [short(name, 14) for name in setting.first.class_names]
    shares_of = [confusion_shares(cell) for cell in setting.cells]
    names = names[: max(map(len, shares_of))]  # a network may have had fewer outputs
    figure, axes = _heat_panels(
        setting, _height(len(names), least=2.9), text_inches(names), text_inches(names)
    )
    worst = []
    for panel, shares, label in zip(axes, shares_of, setting.labels, strict=True):
        _heat(panel, shares, names[: len(shares)], names[: len(shares)], least=0.5)
        panel.set_title(short(label, 30))
        panel.set_xlabel("predicted")
        if max(map(len, names)) > 2:
            panel.tick_params(axis="x", rotation=90)
        worst.append(f"{label}: {_worst_confusion(shares, names)}")
    _label_first_column(axes, "true class")
    _colour_bar(figure, axes[-1], "rows of a class (%)")
    return Drawing(
        figure=figure,
        title="Confusion after the last task",
        caption="Row: the true class; column: what the network says, in percent of the row, "
        "counted over all seeds. Shares below half a percent are left blank.",
        alt="Confusion matrices after the last task; largest confusion, " + "; ".join(worst) + ".",
    )


def confusion_shares(cell: Cell) -> Floats:
    """(classes, classes) percent of each true class, counted over all seeds; NaN without rows."""
    known = [run.confusion for run in cell.runs if run.confusion is not None]
    counts = np.zeros((max(map(len, known)),) * 2)
    for each in known:
        counts[: len(each), : len(each)] += each
    totals = counts.sum(axis=1, keepdims=True)
    shares: Floats = np.where(totals > 0, 100 * counts / np.maximum(totals, 1), np.nan)
    return shares


def _worst_confusion(shares: Floats, names: list[str]) -> str:
    wrong = np.where(np.eye(len(shares), dtype=bool) | np.isnan(shares), 0.0, shares)
    true, said = np.unravel_index(int(wrong.argmax()), wrong.shape)
    if wrong[true, said] == 0:
        return "none"
    return f"{names[int(true)]} taken for {names[int(said)]} in {wrong[true, said]:.0f} %"


def _height(num_rows: int, least: float = 1.6) -> float:
    """Inches for a panel with so many rows; beyond some dozens rows get thinner, not more paper."""
    return float(np.clip(num_rows * 0.28, least, 6.5))


def _heat_panels(
    setting: Setting, height: float, label_inches: float, below_inches: float = 0.1
) -> tuple[Figure, list[Axes]]:
    count = len(setting.cells)
    left = 0.5 + label_inches
    width = (10.6 - left - _BAR_INCHES - 0.6) / 3 if count > 2 else min(height * 1.25, 3.6)
    margins = Margins(
        left=left,
        right=_BAR_INCHES,
        bottom=0.45 + below_inches,
        row_gap=0.85 + below_inches,
    )
    return panels(count, width, height, margins)


def _heat(
    panel: Axes, values: Floats, rows: list[str], columns: list[str], least: float = 0.0
) -> None:
    """Percentages as colours, first row on top, and as numbers where there is room."""
    width = 0.6 if max(values.shape) <= MAX_NUMBERED else 0
    draw_grid(panel, values, cmap=_COLOURS, vmin=0, vmax=100, linewidth=width)
    set_ticks(panel, rows, columns)
    if max(values.shape) <= MAX_NUMBERED:
        for (row, column), value in np.ndenumerate(values):
            if value >= least:  # false for NaN, too
                panel.text(
                    column + 0.5,
                    row + 0.52,
                    f"{value:.0f}",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if value > 60 else style.INK,
                )


def draw_grid(
    panel: Axes, values: Floats, *, cmap: Colormap, vmin: float, vmax: float, linewidth: float
) -> None:
    """A colour for each number that is known, the first row on top.

    Many are drawn as one image: a path for each would make a file of megabytes, and nobody sees
    the edges.
    """
    known = np.ma.masked_invalid(values)
    height, width = values.shape
    if values.size > MAX_PATHS:
        panel.imshow(
            known,
            cmap=cmap,
            vmin=vmin,
            vmax=vmax,
            extent=(0, width, height, 0),
            aspect="auto",
            interpolation="nearest",
        )
    else:
        panel.pcolormesh(
            known, cmap=cmap, vmin=vmin, vmax=vmax, edgecolors="white", linewidth=linewidth
        )
    panel.set_xlim(0, width)
    panel.set_ylim(height, 0)


def set_ticks(panel: Axes, rows: list[str], columns: list[str]) -> None:
    """Names at the middle of each row and column of a grid, thinned out where they are many."""
    box = panel.get_window_extent()
    dots = panel.figure.dpi
    most_down = min(40, int(box.height / dots / 0.13))
    most_across = min(20, int(box.width / dots / (text_inches(columns) + 0.08)))
    for axis, names, most in ((panel.yaxis, rows, most_down), (panel.xaxis, columns, most_across)):
        step = -(-len(names) // max(1, most))
        places = range(0, len(names), step)
        axis.set_ticks([place + 0.5 for place in places], [names[place] for place in places])
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)


def _label_first_column(axes: list[Axes], label: str) -> None:
    """Row names stand once, at the left of each row of panels."""
    for index, panel in enumerate(axes):
        if index % 3:
            panel.tick_params(labelleft=False)
        else:
            panel.set_ylabel(label)


def _colour_bar(figure: Figure, beside: Axes, label: str) -> None:
    across, up = figure.get_size_inches()
    box = beside.get_position()
    bar = place(figure, across - _BAR_INCHES + 0.15, box.y0 * up, 0.12, box.height * up)
    steps = np.linspace(0, 100, 51)
    bar.pcolormesh(
        [0, 1], steps, steps[:-1, None], cmap=_COLOURS, vmin=0, vmax=100, edgecolors="face"
    )
    bar.set(xticks=[], yticks=[0, 50, 100], ylabel=label)
    bar.yaxis.tick_right()
    bar.yaxis.set_label_position("right")
    bar.tick_params(length=2, labelsize=7)
    bar.yaxis.label.set_fontsize(7.5)
