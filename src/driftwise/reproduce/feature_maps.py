"""From the features that runs kept to maps of two dimensions: by UMAP where it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftwise.report.parse import DamagedError
from driftwise.report.read import shapes_in, tensors_in
from driftwise.report.run import Floats, Run
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.feature_space import FeatureMap

FEATURES = "features.safetensors"
MOST_POINTS = 10_000
"""Points of a map; a run keeps 500."""


def maps_of(sweep: Sweep, warn: Callable[[str], None]) -> dict[str, tuple[FeatureMap, ...]]:
    """By what was done about drift, the maps of the first run that has kept features.

    Features that are damaged are told to `warn` and left out.
    """
    found: dict[str, tuple[FeatureMap, ...]] = {}
    for entry in sweep.entries:
        if entry.run is None:
            continue
        name = f"{entry.run.adaptation}" if entry.run.num_drifts else "no drift"
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
    """(rows, 2) that keeps neighbours together; the two main directions where UMAP is missing."""
    if len(features) < 20:  # too few for neighbourhoods
        return _main_directions(features)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that a fixed seed means one thread
            from umap import UMAP

            made = UMAP(n_components=2, random_state=0, n_jobs=1).fit_transform(features)
    except ImportError:
        return _main_directions(features)
    return np.asarray(made, dtype=np.float64)


def how() -> str:
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
