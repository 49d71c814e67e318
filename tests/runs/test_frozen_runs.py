"""Runs behind a frozen encoder: images drift, features are learned; saved, resumed, loaded."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import Stop, StopAt, lasting
from torch import nn

import driftwise as dw
from driftwise.config.schema import RunConfig
from driftwise.encoders import IdentityEncoder
from driftwise.runs.run import resume, run
from driftwise.runs.saving import Saving
from driftwise.types import Dataset

SAVING = Saving(steps=3, seconds=None)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def shapes(seed: int = 0) -> Dataset:
    """Four classes of 8x8 images, a bright quadrant each."""
    draw = np.random.default_rng(seed)
    labels = np.arange(240) % 4
    shine = np.kron(np.eye(4).reshape(4, 2, 2), np.ones((4, 4)))
    noise = draw.integers(0, 60, (240, 8, 8, 1))
    images = (180 * shine[labels][..., None] + noise).astype(np.uint8)
    return Dataset(images=images, labels=labels, class_names=tuple("abcd"))


DATA = shapes()


def config_of(method: str = "slda", **settings: Any) -> RunConfig:
    usual: dict[str, Any] = {
        "num_tasks": 2,
        "transform": "permutation",
        "severity": 5,
        "threads": 1,
    }
    if method != "slda":
        usual |= {"epochs": 3, "buffer_size": 40}
    return RunConfig(method=method, **{**usual, "frozen_encoder": "random", **settings})


class Pooled(nn.Module):
    """A frozen network: the mean of each quarter, and its square."""

    def __init__(self, power: float = 2.0) -> None:
        super().__init__()
        self.power = nn.Parameter(torch.tensor(power), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = nn.functional.avg_pool2d(x, 4).flatten(1)
        return torch.cat([means, means**self.power], dim=1)


@pytest.mark.parametrize("method", ["slda", "der++"])
def test_images_drift_and_their_features_are_realigned(method: str, tmp_path: Path) -> None:
    found = run(config_of(method), tmp_path / "run", data=DATA)
    assert found["detection"]["num_detected"] == 2
    assert found["faa"] > 80
    assert found["config"]["scaling"] == "standard"
    assert found["drift_events"][0]["transform"] == "permutation"
    assert all(found["flops"][phase] > 0 for phase in ("train", "detect", "adapt", "evaluate"))


def test_a_config_gives_the_numbers_of_the_objects_that_it_names(tmp_path: Path) -> None:
    by_name = run(config_of(), tmp_path / "run", data=DATA)
    stream = dw.streams.class_incremental(
        DATA, num_tasks=2, reference="fingerprint", encoder=dw.encoders.load("random")
    )
    loop = dw.DriftLoop(
        dw.AnalyticLearner(dw.methods.SLDA()),
        encoder=IdentityEncoder,
        reference="fingerprint",
        fingerprint_size=50,
    )
    list(loop.run(stream))
    for key in ("accuracy_matrix", "labels", "verdicts", "flops"):
        assert loop.result[key] == by_name[key]


@pytest.mark.parametrize("method", ["slda", "er"])
@pytest.mark.parametrize("keep_cache", [True, False])
def test_a_resumed_run_equals_one_that_never_stopped(
    method: str, keep_cache: bool, tmp_path: Path, cache: Path
) -> None:
    config = config_of(method)
    run(config, tmp_path / "whole", data=DATA, saving=SAVING)
    shutil.rmtree(cache)
    with pytest.raises(Stop):
        run(config, tmp_path / "stopped", data=DATA, listener=StopAt(2, 2), saving=SAVING)
    if not keep_cache:
        shutil.rmtree(cache)
    run(config, tmp_path / "stopped", data=DATA, resume=True, saving=SAVING)
    assert lasting(tmp_path / "whole") == lasting(tmp_path / "stopped")


def test_an_encoder_given_as_an_object_is_needed_again(tmp_path: Path) -> None:
    config = config_of(frozen_encoder=None)
    with pytest.raises(Stop):
        run(config, tmp_path / "run", data=DATA, frozen_encoder=Pooled(), listener=StopAt(2, 0))
    with pytest.raises(dw.UserError, match=r"frozen encoder given from Python.*give it again"):
        resume(tmp_path / "run", data=DATA)
    with pytest.raises(dw.UserError, match="frozen_encoder"):
        resume(tmp_path / "run", data=DATA, frozen_encoder=Pooled(3.0))
    found = resume(tmp_path / "run", data=DATA, frozen_encoder=Pooled())
    predictor = dw.load(tmp_path / "run", frozen_encoder=Pooled())
    assert predictor.image_shape == (8, 8, 1)
    stream = dw.streams.class_incremental(DATA, num_tasks=2, reference="fingerprint")
    tests = stream.task(2).tests()
    right = predictor.predict(tests.images) == tests.labels.numpy()
    assert 100 * right.mean() == pytest.approx(found["faa"])
    otherwise_scaled = dw.encoders.load(Pooled(), preprocess=lambda images: images.mT.float())
    for other in (Pooled(3.0), otherwise_scaled):
        with pytest.raises(dw.UserError, match="features were made by the encoder"):
            dw.load(tmp_path / "run", frozen_encoder=other)
    with pytest.raises(ValueError, match="expected uint8 images"):
        predictor.predict(tests.images.float())


OWN = """
import torch


def halves(images):
    return images.flatten(1).reshape(len(images), 8, 8).mean(dim=2)
"""


def test_an_encoder_of_ones_own_is_code_that_must_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("halving.py").write_text(OWN)
    config = config_of(frozen_encoder="halving:halves", benchmark="digits-cd", num_tasks=2)
    with pytest.warns(UserWarning, match="identity|kept"):
        found = run(config, "run")
    assert found["config"]["code_identity"]
    for act in (lambda: resume("run"), lambda: dw.load("run")):
        with pytest.raises(dw.UserError, match=r"code.*frozen_encoder halving:halves.*trust"):
            act()
    assert dw.load("run", trust_imports=True).image_shape == (8, 8, 1)
    Path("halving.py").write_text(OWN.replace("dim=2", "dim=1"))
    del sys.modules["halving"]
    with pytest.raises(dw.UserError, match=r"halving:halves.*is not what the config was made with"):
        resume("run", trust=True)


TEXTS = np.array([f"text {n}" for n in range(240)], dtype=object)


@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        ({"frozen_encoder": "efficientnett"}, DATA, "unknown encoder 'efficientnett'"),
        ({"frozen_encoder": "learner"}, DATA, "learner"),
        ({"frozen_encoder": "no_such_module:encode"}, DATA, "no_such_module"),
        ({"frozen_encoder": None}, DATA, "learns from feature vectors.*frozen_encoder"),
        (
            {"frozen_encoder": None, "method": "er"},
            dataclasses.replace(DATA, images=TEXTS),
            "texts.*encoder",
        ),
        ({}, dataclasses.replace(DATA, images=TEXTS), "texts"),
        ({"transform": "shift"}, DATA, "shift is for vectors.*images"),
        ({"augmentation": "crop"}, DATA, "augmentation is for images"),
        ({"preset": "published"}, DATA, "published experiments learned from images"),
    ],
)
def test_refusals(settings: dict[str, Any], data: Dataset, message: str, tmp_path: Path) -> None:
    with pytest.raises(dw.UserError, match=message):
        run(config_of(**{"method": "slda", **settings}), tmp_path / "run", data=data)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "module", "advice"),
    [
        ("efficientnet", "efficientnet_lite_pytorch", "pip install"),
        ("timm:resnet18", "timm", "pip install"),
        ("sentence-transformers:all-MiniLM-L6-v2", "transformers", "install"),
    ],
)
def test_an_encoder_that_is_not_installed_says_what_to_install(
    name: str,
    module: str,
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(dw.UserError, match=advice):
        run(config_of(frozen_encoder=name), tmp_path / "run", data=DATA)


def test_texts_are_learned_through_an_encoder_of_texts(tmp_path: Path) -> None:
    texts = np.array([f"{'abcd'[n % 4] * 5} {n}" for n in range(240)], dtype=object)
    data = dataclasses.replace(DATA, images=texts)

    def letters(samples: Any) -> torch.Tensor:
        return torch.tensor([[each.count(letter) for letter in "abcd"] for each in samples]).float()

    encoder = dw.encoders.load(letters, accepts="texts", identity="letters 1")
    found = run(
        config_of(frozen_encoder=None, transform="shift"),
        tmp_path / "run",
        data=data,
        frozen_encoder=encoder,
    )
    assert found["faa"] > 90
    predictor = dw.load(tmp_path / "run", frozen_encoder=encoder)
    assert predictor.predict(["aaaa", "cccc"]).tolist() == [0, 2]
    with pytest.raises(ValueError, match="expected texts"):
        predictor.predict(np.zeros((2, 4)))
