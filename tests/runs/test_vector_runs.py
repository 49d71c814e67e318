"""Runs on feature vectors: gradient and analytic methods, saved, resumed, loaded, compared."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import Stop, StopAt, lasting, result_of

import driftwise as dw
from driftwise.cli import main as cli
from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.config.registry import CATALOGUE, is_analytic
from driftwise.config.schema import RunConfig
from driftwise.encoders.identity import IdentityEncoder
from driftwise.methods import AnalyticMethod
from driftwise.runs.checkpoint import flatten
from driftwise.runs.run import run
from driftwise.runs.saving import Saving
from driftwise.runs.store import read_checkpoint
from driftwise.types import Dataset

METHODS = list(CATALOGUE["method"])
ANALYTIC = [name for name in METHODS if is_analytic(name)]


def readings(seed: int = 0, *, samples: int = 480, features: int = 6) -> dict[str, Any]:
    """Four gases and sensors of different units; in the second year two gases read like others."""
    draw = np.random.default_rng(seed)
    gas, year = np.arange(samples) % 4, np.arange(samples) * 2 // samples
    centres = 6 * draw.normal(size=(4, features))
    values = centres[gas ^ year] + draw.normal(size=(samples, features))
    values = values * 10.0 ** (np.arange(features) % 7) + 100
    return {
        **{f"sensor {i}": values[:, i].round(4) for i in range(features)},
        "gas": np.array(["acetone", "ammonia", "ethanol", "ethylene"])[gas],
        "year": 2020 + year,
    }


DATA = dw.datasets.from_table(readings(), label="gas", domain="year", leave_out=())
DRIFT: dict[str, Any] = {
    "tasks": ((0, 1), (2, 3)),
    "num_drifts": 1,
    "scope": "all-seen",
    "first_domain": "2020",
    "domains": ("2021",),
}
OFTEN = Saving(steps=2, seconds=None)


def config_of(method: str = "slda", **settings: Any) -> RunConfig:
    small: dict[str, Any] = {} if is_analytic(method) else {"epochs": 4, "buffer_size": 60}
    if method == "ridge":
        small["options"] = {"method": {"width": 100}}
    return RunConfig(method=method, threads=1, **{**DRIFT, **small, **settings})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    columns = readings()
    lines = [",".join(columns)]
    lines += [",".join(map(str, line)) for line in zip(*columns.values(), strict=True)]
    (tmp_path / "readings.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "readings.csv"


# What a run computes


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_vectors_and_follows_their_drift(method: str, tmp_path: Path) -> None:
    adapted = run(config_of(method), tmp_path / "adapted", data=DATA)
    assert adapted["detection"]["num_detected"] == 2
    assert adapted["config"]["scaling"] == "standard"
    assert adapted["warnings"] == []
    if method in ANALYTIC:
        plain = run(config_of(method, adaptation="vanilla"), tmp_path / "plain", data=DATA)
        assert adapted["faa"] > 90
        assert plain["faa"] < 60
        assert adapted["labels"]["adaptation"] == 2 * 20


@pytest.mark.parametrize(
    ("method", "adaptation"),
    # Each adaptation with one of the methods: none knows a method.
    list(zip(itertools.cycle(ANALYTIC), CATALOGUE["adaptation"], strict=False)),
)
def test_every_adaptation_works_on_class_statistics(
    method: str, adaptation: str, tmp_path: Path
) -> None:
    found = run(config_of(method, adaptation=adaptation), tmp_path / "run", data=DATA)
    assert np.isfinite(found["faa"])
    asked = found["labels"]["adaptation"]
    if adaptation == "vanilla":
        assert asked == 0
    else:
        assert found["faa"] > (40 if adaptation in ("fr", "fr-scratch") else 80)
        assert asked > 0


@pytest.mark.parametrize("method", ANALYTIC)
def test_a_config_gives_the_numbers_of_the_objects_that_it_names(
    method: str, tmp_path: Path
) -> None:
    by_name = run(config_of(method, fresh_samples=7, seed=3), tmp_path / "run", data=DATA)
    part: AnalyticMethod = CATALOGUE["method"][method].make(
        options={"width": 100} if method == "ridge" else {}
    )
    loop = dw.DriftLoop(
        dw.AnalyticLearner(part, fresh_samples=7),
        detector=dw.detect.Combined(),
        adaptation=dw.adapt.Realign(),
        encoder=IdentityEncoder,
        reference="fingerprint",
        fingerprint_size=50,
        seed=3,
    )
    drift = {**DRIFT, "domains": list(DRIFT["domains"])}
    stream = dw.streams.class_incremental(DATA, reference="fingerprint", seed=3, **drift)
    list(loop.run(stream))
    for key in ("accuracy_matrix", "labels", "verdicts", "faa", "per_class_accuracy"):
        assert loop.result[key] == by_name[key]


def test_options_of_analytic_methods_are_the_fields_of_their_classes(tmp_path: Path) -> None:
    options = {"method": {"width": 50, "penalty": 0.1}}
    found = run(config_of("ridge", options=options), tmp_path / "run", data=DATA)
    assert found["config"]["options"]["method"] == {"width": 50, "penalty": 0.1, "seed": 0}


@pytest.mark.parametrize("method", ["slda", "er", "der++"])
@pytest.mark.parametrize("stop", [(1, 3), (2, 2)])
def test_a_resumed_run_equals_one_that_never_stopped(
    method: str, stop: tuple[int, int], tmp_path: Path
) -> None:
    config = config_of(method, adaptation="amr-partial")
    run(config, tmp_path / "whole", data=DATA, saving=OFTEN)
    with pytest.raises(Stop):
        run(config, tmp_path / "stopped", data=DATA, listener=StopAt(*stop), saving=OFTEN)
    run(config, tmp_path / "stopped", data=DATA, resume=True, saving=OFTEN)
    assert lasting(tmp_path / "whole") == lasting(tmp_path / "stopped")
    whole, stopped = (
        flatten(read_checkpoint(tmp_path / name)["parts"]["learner"])[0]
        for name in ("whole", "stopped")
    )
    assert whole.keys() == stopped.keys()
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


@pytest.mark.parametrize("method", ["ncm", "ridge", "er"])
def test_a_loaded_run_predicts_raw_vectors_as_its_result_says(method: str, tmp_path: Path) -> None:
    # One class is left out, so that the learner never meets the last one.
    tasks = ((0, 1), (2,))
    config = config_of(method, tasks=tasks)
    result = run(config, tmp_path / "run", data=DATA)
    predictor = dw.load(tmp_path / "run")
    stream = dw.streams.class_incremental(
        DATA, reference="fingerprint", **{**DRIFT, "tasks": tasks}
    )
    tests = stream.raw_samples("test", (0, 1, 2), 2)
    predicted = predictor.predict(tests.images.numpy())
    right = predicted == tests.labels.numpy()
    by_task = [100 * right[np.isin(tests.labels, classes)].mean() for classes in tasks]
    assert by_task == pytest.approx(result["accuracy_matrix"][-1])
    odds = predictor.predict_proba(tests.images.double())
    assert odds.shape == (len(tests), 4)
    np.testing.assert_allclose(odds.sum(axis=1), 1, rtol=1e-5)
    assert predictor.image_shape == (6,)


# The command line


def said(*words: object, code: int = 0) -> int:
    found = cli.command([str(word) for word in words])
    assert found == code
    return found


TABLE_FLAGS = (
    *("--benchmark", "table", "--benchmark.label", "gas", "--benchmark.domain", "year"),
    *("--tasks", "[[0,1],[2,3]]", "--num-drifts", "1", "--scope", "all-seen"),
    *("--first-domain", "2020", "--domains", "2021", "--threads", "1"),
)


@pytest.mark.usefixtures("one_figure")
def test_a_table_is_run_compared_swept_and_reported(table: Path, tmp_path: Path) -> None:
    flags = ("--data", table, *TABLE_FLAGS, "--method", "slda", "--quiet")
    said("run", *flags, "--out", tmp_path / "one")
    from_python = run(config_of("slda"), tmp_path / "python", data=DATA)
    assert result_of(tmp_path / "one")["accuracy_matrix"] == from_python["accuracy_matrix"]

    said("compare", *flags, "--num-seeds", "1", "--out", tmp_path / "compared")
    assert (tmp_path / "compared" / "amr-seed0" / "result.json").exists()
    said("report", tmp_path / "compared", tmp_path / "one", "--out", tmp_path / "report.html")

    grid = {
        "name": "sensors",
        "base": {
            "data": {"table": str(table), "label": "gas", "domain": "year"},
            **{key: value for key, value in config_of("slda").to_json().items() if key in DRIFT},
        },
        "grid": {"method": ["slda", "er"]},
    }
    (tmp_path / "grid.yaml").write_text(json.dumps(grid))
    said("sweep", tmp_path / "grid.yaml", "--out", tmp_path / "sweep", "--workers", "1", "--quiet")
    found = {result_of(folder)["method"] for folder in (tmp_path / "sweep" / "runs").iterdir()}
    assert found == {"slda", "er"}


def test_vectors_in_an_npz_file_are_known_before_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "vectors.npz"
    columns = readings()
    names = np.unique(columns["gas"])
    np.savez(
        file,
        features=DATA.images,
        labels=np.searchsorted(names, columns["gas"]),
        domain=columns["year"],
    )
    config = resolve(RunConfig(benchmark="npz", data=str(file), method="er"))
    assert (config.backbone, config.scaling, config.encoder) == ("mlp", "standard", "identity")
    assert config.reference == "fingerprint"
    said(
        *("run", "--benchmark", "npz", "--data", file, "--method", "ncm", "--quiet"),
        *TABLE_FLAGS[6:],
        *("--out", tmp_path / "run"),
    )
    assert result_of(tmp_path / "run")["faa"] > 90


# Bad input


def changed(column: str, value: Any, *, at: Any = 0) -> dict[str, Any]:
    columns = {name: values.astype(object) for name, values in readings().items()}
    columns[column][at] = value
    return columns


def run_table(columns: dict[str, Any], tmp_path: Path, **settings: Any) -> dict[str, Any]:
    data = dw.datasets.from_table(columns, label="gas", domain="year")
    return run(config_of(**settings), tmp_path / "run", data=data)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (changed("sensor 1", "broken"), "sensor 1.*'broken'"),
        (changed("sensor 2", None), "sensor 2"),
        (changed("sensor 2", float("nan"), at=slice(None)), "sensor 2"),
        (changed("sensor 2", float("inf")), "sensor 2"),
        (changed("sensor 3", 1e300), "sensor 3"),
    ],
)
def test_columns_that_are_no_numbers_are_refused_by_name(
    columns: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(dw.UserError, match=message):
        run_table(columns, tmp_path)


@pytest.mark.parametrize("method", ["slda", "ridge", "ncm", "er"])
@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(changed("sensor 1", 3.0, at=slice(None)), id="a constant column"),
        pytest.param(changed("sensor 1", 3.0, at=slice(0, 240)), id="constant in the first task"),
        pytest.param(readings(samples=240, features=300), id="more features than samples"),
        pytest.param({**readings(), "copy": readings()["sensor 0"]}, id="a singular covariance"),
    ],
)
def test_degenerate_data_are_learned_with_finite_numbers(
    columns: dict[str, Any], method: str, tmp_path: Path
) -> None:
    found = run_table(columns, tmp_path, method=method)
    assert found["faa"] > (60 if method == "er" else 80)
    json.dumps(found, allow_nan=False)


def test_a_class_with_one_sample_is_reported(tmp_path: Path) -> None:
    few = np.flatnonzero((DATA.labels != 0) | (np.cumsum(DATA.labels == 0) == 1))
    few = few[few < 240]  # of the first year
    data = dataclasses.replace(
        DATA, images=DATA.images[few], labels=DATA.labels[few], domains=None, domain_names=()
    )
    config = RunConfig(method="slda", num_tasks=2, num_drifts=0, detector="never")
    with pytest.warns(UserWarning, match="class 'acetone' has no test images and is not scored"):
        found = run(config, tmp_path / "run", data=data)
    assert found["faa"] > 60


CONFIG_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"augmentation": "flip"}, "augmentation is for images.*got 'flip': leave it out"),
    ({"channels": 3}, "channels is for images"),
    ({"normalise": True}, "normalise is for images.*use scaling"),
    ({"memory_format": "channels-last"}, "memory_format is for images"),
    ({"backbone": "resnet18"}, "backbone resnet18 takes images.*backbone mlp"),
    ({"permutation_unit": "row"}, "permutation_unit row is for images"),
    ({"preset": "published"}, "the published experiments learned from images"),
    ({"encoder": "efficientnet"}, "efficientnet.* needs images"),
    ({"reference": "memory", "method": "slda"}, "keeps statistics, and no samples"),
    ({"fresh_samples": 5, "method": "er"}, "fresh_samples is a setting of analytic methods"),
    ({"scaling": "log"}, "scaling must be one of none, standard, signed-log; got 'log'"),
    ({"domains": None, "first_domain": None, "transform": "defocus-blur"}, "use one of .*shift"),
]


@pytest.mark.parametrize(("settings", "message"), CONFIG_REFUSALS)
def test_settings_that_vectors_have_no_use_for_are_refused(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    method = settings.get("method", "er")
    with pytest.raises(dw.UserError, match=message):
        run(config_of(**{"method": method, **settings}), tmp_path / "run", data=DATA)


def images_of(data: Dataset = DATA) -> Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (len(data.labels), 4, 4, 1), dtype=np.uint8)
    return dataclasses.replace(data, images=pixels, feature_names=())


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda out: run(config_of("slda"), out, data=images_of()),
            "learns from feature vectors.*frozen_encoder",
        ),
        (
            lambda out: run(config_of("er", scaling="standard"), out, data=images_of()),
            "scaling is for feature vectors",
        ),
        (
            lambda out: run(config_of("slda"), out, data=DATA, network=torch.nn.Linear(6, 4)),
            "trains no network",
        ),
        (
            lambda out: run(RunConfig(benchmark="table", data="nowhere.csv"), out),
            "no table at nowhere.csv",
        ),
        (lambda out: run(RunConfig(benchmark="table"), out), 'needs data="FILE"'),
        (
            lambda out: run(config_of("slda"), out, data={"width": [1.0], "kind": [0]}),  # type: ignore[arg-type]
            "got dict: make one with datasets.from_table",
        ),
        (
            lambda out: dw.streams.class_incremental((np.zeros((4, 2)), [0, 1, 0, 1])),  # type: ignore[arg-type]
            "got tuple: make one with .*from_arrays",
        ),
    ],
)
def test_what_cannot_be_learned_is_refused_before_a_folder_is_made(
    act: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(dw.UserError, match=message):
        act(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_predictor_matches_the_columns_of_a_frame_by_name(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    run(config_of("slda"), tmp_path / "run", data=DATA)
    predictor = dw.load(tmp_path / "run")
    frame = pandas.DataFrame(DATA.images, columns=DATA.feature_names)
    odds = predictor.predict_proba(DATA.images)
    assert np.array_equal(predictor.predict_proba(frame[list(DATA.feature_names)[::-1]]), odds)
    with pytest.raises(dw.UserError, match=r"each of the run's columns once; sensor 2 missing"):
        predictor.predict(frame.drop(columns="sensor 2"))
    run(config_of("slda"), tmp_path / "nameless", data=dataclasses.replace(DATA, feature_names=()))
    with pytest.raises(dw.UserError, match="does not know its features by name"):
        dw.load(tmp_path / "nameless").predict(frame)


def test_a_predictor_refuses_other_dimensions_gaps_and_text(tmp_path: Path) -> None:
    run(config_of("slda"), tmp_path / "run", data=DATA)
    predictor = dw.load(tmp_path / "run")
    for samples, message in (
        (DATA.images[:, :5], r"expected vectors of numbers \(samples, 6\); got float32 \(480, 5\)"),
        (DATA.images[0], "got float32"),
        (np.array([["a"] * 6]), "expected vectors of numbers"),
        (images_of().images, "got uint8"),
        (np.full((1, 6), np.nan), "not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            predictor.predict(samples)
    with pytest.raises(dw.UserError, match="has no network"):
        _ = predictor.network


CUSTOM = """
import numpy as np
from driftwise.types import Dataset


def sensors():
    labels = np.arange(120) % 3
    vectors = np.random.default_rng(0).normal(size=(120, 2)) + labels[:, None]
    return Dataset(images=vectors.astype(np.float32), labels=labels, class_names=("a", "b", "c"))
"""


def test_vectors_of_ones_own_function_are_announced_by_a_scaling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_sensors.py").write_text(CUSTOM)
    settings: dict[str, Any] = {"benchmark": "own_sensors:sensors", "num_tasks": 3, "epochs": 1}
    with pytest.raises(dw.UserError, match=r"holds feature vectors.*set scaling"):
        run(RunConfig(**settings), "run")
    config = resolve(RunConfig(**settings, scaling="none"))
    assert (config.backbone, config.encoder) == ("mlp", "identity")
    assert assemble(config).stream.image_shape == (2,)


def test_a_run_of_objects_says_how_it_scales_and_what_it_asks_for() -> None:
    loop = dw.DriftLoop(dw.AnalyticLearner(dw.methods.SLDA(), fresh_samples=7))
    drift = {**DRIFT, "domains": list(DRIFT["domains"])}
    list(loop.run(dw.streams.class_incremental(DATA, scaling="signed-log", **drift)))
    config = loop.result["config"]
    assert (config["scaling"], config["fresh_samples"]) == ("signed-log", 7)


def test_settings_without_meaning_to_an_analytic_method_are_named(tmp_path: Path) -> None:
    useless = {"epochs": 5, "lr": 0.1, "buffer_size": 100, "optimiser": "adam"}
    found = run_quietly(config_of("slda", **useless), tmp_path / "run")
    assert found["warnings"] == [
        "the method slda computes its classifier from class statistics, in one pass: "
        "buffer_size, lr, optimiser, epochs do nothing"
    ]
    plain = run(config_of("slda"), tmp_path / "plain", data=DATA)
    assert plain["accuracy_matrix"] == found["accuracy_matrix"]


def run_quietly(config: RunConfig, out: Path) -> dict[str, Any]:
    with pytest.warns(UserWarning, match="do nothing"):
        return run(config, out, data=DATA)
