"""Runs that tell harmful drift from harmless, and spend labels only where it does harm."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from run_tools import complaint

from driftwise.config.schema import RunConfig
from driftwise.runs.run import run

CONFIG = RunConfig(severity=5)


def at_event(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The verdicts on the classes that drift, as they drift."""
    return [each for each in result["verdicts"] if each["task"] == 3]


def test_beside_a_verdict_stands_what_the_drift_costs(tmp_path: Path) -> None:
    result = run(CONFIG, tmp_path / "run")
    drifted = [each for each in at_event(result) if each["drifted"]]
    assert drifted
    for each in drifted:
        assert each["harm"] > 20, "permuted digits are not recognised"
        assert 0 < each["harm_error"] < 20
        assert each["harm_unlabelled"] > 0
        assert each["share"] > 0.5, "all samples have moved"
        assert 0 < each["share_error"] < 0.5
        assert len(each["moved_rows"]) > each["num_current"] / 2
        assert not each["spared"]
    before = [each for each in result["verdicts"] if each["task"] == 2]
    assert all(abs(each["harm"]) < 15 and each["share"] is None for each in before)


def test_drift_below_the_bound_is_spared_and_costs_no_labels(tmp_path: Path) -> None:
    patient = dataclasses.replace(CONFIG, min_harm=100)
    result = run(patient, tmp_path / "patient")
    assert any(each["drifted"] for each in at_event(result))
    for each in result["verdicts"]:
        assert each["spared"] == (bool(each["drifted"]) and each["harm"] < 100)
    spared = {(each["task"], each["class"]) for each in result["verdicts"] if each["spared"]}
    assert spared
    assert not spared & {(each["task"], each["class"]) for each in result["renewals"]}
    # Found and left alone is found all the same.
    assert result["detection"]["tpr"] > 0
    strict = run(dataclasses.replace(CONFIG, min_harm=5), tmp_path / "strict")
    plain = run(CONFIG, tmp_path / "plain")
    assert result["labels"]["adaptation"] < plain["labels"]["adaptation"]
    assert 0 < strict["labels"]["adaptation"] <= plain["labels"]["adaptation"]


@pytest.mark.parametrize("labels", ["predicted", "unknown"])
def test_without_labels_of_watched_samples_confidence_decides(tmp_path: Path, labels: Any) -> None:
    config = dataclasses.replace(CONFIG, monitor_labels=labels, min_harm=5)
    result = run(config, tmp_path / "run")
    assert all(each["harm"] is None for each in result["verdicts"])
    flagged = [each for each in result["verdicts"] if each["drifted"]]
    assert flagged
    for each in flagged:
        assert each["spared"] == (each["harm_unlabelled"] < 5)


def test_a_fixed_encoder_asks_the_learner_only_where_harm_decides(tmp_path: Path) -> None:
    fixed = dataclasses.replace(CONFIG, encoder="random", reference="held-out", epochs=1)
    assert all(each["harm"] is None for each in run(fixed, tmp_path / "a")["verdicts"])
    asked = run(dataclasses.replace(fixed, min_harm=5), tmp_path / "b")
    assert all(each["harm"] is not None for each in asked["verdicts"])


def test_harm_cannot_be_told_from_a_fingerprint() -> None:
    config = dataclasses.replace(CONFIG, encoder="random", reference="fingerprint", min_harm=5)
    assert 'use reference="held-out"' in complaint(lambda: run(config, Path("never-made")))
