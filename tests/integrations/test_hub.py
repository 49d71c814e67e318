"""Runs on the Hugging Face hub: its real client against a stub of its API, and local folders."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import yaml
from hub_server import Hub, hub

import driftwise as dw
from driftwise.datasets.readers.digits import load_digits
from driftwise.errors import RunFailure, UserError
from driftwise.integrations.hub import export, from_hub, model_card, push_to_hub

pytest.importorskip("huggingface_hub")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "run"
    config = dw.RunConfig(
        benchmark="digits-cd",
        method="cls-er",  # predicts with a copy of the trained network
        adaptation="amr",
        detector="ks",
        encoder="random",
        num_tasks=2,
        num_drifts=1,
        epochs=1,
    )
    dw.run(config, folder)
    return folder


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with hub() as served:
        yield served


def test_a_run_comes_back_from_the_hub_and_predicts_the_same(run: Path, server: Hub) -> None:
    url = push_to_hub(run, "me/digits", token="hf_right", endpoint=server.address)
    assert url == f"{server.address}/me/digits"
    files = server.repos["me/digits"]
    assert set(files) == {"model.safetensors", "config.json", "result.json", "README.md"}
    images = load_digits().images[:50]
    expected = dw.load(run).predict_proba(images)
    found = from_hub("me/digits", endpoint=server.address)
    assert np.array_equal(found.predict_proba(images), expected)
    assert found.class_names == dw.load(run).class_names
    assert any(path.endswith("/model.safetensors") for path in server.requests)


def test_what_was_downloaded_is_there_when_the_hub_is_not(run: Path, server: Hub) -> None:
    push_to_hub(run, "me/kept", token="hf_right", endpoint=server.address)
    from_hub("me/kept", endpoint=server.address)
    server.shutdown()
    server.socket.close()
    assert from_hub("me/kept", endpoint=server.address).class_names


def test_a_wrong_token_and_a_missing_repository_are_said(run: Path, server: Hub) -> None:
    with pytest.raises((RunFailure, UserError), match=r"log in"):
        push_to_hub(run, "me/digits", token="hf_wrong", endpoint=server.address)
    with pytest.raises(UserError, match=r"no repository or revision like that \(me/nothing\)"):
        from_hub("me/nothing", endpoint=server.address)


def test_a_hub_out_of_reach_is_noticed_at_once(run: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}"
    start = time.monotonic()
    with pytest.raises(RunFailure, match=r"cannot be reached .* export\(run, folder\)"):
        from_hub("me/digits", endpoint=nobody)
    assert time.monotonic() - start < 5


def test_a_folder_needs_no_hub_and_names_no_place_of_this_machine(
    run: Path, tmp_path: Path
) -> None:
    export(run, tmp_path / "out")
    images = load_digits().images[:20]
    assert np.array_equal(from_hub(tmp_path / "out").predict(images), dw.load(run).predict(images))
    for name in ("config.json", "result.json", "README.md"):
        assert str(tmp_path.parent) not in (tmp_path / "out" / name).read_text()


def table_run(folder: Path) -> Any:
    """A run on a table whose columns matter; the table's samples as a data frame."""
    pandas = pytest.importorskip("pandas")
    draw = np.random.default_rng(0)
    labels = np.arange(80) % 4
    columns = {
        f"sensor {number}": labels * number + 0.1 * draw.standard_normal(80) for number in range(3)
    }
    data = dw.datasets.from_table({**columns, "kind": labels}, label="kind")
    dw.run(dw.RunConfig(method="er", epochs=2, num_tasks=2, detector="never"), folder, data=data)
    return pandas.DataFrame(columns)


def test_columns_of_a_frame_are_matched_by_name_after_the_hub_too(tmp_path: Path) -> None:
    frame = table_run(tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out")
    found, expected = from_hub(tmp_path / "out"), dw.load(tmp_path / "run").predict_proba(frame)
    assert np.array_equal(found.predict_proba(frame[list(frame)[::-1]]), expected)


def test_the_card_tells_drifts_labels_and_costs(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    card = model_card(result)
    front = yaml.safe_load(card.split("---")[1])
    [metric] = front["model-index"][0]["results"][0]["metrics"]
    assert metric["value"] == pytest.approx(result["faa"], abs=0.01)
    [event] = result["drift_events"]
    for label in event["classes"]:
        assert f"| {event['task']} | {result['class_names'][label]} | permutation |" in card
    assert f"| labels, adaptation | {result['labels']['adaptation']} |" in card
    assert "| seconds, train |" in card


def test_a_card_shows_strange_names_as_text(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    result["class_names"][0] = "<script>|`x`\n# [a](b)"
    card = model_card(result)
    assert "<script>" not in card.replace("\\<", "")
    assert "\n# [a]" not in card


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda out: (out / "config.json").write_text("{}"), "no run that push_to_hub"),
        (lambda out: (out / "model.safetensors").write_bytes(b"\x80\x04pickle"), "no run that"),
        (lambda out: (out / "model.safetensors").unlink(), "no run that push_to_hub"),
        (
            lambda out: safetensors.torch.save_file({}, out / "model.safetensors"),
            "weights in .* do not fit its settings",
        ),
        (
            lambda out: (out / "config.json").write_text(
                (out / "config.json").read_text().replace('"cls-er"', '"os:getcwd"')
            ),
            "trust_imports=True",
        ),
        (
            lambda out: safetensors.torch.save_file(
                {
                    name: each * float("nan") if each.is_floating_point() else each
                    for name, each in safetensors.torch.load_file(out / "model.safetensors").items()
                },
                out / "model.safetensors",
            ),
            r"weights in .* are not finite \(.*\): the file is damaged",
        ),
        (lambda out: (out / "config.json").write_text("[" * 100_000), "no run that"),
        (
            lambda out: (out / "config.json").write_text(
                json.dumps(
                    {**json.loads((out / "config.json").read_text()), "input_shape": [1, "a", 8]}
                )
            ),
            "settings in .* make no network",
        ),
    ],
)
def test_a_damaged_or_strange_folder_is_refused(
    run: Path, tmp_path: Path, change: object, message: str
) -> None:
    export(run, tmp_path / "out")
    change(tmp_path / "out")  # type: ignore[operator]
    with pytest.raises(UserError, match=message):
        from_hub(tmp_path / "out")


def test_an_export_does_not_write_over_the_run_nor_over_other_files(
    run: Path, tmp_path: Path
) -> None:
    before = (run / "result.json").read_bytes()
    with pytest.raises(
        UserError, match=r"not exported \(.*result.json.*\), and would be written over"
    ):
        export(run, run)
    assert (run / "result.json").read_bytes() == before
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        export(run, tmp_path / "file")
    for _ in range(2):  # what it has written itself
        export(run, tmp_path / "out")


@pytest.mark.parametrize("name", ["", "../nothing", "me/", "/nothing"])
def test_a_name_that_is_neither_folder_nor_repository_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="expected a folder or a repository owner/name"):
        from_hub(name)
