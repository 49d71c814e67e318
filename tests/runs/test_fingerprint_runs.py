"""Runs whose reference is a fingerprint of each class, taken as it was learned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from run_tools import Stop, StopAt, complaint, lasting, result_of

from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.runs.run import run
from driftwise.runs.store import read_checkpoint

CONFIG = RunConfig(
    encoder="random",
    reference="fingerprint",
    detector="mmd",
    epochs=1,
    fingerprint_size=30,
    options={"detector": {"permutations": 199}},
)


def test_a_fingerprint_is_bounded_free_of_labels_and_independent_of_the_memory(
    tmp_path: Path,
) -> None:
    p_values = []
    for buffer_size in (20, 200):
        config = dataclasses.replace(CONFIG, buffer_size=buffer_size)
        result = run(config, tmp_path / str(buffer_size))
        verdicts = [verdict for verdict in result["verdicts"] if verdict["task"] <= 3]
        assert len(verdicts) == 2 + 4
        assert all(verdict["num_reference"] == 30 for verdict in verdicts)
        monitored = sum(verdict["num_current"] for verdict in result["verdicts"])
        assert result["labels"]["monitoring"] == monitored, "the reference takes no labels"
        p_values.append([verdict["p_value"] for verdict in verdicts])
        assert {v["class"] for v in verdicts if v["drifted"]} <= {0, 1, 2, 3}
    assert p_values[0] == p_values[1], "before anything was adapted"


def test_a_class_that_was_realigned_is_compared_with_how_it_looks_since(tmp_path: Path) -> None:
    always = dataclasses.replace(CONFIG, detector="always", options={})
    seen = run(always, tmp_path / "always")
    assert seen["labels"]["monitoring"] == 0
    flagged = run(CONFIG, tmp_path / "mmd")
    realigned = {(entry["task"], entry["class"]) for entry in flagged["renewals"]}
    drifts = {(3, label) for label in (0, 1, 2, 3)}
    assert realigned & drifts, "some drifted class was found"
    again = [
        verdict
        for verdict in flagged["verdicts"]
        if verdict["task"] > 3 and (3, verdict["class"]) in realigned & drifts
    ]
    assert sum(bool(verdict["drifted"]) for verdict in again) <= 1, "the new look is the known one"


def test_fingerprints_are_in_the_checkpoint_and_a_run_goes_on_from_it(tmp_path: Path) -> None:
    run(CONFIG, tmp_path / "whole")
    with pytest.raises(Stop):
        run(CONFIG, tmp_path / "stopped", listener=StopAt(4, 3))
    state = read_checkpoint(tmp_path / "stopped")
    assert state is not None
    prints = state["parts"]["monitor"]
    assert prints["encoder"].startswith("random 8x8x1")
    assert sorted(prints["classes"]) == [0, 1, 2, 3, 4, 5]
    run(CONFIG, tmp_path / "stopped", resume=True)
    assert lasting(tmp_path / "stopped") == lasting(tmp_path / "whole")
    assert result_of(tmp_path / "whole")["config"]["fingerprint_size"] == 30


def test_a_fingerprint_of_an_encoder_that_learns_is_refused() -> None:
    assert complaint(lambda: resolve(dataclasses.replace(CONFIG, encoder="learner"))) == (
        'a fingerprint needs an encoder that never learns, and learner does: use encoder="random", '
        'or reference="held-out"'
    )
