"""From the features that runs kept to maps of two dimensions: by UMAP where it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from recollect.errors import UserError
from recollect.files import refuse_unsealed
from recollect.report.paper.feature_space import FeatureMap
from recollect.report.run import Floats, Run
from recollect.report.sweeps import Sweep

FEATURES = "features.safetensors"


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
    file = run.folder / FEATURES
    if not file.is_file():
        return ()
    try:
        refuse_unsealed(file)
        kept = load_file(file)
    except (OSError, SafetensorError, UserError) as error:
        warn(f"{file}: damaged ({error}), its map is left out")
        return ()
    return tuple(
        FeatureMap(
            task=task,
            coordinates=in_two_dimensions(kept[f"features-{task}"].astype(np.float64)),
            labels=kept[f"labels-{task}"].astype(np.int64),
            drifted=_has_drifted(run, task, kept[f"labels-{task}"]),
        )
        for task in range(1, run.num_tasks + 1)
        if f"features-{task}" in kept and f"labels-{task}" in kept
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
    return "the two main directions (pip install 'recollect[umap]' for UMAP)"


def _main_directions(features: Floats) -> Floats:
    centred = features - features.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    made: Floats = centred @ directions[:2].T
    return np.pad(made, ((0, 0), (0, 2 - made.shape[1])))
