"""How the first task's classes lie in feature space as later tasks come, with and without drift.

Features that runs have kept become maps of two dimensions, by UMAP where it is installed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from driftwise.report import style
from driftwise.report.facets import Drawing, short
from driftwise.report.parse import DamagedError
from driftwise.report.read import shapes_in, tensors_in
from driftwise.report.saved_run import Floats, Run
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.charts import chart, remark

FEATURES = "features.safetensors"
MOST_POINTS = 10_000
"""Points of a map; a run keeps 500."""


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
    """Features of the first task's test samples after a task, in two dimensions."""

    task: int
    """counted from 1"""
    coordinates: Floats
    """(n, 2)"""
    labels: NDArray[np.int64]
    """(n,)"""
    drifted: bool
    """whether these classes have drifted by then"""


FeatureMaps = Mapping[str, Sequence[FeatureMap]]
"""By run ("no drift", "vanilla", "amr", ...), one map per task."""


def draw_feature_maps(
    maps: FeatureMaps, *, title: str, notes: str, class_names: Sequence[str] = ()
) -> Drawing | None:
    """Small multiples: a line of panels per run, a column per task; None if there is no map."""
    runs = {name: {each.task: each for each in found} for name, found in maps.items() if found}
    tasks = sorted({task for found in runs.values() for task in found})
    labels = sorted({int(c) for name in runs for each in maps[name] for c in each.labels})
    if not tasks:
        return None
    faces = {label: _CLASSES[index % len(_CLASSES)] for index, label in enumerate(labels)}
    names = {label: _class_name(label, class_names) for label in labels}

    def draw(panel: Axes, key: tuple[str, int]) -> str:
        name, task = key
        found = runs[name].get(task)
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set(visible=True, color=style.FAINT, linewidth=0.7)
        if found is None:
            remark(panel, ["not there yet"])
        else:
            _scatter(panel, found, faces)
        if task != tasks[0]:
            return ""
        panel.set_ylabel(short(name, 22), fontweight="bold")
        since = [each.task for each in maps[name] if each.drifted]
        return f"{name}: {f'drifted from task {min(since)} on' if since else 'never drifted'}"

    legend = [
        Line2D([], [], linestyle="", color=colour, marker=marker, markersize=5, label=names[label])
        for label, (colour, marker) in faces.items()
    ]
    drift = Line2D([], [], color=style.DRIFT, linewidth=1.8, label="after their drift")
    return chart(
        "Feature space",
        title,
        [(name, task) for name in runs for task in tasks],
        (1.7, 1.7),
        draw,
        columns=len(tasks),
        titles=[f"after task {task}" for task in tasks],
        headline="The first task's classes in feature space",
        legend=[*legend, drift],
        caption="Features of test samples of the first task's classes after each task, projected "
        "to two dimensions. Axes have no unit, and each panel its own: what counts is whether the "
        "classes lie apart. An orange frame: from here on the samples shown have drifted.",
        alt=f"Scatter plots of two-dimensional features of {', '.join(names.values())} after tasks "
        f"{', '.join(map(str, tasks))};",
        notes=notes,
    )


def _class_name(label: int, class_names: Sequence[str]) -> str:
    name = class_names[label] if label < len(class_names) else str(label)
    return f"class {name}" if name.isdigit() else short(name)


def _scatter(panel: Axes, found: FeatureMap, faces: Mapping[int, tuple[str, str]]) -> None:
    size = float(np.clip(1500 / max(1, len(found.labels)), 3, 22))
    for label, (colour, marker) in faces.items():
        x, y = found.coordinates[found.labels == label].T
        panel.scatter(x, y, s=size, c=colour, marker=marker, alpha=0.6, linewidth=0)
    if found.drifted:
        panel.spines[:].set(color=style.DRIFT, linewidth=1.8)


def maps_of(sweep: Sweep, warn: Callable[[str], None]) -> dict[str, tuple[FeatureMap, ...]]:
    """By adaptation, the maps of the first run that has kept features.

    Features that are damaged are reported to `warn` and left out.
    """
    found: dict[str, tuple[FeatureMap, ...]] = {}
    for entry in sweep.entries:
        if entry.run is None:
            continue
        name = entry.run.adaptation if entry.run.num_drifts else "no drift"
        maps = _maps(entry.run, warn)
        if maps and name not in found:
            found[name] = maps
    return found


def _maps(run: Run, warn: Callable[[str], None]) -> tuple[FeatureMap, ...]:
    path = run.folder / FEATURES
    if not path.exists():
        return ()
    try:
        with tensors_in(path) as file:
            names = set(file.keys())
            return tuple(
                _map(file, run, task)
                for task in range(1, run.num_tasks + 1)
                if {f"features-{task}", f"labels-{task}"} <= names
            )
    except DamagedError as error:
        warn(f"{path}: damaged ({error}), its map is left out")
        return ()


def _map(file: Any, run: Run, task: int) -> FeatureMap:
    names = f"features-{task}", f"labels-{task}"
    shape, (num, *more) = (shapes_in(file, names)[name] or [0] for name in names)
    if len(shape) != 2 or shape[0] != num or more or not 1 <= num <= MOST_POINTS or not shape[1]:
        raise DamagedError(f"has features of shape {shape} for labels of shape {[num, *more]}")
    features, labels = (file.get_tensor(name) for name in names)
    if features.dtype.kind not in "fiu" or not np.isfinite(features).all():
        raise DamagedError(f"has features that are not finite numbers after task {task}")
    return FeatureMap(
        task=task,
        coordinates=in_two_dimensions(features.astype(np.float64)),
        labels=labels.astype(np.int64),
        drifted=_has_drifted(run, task, labels),
    )


def _has_drifted(run: Run, task: int, labels: NDArray[np.generic]) -> bool:
    classes = {int(label) for label in np.unique(labels)}
    return any(event.task <= task and classes & set(event.classes) for event in run.events)


def in_two_dimensions(features: Floats) -> Floats:
    """(n, d) -> (n, 2), neighbours kept together; the two main directions where UMAP is missing."""
    if len(features) < 20:  # too few for neighbourhoods
        return _main_directions(features)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that a fixed seed means one thread
            from umap import UMAP

            made = UMAP(n_components=2, random_state=0, n_jobs=1).fit_transform(features)
    except ImportError:
        return _main_directions(features)
    return np.asarray(made, dtype=np.float64)


def projection() -> str:
    """By what maps are made here, for a caption."""
    from importlib.util import find_spec

    if find_spec("umap") is not None:
        return "UMAP"
    return "the two main directions (pip install 'driftwise[umap]' for UMAP)"


def _main_directions(features: Floats) -> Floats:
    centred = features - features.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    made: Floats = centred @ directions[:2].T
    return np.pad(made, ((0, 0), (0, 2 - made.shape[1])))
