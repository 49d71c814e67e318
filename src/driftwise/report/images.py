"""Example images of drifted classes, before and after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from driftwise.report.cells import Setting
from driftwise.report.facets import Drawing, facets, short
from driftwise.report.read import tensors_in
from driftwise.report.run import Run

MAX_CLASSES, MAX_PER_CLASS = 8, 5
_PAD = 1
"""Pixels of white between two images."""

Pixels = NDArray[np.uint8]


def sample_sheet(setting: Setting) -> Drawing | None:
    """One row per class and event: some images before the drift, the same ones after it."""
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
        slices = {which: file.get_slice(which) for which in ("before", "after")}
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
