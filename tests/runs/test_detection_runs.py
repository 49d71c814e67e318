"""Whole runs with a fingerprint as reference, with a bound on harm, and without monitored labels."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from run_tools import Stop, StopAt, lasting, result_of

from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.runs.run import run
from driftwise.runs.store import read_checkpoint

FINGERPRINT = RunConfig(
    encoder="random",
    reference="fingerprint",
    detector="mmd",
    epochs=1,
    fingerprint_size=30,
    options={"detector": {"permutations": 99}},
)


def test_a_fingerprint_is_bounded_free_of_labels_and_independent_of_the_buffer(
    tmp_path: Path,
) -> None:
    p_values = []
    for buffer_size in (20, 200):
        config = dataclasses.replace(FINGERPRINT, buffer_size=buffer_size)
        result = run(config, tmp_path / str(buffer_size))
        verdicts = [verdict for verdict in result["verdicts"] if verdict["task"] <= 3]
        assert len(verdicts) == 2 + 4
        assert all(verdict["num_reference"] == 30 for verdict in verdicts)
        monitored = sum(verdict["num_current"] for verdict in result["verdicts"])
        assert result["labels"]["monitoring"] == monitored, "the reference takes no labels"
        p_values.append([verdict["p_value"] for verdict in verdicts])
        assert {v["class"] for v in verdicts if v["drifted"]} <= {0, 1, 2, 3}
    assert p_values[0] == p_values[1], "before anything was adapted"


def test_fingerprints_are_in_the_checkpoint_and_a_run_goes_on_from_it(tmp_path: Path) -> None:
    run(FINGERPRINT, tmp_path / "whole")
    with pytest.raises(Stop):
        run(FINGERPRINT, tmp_path / "stopped", listener=StopAt(4, 3))
    state = read_checkpoint(tmp_path / "stopped")
    assert state is not None
    prints = state["parts"]["monitor"]
    assert prints["encoder"].startswith("random 8x8x1")
    assert sorted(prints["classes"]) == [0, 1, 2, 3, 4, 5]
    run(FINGERPRINT, tmp_path / "stopped", resume=True)
    assert lasting(tmp_path / "stopped") == lasting(tmp_path / "whole")
    assert result_of(tmp_path / "whole")["config"]["fingerprint_size"] == 30


# --- harm ---------------------------------------------------------------------------------------

HARM = RunConfig(epochs=3)


def at_event(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The verdicts on the classes that drift, as they drift."""
    return [each for each in result["verdicts"] if each["task"] == 3]


def test_beside_a_verdict_stands_what_the_drift_costs(tmp_path: Path) -> None:
    result = run(HARM, tmp_path / "run")
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
    patient = dataclasses.replace(HARM, min_harm=100)
    result = run(patient, tmp_path / "patient")
    assert any(each["drifted"] for each in at_event(result))
    for each in result["verdicts"]:
        assert each["spared"] == (bool(each["drifted"]) and each["harm"] < 100)
    spared = {(each["task"], each["class"]) for each in result["verdicts"] if each["spared"]}
    assert spared
    assert not spared & {(each["task"], each["class"]) for each in result["renewals"]}
    # Found and left alone is found all the same.
    assert result["detection"]["tpr"] > 0
    strict = run(dataclasses.replace(HARM, min_harm=5), tmp_path / "strict")
    plain = run(HARM, tmp_path / "plain")
    assert result["labels"]["adaptation"] < plain["labels"]["adaptation"]
    assert 0 < strict["labels"]["adaptation"] <= plain["labels"]["adaptation"]


@pytest.mark.parametrize("labels", ["predicted", "unknown"])
def test_without_labels_of_monitored_samples_confidence_decides(
    tmp_path: Path, labels: Any
) -> None:
    config = dataclasses.replace(HARM, monitor_labels=labels, min_harm=5)
    result = run(config, tmp_path / "run")
    assert all(each["harm"] is None for each in result["verdicts"])
    flagged = [each for each in result["verdicts"] if each["drifted"]]
    assert flagged
    for each in flagged:
        assert each["spared"] == (each["harm_unlabelled"] < 5)


def test_a_fixed_encoder_asks_the_learner_only_where_harm_decides(tmp_path: Path) -> None:
    fixed = dataclasses.replace(HARM, encoder="random", reference="held-out", epochs=1)
    assert all(each["harm"] is None for each in run(fixed, tmp_path / "a")["verdicts"])
    asked = run(dataclasses.replace(fixed, min_harm=5), tmp_path / "b")
    assert all(each["harm"] is not None for each in asked["verdicts"])


# --- monitored samples without labels -----------------------------------------------------------

PREDICTED = RunConfig(monitor_labels="predicted", epochs=1, severity=5)
UNKNOWN = dataclasses.replace(PREDICTED, monitor_labels="unknown")


def in_references(result: dict[str, Any]) -> int:
    """Labels of the reference samples of each class when it was learned, or learned anew."""
    task = next(assemble(resolve(PREDICTED)).stream.tasks())
    learned = [label for labels in result["tasks"] for label in labels]
    learned += [each["class"] for each in result["renewals"]]
    return sum(len(task.reference(label)) for label in learned)


def test_predicted_labels_cost_nothing_beyond_the_reference_and_still_find_drift(
    tmp_path: Path,
) -> None:
    given = run(dataclasses.replace(PREDICTED, monitor_labels="given"), tmp_path / "given")
    result = run(PREDICTED, tmp_path / "predicted")
    assert result["labels"]["monitoring"] == in_references(result)
    monitored = sum(each["num_current"] for each in given["verdicts"])
    assert given["labels"]["monitoring"] == in_references(given) + monitored
    at_event = [each for each in result["verdicts"] if each["task"] == 3]
    # Every monitored sample is predicted as some known class.
    assert sum(each["num_current"] for each in at_event) == sum(
        each["num_current"] for each in given["verdicts"] if each["task"] == 3
    )
    assert any(each["drifted"] for each in at_event)


def test_the_whole_stream_has_one_verdict_and_every_class_is_answered(tmp_path: Path) -> None:
    result = run(UNKNOWN, tmp_path / "run")
    at_event = [each for each in result["verdicts"] if each["task"] == 3]
    assert len(at_event) == 4
    assert len({each["p_value"] for each in at_event}) == 1
    assert all(each["drifted"] for each in at_event)
    renewed = {each["class"] for each in result["renewals"] if each["task"] == 3}
    assert renewed == {0, 1, 2, 3}


@pytest.mark.parametrize("config", [PREDICTED, UNKNOWN])
def test_a_run_without_labels_of_monitored_samples_goes_on_where_it_stopped(
    tmp_path: Path, config: RunConfig
) -> None:
    run(config, tmp_path / "whole")
    with pytest.raises(Stop):
        run(config, tmp_path / "stopped", listener=StopAt(4, 3))
    run(config, tmp_path / "stopped", resume=True)
    assert lasting(tmp_path / "stopped") == lasting(tmp_path / "whole")
