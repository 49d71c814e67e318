"""Runs as MLflow models: logged, loaded and served as a python function.

    with mlflow.start_run():
        driftwise.integrations.mlflow.log_model("runs/mine", name="model")
    mlflow.pyfunc.load_model(uri).predict(images)     # class numbers

The model holds what `integrations.hub.export` writes: safetensors and JSON, nothing pickled.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import driftwise
from driftwise.errors import UserError
from driftwise.integrations.hub import export, from_hub

if TYPE_CHECKING:
    from driftwise.runs.predictor import Predictor

FLAVOR_NAME = "driftwise"
_FOLDER = "run"


def save_model(
    run: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    mlflow_model: Any = None,
    trust_imports: bool = False,
) -> None:
    """Write a finished run as an MLflow model into a new folder."""
    models, pyfunc = _mlflow()
    target = Path(path)
    if target.exists() and any(target.iterdir()):
        raise UserError(f"{target} is not empty; name a new folder for the model")
    export(run, target / _FOLDER, trust_imports=trust_imports)
    predictor = from_hub(target / _FOLDER, trust_imports=trust_imports)
    model = models.Model() if mlflow_model is None else mlflow_model
    if model.signature is None:
        model.signature = _signature(predictor)
    requirements = target / "requirements.txt"
    requirements.write_text(f"driftwise=={driftwise.__version__}\n", encoding="utf-8")
    pyfunc.add_to_model(model, loader_module=__name__, data=_FOLDER)
    model.add_flavor(
        FLAVOR_NAME,
        data=_FOLDER,
        driftwise_version=driftwise.__version__,
        class_names=list(predictor.class_names),
        trust_imports=trust_imports,
    )
    model.save(str(target / "MLmodel"))


def log_model(run: str | os.PathLike[str], *, name: str = "model", **options: Any) -> Any:
    """Log a finished run as a model of the MLflow run under way; options as in `Model.log`.

    Returns MLflow's `ModelInfo`, whose `model_uri` loads it.
    """
    models, _ = _mlflow()
    return models.Model.log(None, flavor=sys.modules[__name__], name=name, run=run, **options)


def load_model(model_uri: str, *, trust_imports: bool = False) -> Predictor:
    """The predictor of a logged or saved model."""
    _mlflow()
    from mlflow.artifacts import download_artifacts

    place = Path(model_uri)
    folder = place if place.is_dir() else Path(download_artifacts(artifact_uri=model_uri))
    return from_hub(folder / _FOLDER, trust_imports=trust_imports)


class _Served:
    """What MLflow serves."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> np.ndarray:
        """Class numbers of arrays, (samples, ...), or of the rows of a data frame."""
        del params
        if self._predictor.feature_names and hasattr(model_input, "columns"):
            return self._predictor.predict(model_input)  # columns in any order
        values = model_input.to_numpy() if hasattr(model_input, "to_numpy") else model_input
        return self._predictor.predict(np.asarray(values))


def _load_pyfunc(path: str) -> _Served:
    """As MLflow calls it; code of a run's own is not imported."""
    return _Served(from_hub(path))


def _signature(predictor: Predictor) -> Any:
    from mlflow.models.signature import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

    output = TensorSpec(np.dtype(np.int64), (-1,))
    if predictor.feature_names:  # else MLflow would take columns by their position
        columns = [ColSpec(DataType.double, name) for name in predictor.feature_names]
        return ModelSignature(inputs=Schema(columns), outputs=Schema([output]))
    shape = (-1, *predictor.image_shape)
    dtype = np.dtype(np.float32 if len(shape) == 2 else np.uint8)
    if len(shape) == 1:  # texts
        dtype = np.dtype(str)
    return ModelSignature(inputs=Schema([TensorSpec(dtype, shape)]), outputs=Schema([output]))


def _mlflow() -> tuple[Any, Any]:
    try:
        from mlflow import models, pyfunc
    except ImportError as error:
        raise UserError("MLflow models need MLflow: pip install 'driftwise[mlflow]'") from error
    return models, pyfunc
