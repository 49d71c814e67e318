"""How the first task's classes lie in feature space as later tasks come, with and without drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from driftwise.report import style
from driftwise.report.canvas import Drawing, Margins, short
from driftwise.report.run import Floats
from driftwise.reproduce.plate import Frame, plate, remark

_CLASSES = (
    ("#0072B2", "o"),
    ("#E69F00", "^"),
    ("#009E73", "s"),
    ("#CC79A7", "D"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
)
"""Colour and marker by class, over and over; vermillion is kept for drift."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureMap:
    """The first task's test rows, as the network sees them after a task, in two dimensions."""

    task: int
    """counted from 1"""
    coordinates: Floats
    """(rows, 2)"""
    labels: NDArray[np.int64]
    """(rows,)"""
    drifted: bool
    """whether these classes have changed their look by then"""


FeatureRows = Mapping[str, Sequence[FeatureMap]]
"""By run ("no drift", "vanilla", "amr", ...), one map per task."""


def feature_maps(
    rows: FeatureRows, *, title: str, notes: str, class_names: Sequence[str] = ()
) -> Drawing | None:
    """Small multiples: a row per run, a column per task; None if there is no map at all."""
    runs = [name for name in rows if rows[name]]
    tasks = sorted({each.task for name in runs for each in rows[name]})
    labels = sorted({int(c) for name in runs for each in rows[name] for c in each.labels})
    if not tasks:
        return None
    names = {label: _class_name(label, class_names) for label in labels}
    looks = {label: _CLASSES[index % len(_CLASSES)] for index, label in enumerate(labels)}
    legend = [
        Line2D([], [], linestyle="", color=colour, marker=marker, markersize=5, label=names[label])
        for label, (colour, marker) in looks.items()
    ]
    drift = Line2D([], [], color=style.DRIFT, linewidth=1.8, label="after their drift")
    drawn = plate(
        len(runs) * len(tasks),
        1.6,
        1.6,
        columns=len(tasks),
        frame=Frame(
            headline=f"The first task's classes in feature space: {title}",
            notes=notes,
            legend=(*legend, drift),
        ),
        margins=Margins(left=0.5, bottom=0.1, top=0.3, column_gap=0.12, row_gap=0.15),
    )
    places = [(name, task) for name in runs for task in tasks]
    for panel, (name, task) in zip(drawn.panels, places, strict=True):
        found = next((each for each in rows[name] if each.task == task), None)
        panel.set(xticks=[], yticks=[])
        for spine in panel.spines.values():
            spine.set(visible=True, color=style.FAINT, linewidth=0.7)
        if found is None:
            remark(panel, ["not there yet"])
        else:
            _draw(panel, found, looks)
    for panel, task in zip(drawn.panels, tasks, strict=False):
        panel.set_title(f"after task {task}")
    for panel, name in zip(drawn.left, runs, strict=True):
        panel.set_ylabel(short(name, 22), fontweight="bold")
    return Drawing(
        figure=drawn.figure,
        title=f"Feature space, {title}",
        caption="Test rows of the first task's classes as the network represents them after each "
        "task, brought to two dimensions. Axes have no unit, and each panel its own: what counts "
        "is whether the classes lie apart. An orange frame: from here on the rows shown have "
        f"drifted. {notes}",
        alt="Scatter plots of two-dimensional features of "
        f"{', '.join(names.values())} after tasks {', '.join(map(str, tasks))}; "
        + "; ".join(f"{name}: {_drift_words(rows[name])}" for name in runs)
        + ".",
    )


def _class_name(label: int, class_names: Sequence[str]) -> str:
    name = class_names[label] if label < len(class_names) else str(label)
    return f"class {name}" if name.isdigit() else short(name)


def _draw(panel: Axes, found: FeatureMap, looks: Mapping[int, tuple[str, str]]) -> None:
    size = float(np.clip(1500 / max(1, len(found.labels)), 3, 22))
    for label, (colour, marker) in looks.items():
        members = found.coordinates[found.labels == label]
        panel.scatter(
            members[:, 0], members[:, 1], s=size, c=colour, marker=marker, alpha=0.6, linewidth=0
        )
    if found.drifted:
        for spine in panel.spines.values():
            spine.set(color=style.DRIFT, linewidth=1.8)


def _drift_words(maps: Sequence[FeatureMap]) -> str:
    since = [each.task for each in maps if each.drifted]
    return f"drifted from task {min(since)} on" if since else "never drifted"
