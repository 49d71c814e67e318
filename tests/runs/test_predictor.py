from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import Stop, StopAt, complaint, events_of, result_of
from same_state import same
from torch import Tensor, nn

import driftwise
from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.files import digest_of
from driftwise.runs import checkpoint as state_file
from driftwise.runs import store
from driftwise.runs.predictor import Predictor
from driftwise.runs.store import read_checkpoint
from driftwise.types import Dataset, Samples


@pytest.fixture(scope="module")
def predictor(finished: Path) -> Predictor:
    return driftwise.load(finished)


def scoring_samples(folder: Path, task: int) -> Samples:
    """The scoring samples after a task, from the config that the run left behind."""
    config = RunConfig(**json.loads((folder / "config.json").read_text()))
    return assemble(resolve(config)).stream.task(task).tests()


def accuracy(predictor: Predictor, samples: Samples, classes: list[int]) -> float:
    own = torch.isin(samples.labels, torch.tensor(classes))
    predicted = predictor.predict(samples.images[own])
    return float(100 * (predicted == samples.labels[own].numpy()).mean())


def test_a_loaded_run_predicts_as_well_as_its_result_says(
    finished: Path, predictor: Predictor
) -> None:
    result = result_of(finished)
    samples = scoring_samples(finished, 5)
    found = [accuracy(predictor, samples, classes) for classes in result["tasks"]]
    assert found == pytest.approx(result["accuracy_matrix"][-1])
    before = torch.get_rng_state()
    first = predictor.logits(samples.images)
    assert torch.equal(predictor.logits(samples.images), first), "predicting changes nothing"
    assert torch.equal(torch.get_rng_state(), before)
    for label, expected in result["per_class_accuracy"][-1].items():
        assert accuracy(predictor, samples, [int(label)]) == pytest.approx(expected)


def test_an_unfinished_run_predicts_as_its_last_complete_task_left_it(tmp_path: Path) -> None:
    config = RunConfig(epochs=1)
    with pytest.raises(Stop):
        driftwise.run(config, tmp_path / "run", listener=StopAt(3, 5))
    message = [event for event in events_of(tmp_path / "run") if event["event"] == "scores"]
    samples = scoring_samples(tmp_path / "run", 2)
    predictor = driftwise.load(tmp_path / "run")
    found = [accuracy(predictor, samples, classes) for classes in ([0, 1], [2, 3])]
    assert found == pytest.approx(message[-1]["accuracy"])


def test_probabilities_classes_and_logits_say_the_same(predictor: Predictor) -> None:
    images = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 1), dtype=np.uint8)
    logits = predictor.logits(images)
    assert logits.shape == (7, 10)
    odds = predictor.predict_proba(images)
    np.testing.assert_allclose(odds.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(odds.argmax(axis=1), predictor.predict(images))
    np.testing.assert_array_equal(logits.argmax(dim=1).numpy(), predictor.predict(images))
    assert predictor.class_names == tuple("0123456789")
    assert not predictor.network.training


def test_images_may_come_in_any_memory_layout(predictor: Predictor) -> None:
    plain = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), dtype=np.uint8)
    expected = predictor.predict_proba(plain)
    locked = plain.copy()
    locked.setflags(write=False)
    mirrored_twice = plain[:, ::-1][:, ::-1]
    layouts: list[Any] = [locked, np.asfortranarray(plain), mirrored_twice, torch.tensor(plain)]
    for images in layouts:
        np.testing.assert_array_equal(predictor.predict_proba(images), expected)
    mirrored = plain[:, ::-1]
    np.testing.assert_array_equal(
        predictor.predict_proba(mirrored), predictor.predict_proba(mirrored.copy())
    )
    assert predictor.predict(plain[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("images", "came"),
    [
        (np.zeros((2, 8, 8, 1), np.float32), "float32 (2, 8, 8, 1)"),
        (np.zeros((8, 8, 1), np.uint8), "uint8 (8, 8, 1)"),
        (np.zeros((2, 8, 8, 3), np.uint8), "uint8 (2, 8, 8, 3)"),
        (np.zeros((), np.uint8), "uint8 ()"),
        (np.array([["cat"]]), "<U3 (1, 1)"),
        ([[0.5]], "float64 (1, 1)"),
    ],
    ids=str,
)
def test_other_images_are_refused_in_one_line(predictor: Predictor, images: Any, came: str) -> None:
    assert complaint(lambda: predictor.predict(images), ValueError) == (
        f"expected uint8 images of shape (samples, 8, 8, 1); got {came}"
    )


def test_a_folder_that_cannot_predict_gets_one_line(finished: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert complaint(lambda: driftwise.load(missing)) == (
        f"{missing} holds no run; expected a folder with config.json"
    )
    begun = tmp_path / "begun"
    with pytest.raises(Stop):
        driftwise.run(RunConfig(epochs=1), begun, listener=StopAt(1, 5))
    assert complaint(lambda: driftwise.load(begun)) == (
        f"{begun} has no checkpoint yet: its first task is not complete"
    )
    whole = (finished / "checkpoint.safetensors").read_bytes()
    (begun / "checkpoint.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "checkpoint.safetensors is damaged" in complaint(lambda: driftwise.load(begun))


def test_a_config_with_a_setting_that_no_run_has_is_refused(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    config = json.loads((finished / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "folder": "elsewhere"}))
    (tmp_path / "run" / "checksums.json").unlink()
    message = complaint(lambda: driftwise.load(tmp_path / "run"))
    assert message.startswith(f"{tmp_path / 'run' / 'config.json'}: unknown key 'folder'")


def test_code_named_by_a_folder_is_imported_only_if_trusted(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for file in finished.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "backbone": "no_such_module:Net"}))
    # Whoever sends a folder can send checksums that fit.
    (folder / "checksums.json").unlink()
    for name in (store.CHECKPOINT, store.PREVIOUS):
        saved = state_file.read(folder / name, format=store.FORMAT)
        saved["config"] = digest_of(folder / "config.json")
        state_file.write(folder / name, saved, format=store.FORMAT)
    assert "trust_imports=True" in complaint(lambda: driftwise.load(folder))
    message = complaint(lambda: driftwise.load(folder, trust_imports=True))
    assert message.startswith(f"{folder}: cannot import 'no_such_module:Net'")


# --- networks behind what they need -------------------------------------------------------------


def two_tones(channels: int) -> Dataset:
    """Two tasks of two classes, apart in brightness."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 20)
    images = 50 * labels[:, None, None, None] + draw.integers(0, 50, (80, 8, 8, channels))
    return Dataset(images=images.astype(np.uint8), labels=labels, class_names=tuple("abcd"))


@pytest.mark.parametrize(
    ("channels", "settings"),
    [(3, {"normalise": True}), (1, {"channels": 3})],
    ids=str,
)
def test_what_images_are_prepared_with_is_loaded_with_the_weights(
    channels: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = RunConfig(
        num_tasks=2, epochs=1, backbone="mlp", detector="never", lr=0.05, threads=1, **settings
    )
    driftwise.run(config, tmp_path / "run", data=two_tones(channels))
    assembly = assemble(resolve(dataclasses.replace(config, benchmark="own")), two_tones(channels))
    assembly.load_state_dict(read_checkpoint(tmp_path / "run")["parts"])
    images = two_tones(channels).images[::7]
    with assembly.ledger.phase("evaluate"):
        expected = assembly.learner.logits(torch.from_numpy(images))
    # The data are not asked for: they were given from Python and are gone.
    assert torch.equal(driftwise.load(tmp_path / "run").logits(images), expected)
    mean = driftwise.load(tmp_path / "run").network.get_buffer("mean").flatten()
    assert bool(mean.any()) is bool(settings.get("normalise"))


class Plain(nn.Module):
    """A network of one's own, which only the Python that made it knows."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, 10))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


def test_a_run_with_a_network_from_python_is_loaded_with_one_like_it(
    finished: Path, tmp_path: Path
) -> None:
    result = driftwise.run(RunConfig(epochs=1, lr=0.1), tmp_path / "run", network=Plain(9))
    predictor = driftwise.load(tmp_path / "run", network=Plain(9))
    found = accuracy(predictor, scoring_samples(finished, 5), [8, 9])  # the same stream
    assert found == pytest.approx(result["accuracy_matrix"][-1][-1])
    assert "trust_imports=True" in complaint(lambda: driftwise.load(tmp_path / "run"))
    assert complaint(lambda: driftwise.load(tmp_path / "run", network=Plain(8))) == (
        f"the network given does not fit the weights in {tmp_path / 'run'}: expected the one that "
        f"the run was made with, a {__name__}:Plain"
    )


@pytest.mark.parametrize("predict", ["stable", "working"])
def test_cls_er_answers_with_the_network_that_was_asked_for(predict: str, tmp_path: Path) -> None:
    options = {"method": {"predict": predict, "stable_update_freq": 0.5}}
    config = RunConfig(epochs=1, lr=0.1, method="cls-er", options=options)
    result = driftwise.run(config, tmp_path / "run")
    predictor = driftwise.load(tmp_path / "run")
    state = read_checkpoint(tmp_path / "run")["parts"]["learner"]
    stable, working = state["objective"]["averages"]["stable"], state["network"]
    assert not same(stable, working)
    assert same(dict(predictor.network.state_dict()), stable if predict == "stable" else working)
    found = accuracy(predictor, scoring_samples(tmp_path / "run", 5), [8, 9])
    assert found == pytest.approx(result["accuracy_matrix"][-1][-1])
