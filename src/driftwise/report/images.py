"""Example images of drifted classes, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftwise.report.canvas import Drawing, Margins, panels, short, text_inches
from driftwise.report.cells import Setting
from driftwise.report.read import tensors_in
from driftwise.report.run import Run

MAX_CLASSES, MAX_PER_CLASS = 8, 5
_CELL_INCHES = 0.62
_PAD = 1
"""Pixels of white between two images."""

Pixels = NDArray[np.uint8]


def sample_sheet(setting: Setting) -> Drawing | None:
    """One row per class and event: some images as they were, the same ones as they became."""
    runs = [run for cell in setting.cells for run in cell.runs if run.samples is not None]
    if not runs:
        return None
    run = runs[0]
    assert run.samples is not None
    with tensors_in(run.samples) as file:
        tasks, labels = file.get_tensor("tasks").tolist(), file.get_tensor("labels").tolist()
        members: dict[tuple[int, int], list[int]] = {}
        for index, key in enumerate(zip(tasks, labels, strict=True)):
            members.setdefault(key, []).append(index)
        groups = sorted(members)[:MAX_CLASSES]
        shown = [members[group][:MAX_PER_CLASS] for group in groups]
        images = {which: _only(file.get_slice(which), shown) for which in ("before", "after")}
    columns = max(map(len, shown))
    numbers = iter(range(sum(map(len, shown))))
    rows = [[next(numbers) for _ in group] for group in shown]
    names = [_row_name(run, task, label) for task, label in groups]
    figure, axes = panels(
        2,
        width=columns * _CELL_INCHES,
        height=len(rows) * _CELL_INCHES,
        margins=Margins(left=0.25 + text_inches(names), bottom=0.15),
    )
    for panel, which in zip(axes, images, strict=True):
        sheet = contact_sheet(images[which], rows, columns)
        panel.imshow(
            sheet if sheet.shape[2] == 3 else sheet[:, :, 0],
            cmap="gray",
            vmin=0,
            vmax=255,
            interpolation="nearest",
            aspect="auto",
        )
        panel.set_title(which)
        panel.set_xticks([])
        panel.set_yticks([])
        for spine in panel.spines.values():
            spine.set_visible(False)
    height = sheet.shape[0] / len(rows)
    axes[0].set_yticks([(row + 0.5) * height - 0.5 for row in range(len(rows))], names)
    axes[0].tick_params(length=0)
    left_out = len(members) - len(groups)
    more = f" {left_out} more are not shown." if left_out else ""
    return Drawing(
        figure=figure,
        title="Before and after drift",
        caption="Images of drifted classes, left as they were just before the named task, right "
        f"as they look from it on. {_provisos(run)}Seed {run.seed}.{more}",
        alt=f"Contact sheet of example images before and after drift: {', '.join(names)}.",
    )


def _only(images: Any, groups: Sequence[Sequence[int]]) -> Pixels:
    """The images that are shown, one group after the other; the file's others are not read."""
    return np.concatenate([images[index : index + 1] for group in groups for index in group])


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


def contact_sheet(images: Pixels, rows: Sequence[Sequence[int]], columns: int) -> Pixels:
    """Images (n, h, w, c) laid out row by row with white between and where there is none."""
    _, height, width, channels = images.shape
    step_down, step_right = height + 2 * _PAD, width + 2 * _PAD
    sheet = np.full((len(rows) * step_down, columns * step_right, channels), 255, dtype=np.uint8)
    for row, members in enumerate(rows):
        for column, index in enumerate(members):
            top, left = row * step_down + _PAD, column * step_right + _PAD
            sheet[top : top + height, left : left + width] = images[index]
    return sheet
