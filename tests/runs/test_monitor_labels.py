"""Runs that watch samples of which no labels are given: predicted labels, or none at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from run_tools import Stop, StopAt, complaint, lasting

from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.config.schema import RunConfig
from driftwise.runs.run import run

PREDICTED = RunConfig(monitor_labels="predicted", epochs=1, severity=5)
UNKNOWN = dataclasses.replace(PREDICTED, monitor_labels="unknown")


def in_references(result: dict[str, Any]) -> int:
    """Labels of the samples that say how each class looked when it was learned, or learned anew."""
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
    # Every watched sample is taken for some known class.
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
def test_a_run_without_labels_of_watched_samples_goes_on_where_it_stopped(
    tmp_path: Path, config: RunConfig
) -> None:
    run(config, tmp_path / "whole")
    with pytest.raises(Stop):
        run(config, tmp_path / "stopped", listener=StopAt(4, 3))
    run(config, tmp_path / "stopped", resume=True)
    assert lasting(tmp_path / "stopped") == lasting(tmp_path / "whole")


def test_a_fingerprint_serves_a_stream_of_which_nothing_is_known(tmp_path: Path) -> None:
    config = dataclasses.replace(UNKNOWN, encoder="random", reference="fingerprint", detector="mmd")
    result = run(config, tmp_path / "run")
    assert result["labels"]["monitoring"] == 0
    # Digits come almost equally often.
    assert 0.9 < result["verdicts"][0]["num_reference"] / (2 * config.fingerprint_size) <= 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"checked": "just-drifted"}, 'use checked="all-known"'),
        ({"encoder": "random", "reference": "fingerprint"}, 'use reference="held-out"'),
    ],
)
def test_what_needs_labels_is_refused_without_them(change: dict[str, str], told: str) -> None:
    config = dataclasses.replace(PREDICTED, **change)  # type: ignore[arg-type]
    assert told in complaint(lambda: resolve(config))
