"""Data given from Python, and what a run remembers of its data."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from run_tools import Stop, StopAt, complaint, result_of

from driftwise.cli import main as cli
from driftwise.config import build
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.datasets.validate import identity_of, sampled_identity_of
from driftwise.runs.run import run
from driftwise.types import Dataset

CONFIG = RunConfig(num_tasks=2, epochs=1, backbone="mlp", threads=1, batch_size=10)


def make_images(seed: int = 0, *, names: tuple[str, ...] = ("cat", "dog", "owl", "rat")) -> Dataset:
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(names)), 60).astype(np.int64)
    images = draw.integers(0, 256, (len(labels), 6, 6, 3), dtype=np.uint8)
    return Dataset(images=images, labels=labels, class_names=names)


def test_own_data_get_settings_of_their_own_and_their_own_name(tmp_path: Path) -> None:
    result = run(RunConfig(num_tasks=2, epochs=1), tmp_path / "own", data=make_images())
    generic = resolve(RunConfig(benchmark="folder", num_tasks=2, epochs=1))
    assert result["benchmark"] == "own"
    for name in ("backbone", "buffer_size", "batch_size", "minibatch_size", "lr"):
        assert result["config"][name] == getattr(generic, name)


def many_images() -> Dataset:
    """More than earlier versions looked at for their identity."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (1500, 2, 2, 1), dtype=np.uint8)
    return Dataset(images=images, labels=np.arange(1500) % 4, class_names=("a", "b", "c", "d"))


def with_others(data: Dataset, *, sampled: bool) -> Dataset:
    """The same data but for a third of the images: those that earlier versions left out, or not."""
    looked_at = np.linspace(0, len(data.images) - 1, 1000).astype(int)
    samples = looked_at if sampled else np.setdiff1d(np.arange(len(data.images)), looked_at)
    images = data.images.copy()
    images[samples[:500]] = 255 - images[samples[:500]]
    return dataclasses.replace(data, images=images)


def test_data_of_which_a_third_was_replaced_are_not_gone_on_with(tmp_path: Path) -> None:
    data, out = many_images(), tmp_path / "own"
    with pytest.raises(Stop):
        run(CONFIG, out, data=data, listener=StopAt(2, 1))
    for sampled in (True, False):
        other = with_others(data, sampled=sampled)
        message = complaint(partial(run, CONFIG, out, data=other, resume=True))
        assert "data_identity" in message
    data.images[7] = 0  # as whoever has loaded them may do
    assert "data_identity" in complaint(lambda: run(CONFIG, out, data=data, resume=True))


def test_a_run_of_an_earlier_version_goes_on_by_the_rule_of_its_time_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = many_images(), tmp_path / "own"
    with monkeypatch.context() as patch:
        patch.setattr(build, "identity_of", lambda dataset, _: sampled_identity_of(dataset))
        with pytest.raises(Stop):
            run(CONFIG, out, data=data, listener=StopAt(2, 1))
    other = with_others(data, sampled=True)
    assert "not those that the config was made with" in complaint(
        lambda: run(CONFIG, out, data=other, resume=True)
    )
    for _ in range(2):  # going on, and finding it finished
        with pytest.warns(UserWarning, match="covers all labels but at most 1,000 images"):
            run(CONFIG, out, data=data, resume=True)
    old = result_of(out)
    assert old["config"].pop("data_identity") == sampled_identity_of(data)
    run(CONFIG, out, data=data, overwrite=True)
    new = result_of(out)
    assert new["config"].pop("data_identity") == identity_of(data)
    assert {**old, "seconds": 0, "versions": 0} == {**new, "seconds": 0, "versions": 0}


def test_a_damaged_cache_is_named_and_not_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    data = make_images()
    np.savez(tmp_path / "photos.npz", images=data.images, labels=data.labels)
    config = dataclasses.replace(CONFIG, benchmark="npz", data=str(tmp_path / "photos.npz"))
    whole = run(config, tmp_path / "whole")
    (file,) = (tmp_path / "cache").rglob("images.u8")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    message = r"the cached photos-\w+ is damaged and built anew: .*u8"
    with pytest.warns(UserWarning, match=message) as warned:
        again = run(config, tmp_path / "again")
    assert {warning.filename for warning in warned} == {__file__}, "whoever called, is warned"
    assert {**again, "seconds": 0, "versions": 0} == {**whole, "seconds": 0, "versions": 0}
    assert file.read_bytes() == content
    # The identity is that of the pixels, whether read from the cache or given from Python.
    given = dataclasses.replace(data, class_names=("0", "1", "2", "3"))
    assert whole["config"]["data_identity"] == identity_of(given)


def test_a_saved_config_is_not_run_on_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(CONFIG, tmp_path / "own", data=make_images())
    config = tmp_path / "own" / "config.json"
    words = ["run", "--config", str(config), "--out", str(tmp_path / "again"), "--quiet"]
    assert cli.command(words) == cli.USAGE
    assert "given from Python" in capsys.readouterr().err
    saved = json.loads(config.read_text())
    wrong = tmp_path / "wrong.json"
    settings = {**saved, "benchmark": "digits-cd"}
    wrong.write_text(json.dumps(settings))
    assert cli.command([*words[:2], str(wrong), *words[3:]]) == cli.USAGE
    assert "data are not those" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(("kind", "other"), [("folder", "npz"), ("npz", "folder")])
def test_a_file_where_a_folder_belongs_is_refused_and_the_reverse(
    kind: str, other: str, tmp_path: Path
) -> None:
    path = tmp_path / "pictures"
    if kind == "folder":
        np.savez(path.with_suffix(".npz"), images=make_images().images, labels=make_images().labels)
        path = path.with_suffix(".npz")
    else:
        path.mkdir()
    config = dataclasses.replace(CONFIG, benchmark=kind, data=str(path))
    assert complaint(lambda: run(config, tmp_path / "x")).endswith(other)


def test_concepts_of_single_classes_do_not_read_like_a_compound(tmp_path: Path) -> None:
    events = (
        {"task": 2, "classes": [0, 1], "transforms": [["rotation", 2]], "per_class": True},
        {
            "task": 2,
            "classes": [0],
            "transforms": [["rotation", 1], ["shot-noise", 3]],
            "over_steps": 4,
        },
    )
    config = dataclasses.replace(CONFIG, events=events, recurring_in_training=True)
    run(config, tmp_path / "own", data=make_images())
    apart, compound = result_of(tmp_path / "own")["drift_events"]
    assert set(apart["by_class"]) == {"0", "1"}
    firsts = ["+".join(name for name, _ in steps) for steps in apart["by_class"].values()]
    assert firsts[0] != firsts[1]
    assert apart["transform"] == "/".join(firsts)
    assert "+" not in apart["transform"]
    assert compound["transform"].endswith("rotation+shot-noise")
    assert (apart["over_steps"], compound["over_steps"]) == (None, 4)
