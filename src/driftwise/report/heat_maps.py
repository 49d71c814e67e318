"""Grids: heat maps of accuracy and confusion, and images of drifted classes."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from driftwise.report import style
from driftwise.report.cells import Cell, Setting
from driftwise.report.event_words import changes, describe_events, spans
from driftwise.report.facets import Drawing, Facets, facets, short
from driftwise.report.read import tensors_in
from driftwise.report.saved_run import Floats, Run, mean_known
from driftwise.report.style import DRIFT
from driftwise.report.vectors import REFERENCE, Drifted, drift_in

MAX_NUMBERED = 14
"""Rows or columns up to which each field of a heat map carries its number."""

MAX_PATHS = 1500
"""Fields of a grid up to which each is a shape of its own."""
MAX_FRAMES = 300
"""Frames that are drawn around fields."""
MAX_TICKS = (20, 40)
"""Names along the x and y axis; of more, every second or third is shown, and so on."""

_COLOURS = matplotlib.colormaps["Blues"]


def accuracy_matrix(setting: Setting) -> Drawing:
    """Accuracy on each task after each task, one panel per cell."""
    means = [
        mean_known(np.stack([run.accuracy for run in cell.runs]), axis=0) for cell in setting.cells
    ]
    tasks = [str(task) for task in range(1, setting.first.num_tasks + 1)]
    grid = _heat_maps(setting, means, tasks, tasks, height=3.0)
    grid.label("accuracy on task", "after task", share_x=False)
    grid.add_colour_bar(_COLOURS, 0, 100, "accuracy (%)")
    finals = [
        f"{label} " + ", ".join("–" if np.isnan(value) else f"{value:.0f}" for value in table[-1])
        for label, table in zip(setting.labels, means, strict=True)
    ]
    return Drawing(
        figure=grid.figure,
        title="Accuracy matrix",
        caption="Row: after this task; column: accuracy on that task, in percent, mean over seeds. "
        "Down a column one sees a task being forgotten or, after a drift, recovered.",
        alt="Heat maps of accuracy after each task on each task; last row: "
        + "; ".join(finals)
        + ".",
    )


def per_class(setting: Setting) -> Drawing | None:
    """Accuracy of each class after each task; drifted classes are framed at their event."""
    names = [short(name) for name in setting.first.class_names]
    if not names:
        return None
    num_tasks = setting.first.num_tasks
    tasks = [str(task) for task in range(1, num_tasks + 1)]
    means = [per_class_means(cell) for cell in setting.cells]
    grid = _heat_maps(setting, means, names, tasks, height=_height(len(names)))
    for panel, cell in zip(grid.panels, setting.cells, strict=True):
        framed = [
            (task, *span)
            for task, classes in changes(cell.first).items()
            for span in spans(classes)
        ]
        for task, first, last in framed[:MAX_FRAMES]:
            frame = Rectangle((task - 1, first), 1, last - first + 1, fill=False, clip_on=False)
            frame.set(edgecolor=style.DRIFT, linewidth=1.8)
            panel.add_patch(frame)
    grid.label("after task", "class", share_x=False)
    grid.add_colour_bar(_COLOURS, 0, 100, "accuracy (%)")
    return Drawing(
        figure=grid.figure,
        title="Accuracy per class",
        caption="Accuracy of each class after each task, in percent, mean over seeds. An orange "
        "frame marks a task at which classes drift: what follows to the right is how they recover. "
        + describe_events(setting.first),
        alt=f"Heat maps of the accuracy of {len(names)} classes after each of {num_tasks} tasks, "
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
    return mean_known(np.stack(tables), axis=0)


def confusion(setting: Setting) -> Drawing | None:
    """After the last task, the predictions for each class, in percent of its samples."""
    if any(cell.first.confusion is None for cell in setting.cells):
        return None
    shares = [confusion_shares(cell) for cell in setting.cells]
    # A network may have had fewer outputs than there are classes.
    names = [short(name, 14) for name in setting.first.class_names][: max(map(len, shares))]
    height = _height(len(names)) + 0.9
    grid = _heat_maps(setting, shares, names, names, height=height, least=0.5)
    grid.label("predicted", "true class", share_x=False)
    grid.add_colour_bar(_COLOURS, 0, 100, "samples of a class (%)")
    worst = [
        f"{label}: {_worst_confusion(table, names)}"
        for label, table in zip(setting.labels, shares, strict=True)
    ]
    return Drawing(
        figure=grid.figure,
        title="Confusion after the last task",
        caption="Row: the true class; column: the predicted class, in percent of the row, "
        "counted over all seeds. Shares below half a percent are left blank.",
        alt="Confusion matrices after the last task; largest confusion, " + "; ".join(worst) + ".",
    )


def confusion_shares(cell: Cell) -> Floats:
    """(classes, classes) percent of each true class, over all seeds; NaN without samples."""
    known = [run.confusion for run in cell.runs if run.confusion is not None]
    counts = np.zeros((max(map(len, known)),) * 2)
    for each in known:
        counts[: len(each), : len(each)] += each
    totals = counts.sum(axis=1, keepdims=True)
    shares: Floats = np.where(totals > 0, 100 * counts / np.maximum(totals, 1), np.nan)
    return shares


def _worst_confusion(shares: Floats, names: list[str]) -> str:
    wrong = np.where(np.eye(len(shares), dtype=bool) | np.isnan(shares), 0.0, shares)
    true, predicted = np.unravel_index(int(wrong.argmax()), wrong.shape)
    if wrong[true, predicted] == 0:
        return "none"
    return f"{names[int(true)]} taken for {names[int(predicted)]} in {wrong.max():.0f} %"


def _height(num_rows: int) -> float:
    """Inches for a panel with so many rows; beyond some dozens rows get thinner."""
    return float(np.clip(0.6 + 0.26 * num_rows, 2.2, 7.0))


def _heat_maps(
    setting: Setting,
    tables: Sequence[Floats],
    rows: list[str],
    columns: list[str],
    *,
    height: float,
    least: float = 0.0,
) -> Facets:
    """A heat map of percentages per cell of the setting, with numbers where there is room."""
    grid = facets(len(tables), (3.2 if len(tables) > 2 else 4.0, height))
    for panel, label, table in zip(grid.panels, setting.labels, tables, strict=True):
        has_room = max(table.shape) <= MAX_NUMBERED
        width = 0.6 if has_room else 0
        draw_grid(panel, table, cmap=_COLOURS, vmin=0, vmax=100, linewidth=width)
        set_ticks(panel, rows[: len(table)], columns[: table.shape[1]])
        panel.set_title(short(label, 30))
        for (row, column), value in np.ndenumerate(table):
            if has_room and value >= least:  # false for NaN, too
                text = panel.text(column + 0.5, row + 0.52, f"{value:.0f}", fontsize=7)
                colour = "white" if value > 60 else style.INK
                text.set(ha="center", va="center", color=colour)
    return grid


def draw_grid(
    panel: Axes, values: Floats, *, cmap: Colormap, vmin: float, vmax: float, linewidth: float
) -> None:
    """A colour for each number that is known, (rows, columns), the first row on top.

    Many are drawn as one image: a path for each would make a file of megabytes.
    """
    panel.pcolormesh(
        np.ma.masked_invalid(values),
        cmap=cmap,
        vmin=vmin,
        vmax=vmax,
        edgecolors="white",
        linewidth=linewidth,
        rasterized=values.size > MAX_PATHS,
    )
    panel.invert_yaxis()


def set_ticks(panel: Axes, rows: list[str], columns: list[str]) -> None:
    """Names at the middle of each row and column of a grid, thinned out where they are many."""
    names = zip((panel.xaxis, panel.yaxis), (columns, rows), MAX_TICKS, strict=True)
    for axis, texts, most in names:
        places = range(0, len(texts), -(-len(texts) // most))
        axis.set_ticks([place + 0.5 for place in places], [texts[place] for place in places])
    longest = max(map(len, columns))
    panel.tick_params(axis="x", labelrotation=90 if longest > 2 else 0)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


# --- images ---------------------------------------------------------------------------------------

MAX_CLASSES, MAX_PER_CLASS = 8, 5
_PAD = 1
"""Pixels of white between two images."""

Pixels = NDArray[np.uint8]


def sample_sheet(setting: Setting) -> Drawing | None:
    """One row per class and event: some images before the drift, the same ones after it.

    Of vectors: points before and after, and the features that changed most.
    """
    runs = [run for cell in setting.cells for run in cell.runs if run.samples is not None]
    if not runs:
        return None
    run = runs[0]
    assert run.samples is not None
    if (drift := drift_in(run)) is not None:
        return _vector_sheet(run, drift)
    with tensors_in(run.samples) as file:
        tasks, labels = file.get_tensor("tasks").tolist(), file.get_tensor("labels").tolist()
        members: dict[tuple[int, int], list[int]] = {}
        for index, key in enumerate(zip(tasks, labels, strict=True)):
            members.setdefault(key, []).append(index)
        groups = sorted(members)[:MAX_CLASSES]
        shown = [members[group][:MAX_PER_CLASS] for group in groups]
        slices = {which: file.get_slice(which) for which in ("before", "after")}
        if len(slices["before"].get_shape()) != 4:
            return None  # vectors that cannot be drawn
        sheets = {  # one by one: the images that are not shown are not read
            which: contact_sheet([[images[i : i + 1][0] for i in group] for group in shown])
            for which, images in slices.items()
        }
    names = [_row_name(run, task, label) for task, label in groups]
    columns = max(map(len, shown))
    grid = facets(2, (0.4 + 0.65 * columns, 0.3 + 0.65 * len(groups)))
    for panel, (which, sheet) in zip(grid.panels, sheets.items(), strict=True):
        pixels = sheet if sheet.shape[2] == 3 else sheet[:, :, 0]
        panel.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        height = len(sheet) / len(groups)
        panel.set(title=which, xticks=[])
        panel.set_yticks([(row + 0.5) * height - 0.5 for row in range(len(groups))], names)
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
    grid.label()
    left_out = len(members) - len(groups)
    more = f" {left_out} more are not shown." if left_out else ""
    return Drawing(
        figure=grid.figure,
        title="Before and after drift",
        caption="Images of drifted classes, left just before the named task, right from it on. "
        f"{_provisos(run)}Seed {run.seed}.{more}",
        alt=f"Contact sheet of example images before and after drift: {', '.join(names)}.",
    )


def _vector_sheet(run: Run, drift: Drifted) -> Drawing:
    grid = facets(1 + len(drift.views), (2.6, 2.2))
    bars, *planes = grid.panels
    features = drift.features[:10][::-1]
    bars.barh(range(len(features)), [each["ks"] for each in features], color=REFERENCE)
    bars.set_yticks(range(len(features)), [short(each["name"], 14) for each in features])
    bars.set(title="features that changed most", xlim=(0, 1), xlabel="KS distance")
    for panel, (name, view) in zip(planes, drift.views, strict=True):
        for side, colour, marker in (("reference", REFERENCE, "o"), ("current", DRIFT, "s")):
            label = {"reference": "before", "current": "after"}[side]
            x, y = np.array(view[side]).T
            panel.scatter(x, y, s=9, c=colour, marker=marker, alpha=0.6, label=label)
        panel.set(title=short(name, 26), xticks=[], yticks=[])
    planes[0].legend(loc="best", markerscale=1.3)
    left_out = drift.num_classes - len(drift.views)
    more = f" {left_out} more are not shown." if left_out else ""
    across, up = (f"{share:.0%}" for share in drift.axes)
    strongest = ", ".join(each["name"] for each in drift.features[:3])
    return Drawing(
        figure=grid.figure,
        title="Before and after drift",
        caption="Left, the features whose distribution changed most, on average over all drifted "
        "classes. Points: vectors of drifted classes before the named task and from it on, along the "
        f"two directions in which vectors vary most before the drift ({across} and {up} of the "
        f"variance). Seed {run.seed}.{more}",
        alt=f"Features that changed most: {strongest}; vectors of drifted classes before and after "
        f"drift as points: {', '.join(name for name, _ in drift.views)}.",
    )


def _provisos(run: Run) -> str:
    """Why the image to the right may be another one, or no different."""
    words = ""
    if any(event.transform == "natural" for event in run.events):
        words += "Natural drift shows other images, those of the new domain. "
    if any(event.share < 1 or event.over_tasks > 1 for event in run.events):
        words += "Where a class drifts gradually or in part, an image may not have changed yet. "
    return words


def _row_name(run: Run, task: int, label: int) -> str:
    name = run.class_names[label] if 0 <= label < len(run.class_names) else str(label)
    return f"{'class ' if name.isdigit() else ''}{short(name, 14)}, task {task}"


def contact_sheet(rows: Sequence[Sequence[Pixels]]) -> Pixels:
    """Rows of images (h, w, c) as one image, with white between and where there is none."""
    columns = max(map(len, rows))
    blank = np.full_like(rows[0][0], 255)
    pad = ((_PAD, _PAD), (_PAD, _PAD), (0, 0))
    return np.vstack(
        [
            np.hstack(
                [
                    np.pad(image, pad, constant_values=255)
                    for image in [*row, *[blank] * (columns - len(row))]
                ]
            )
            for row in rows
        ]
    )
