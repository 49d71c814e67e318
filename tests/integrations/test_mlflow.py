"""Runs as MLflow models, with the real MLflow where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_hub import table_run

import driftwise as dw
from driftwise.datasets.readers.digits import load_digits
from driftwise.errors import UserError

mlflow = pytest.importorskip("mlflow")
pytest.importorskip("mlflow.pyfunc")
flavour = pytest.importorskip("driftwise.integrations.mlflow")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mlflow") / "run"
    dw.run(dw.RunConfig(benchmark="digits-cd", num_tasks=2, epochs=1, detector="never"), folder)
    return folder


def test_a_logged_run_is_served_as_a_function(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "MLFLOW_ALLOW_FILE_STORE", "true"
    )  # a database needs more than mlflow-skinny
    mlflow.set_tracking_uri((tmp_path / "tracking").as_uri())
    images = load_digits().images[:30]
    expected = dw.load(run).predict(images)
    with mlflow.start_run():
        logged = flavour.log_model(run, name="digits")
    assert np.array_equal(flavour.load_model(logged.model_uri).predict(images), expected)
    served = mlflow.pyfunc.load_model(logged.model_uri)
    assert np.array_equal(served.predict(images), expected)


@pytest.mark.filterwarnings("ignore")  # of MLflow's server
def test_a_saved_run_is_loaded_without_a_server_and_served_by_mlflows_own(
    run: Path, tmp_path: Path
) -> None:
    flavour.save_model(run, tmp_path / "model")
    images = load_digits().images[:30]
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert np.array_equal(served.predict(images), dw.load(run).predict(images))
    assert served.metadata.flavors["driftwise"]["class_names"] == list(dw.load(run).class_names)
    serving: Any = pytest.importorskip("mlflow.pyfunc.scoring_server")
    testing: Any = pytest.importorskip("fastapi.testclient")
    client = testing.TestClient(serving.init(served))  # what `mlflow models serve` runs
    answer = client.post("/invocations", json={"inputs": images.tolist()})
    assert answer.json()["predictions"] == dw.load(run).predict(images).tolist()
    assert client.post("/invocations", json={"inputs": [[1, 2]]}).status_code == 400
    with pytest.raises(UserError, match="not empty"):
        flavour.save_model(run, tmp_path / "model")
    with pytest.raises(Exception, match="shape"):
        served.predict(images[:, :4])


def test_columns_of_a_frame_are_matched_by_name(tmp_path: Path) -> None:
    frame = table_run(tmp_path / "run")
    flavour.save_model(tmp_path / "run", tmp_path / "model")
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    expected = dw.load(tmp_path / "run").predict(frame)
    assert np.array_equal(served.predict(frame[list(frame)[::-1]]), expected)
    with pytest.raises(Exception, match="missing inputs"):
        served.predict(frame.drop(columns="sensor 2"))
    with pytest.raises(Exception, match="missing inputs"):  # an array has no names
        served.predict(frame.to_numpy())
