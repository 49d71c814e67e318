"""Measured false alarms beside the promised ones, both in one unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_builders import small_result, write_run

from driftwise.report.cells import group
from driftwise.report.read import find_runs
from driftwise.report.words import summary

Flags = dict[int, str]
"""Task -> one letter per class: F flagged, - not flagged, ? not testable."""

CALM: Flags = {2: "---", 3: "---", 4: "---"}
"""Class 2 drifts at task 3 and is never renewed: only the check at task 2 meets no drift."""


def told(folder: Path, *runs: Flags, labels: str = "given", **options: Any) -> str:
    """What the summary says of false alarms in runs with these verdicts."""
    answers = {"F": True, "-": False, "?": None}
    for seed, flags in enumerate(runs):
        result = small_result(
            seed=seed,
            accuracy_matrix=[[50.0] * 4] * 4,
            verdicts=[
                {"task": task, "class": label, "drifted": answers[letter]}
                for task, letters in flags.items()
                for label, letter in enumerate(letters)
            ],
            drift_events=[{"task": 3, "classes": [2], "transform": "blur", "severity": 1}],
            renewals=[],
            detection={},
            config={
                "monitor_labels": labels,
                "options": {"detector": {"level": 0.05, **options}},
            },
        )
        write_run(folder / str(seed), result)
    sentences = summary(group(find_runs([folder]).runs).settings[0]).rstrip(".").split(". ")
    return next((each for each in sentences if "false" in each), "")


def test_all_classes_of_a_check_together_are_counted_by_checks(tmp_path: Path) -> None:
    words = told(tmp_path, {2: "---", 3: "FFF", 4: "--F"}, CALM, correction="holm")
    assert words.startswith(
        "It raised false alarms in 1 of 6 checks at which unchanged classes were tested (16.7%;"
    )
    assert words.endswith("; promised: at most 5%")


def test_each_class_alone_is_counted_by_classes(tmp_path: Path) -> None:
    # 3 checks of class 0 and of class 1, and one of class 2 before it drifts; one is not testable.
    words = told(tmp_path, {2: "-?-", 3: "FFF", 4: "--F"}, correction="none")
    assert "in 2 of 6 checks of single unchanged classes (33.3%;" in words
    assert "; promised: at most 5% for each class alone" in words


def test_a_share_of_false_alarms_is_averaged_over_checks(tmp_path: Path) -> None:
    # Shares of false alarms: 0 (none at all), 2 of 3, 0 of 1.
    flags = {2: "---", 3: "FFF", 4: "--F"}
    words = told(tmp_path, flags, correction="benjamini-hochberg")
    assert words.startswith(
        "Of its alarms at a check, 22.2% were false on average over 3 checks with unchanged classes"
        "; promised: at most 5%"
    )


@pytest.mark.parametrize("correction", ["holm", "benjamini-hochberg", "none"])
def test_one_answer_for_all_classes_counts_once_and_only_while_nothing_has_drifted(
    tmp_path: Path, correction: str
) -> None:
    runs: list[Flags] = [{2: "FFF", 3: "FFF", 4: "FFF"}, {2: "---", 3: "FFF", 4: "FFF"}]
    words = told(tmp_path, *runs, labels="unknown", correction=correction)
    assert "in 1 of 2 checks at which all classes were unchanged (50.0%;" in words
    assert "; promised: at most 5%" in words
    assert "each class" not in words


def test_alarms_in_groups_by_prediction_count_only_while_nothing_has_drifted(
    tmp_path: Path,
) -> None:
    runs: list[Flags] = [{2: "F--", 3: "FFF", 4: "FF?"}, CALM]
    words = told(tmp_path / "a", *runs, labels="predicted", correction="holm")
    assert "in 1 of 2 checks at which all classes were unchanged (50.0%;" in words
    assert "; promised: at most 5%" in words
    words = told(tmp_path / "b", *runs, labels="predicted", correction="none")
    assert "in 1 of 6 verdicts on single classes while all classes were unchanged (16.7%;" in words
    assert "; promised: at most 5% for each class alone" in words


def test_what_is_promised_for_a_stream_is_counted_by_runs(tmp_path: Path) -> None:
    runs: list[Flags] = [CALM, {2: "FF-", 3: "--F", 4: "F-F"}, CALM]
    words = told(tmp_path / "a", *runs, correction="holm", spending="inverse-square")
    assert words.startswith("It raised false alarms in 1 of 3 runs (33.3%;")
    assert "; promised: at most 5% over all checks of a run" in words
    words = told(tmp_path / "b", *runs, correction="none", spending="inverse-square")
    assert "in 2 of 9 classes followed through a run (22.2%;" in words
    assert "; promised: at most 5% for each class alone over all checks of a run" in words


def test_a_share_of_false_alarms_for_a_stream_is_added_over_a_run(tmp_path: Path) -> None:
    runs: list[Flags] = [{2: "F--", 3: "F-F", 4: "---"}, CALM]  # 1 + 1/2, and nothing
    words = told(tmp_path, *runs, correction="benjamini-hochberg", spending="inverse-square")
    assert "added over a run, came to 75.0% on average over 2 runs; promised: at most 5%" in words


def test_a_stream_without_labels_counts_a_run_by_its_checks_without_drift(tmp_path: Path) -> None:
    flags = {2: "---", 3: "FFF", 4: "FFF"}
    words = told(tmp_path, flags, labels="unknown", correction="holm", spending="inverse-square")
    assert "in 0 of 1 runs at checks at which all classes were unchanged (0.0%;" in words


def test_a_gap_chosen_by_hand_promises_nothing(tmp_path: Path) -> None:
    words = told(tmp_path, {2: "F--"}, correction="holm", max_statistic=0.3)
    assert "in 1 of 3 checks of single unchanged classes" in words
    assert "promised" not in words


def test_a_small_level_is_not_rounded_to_nothing(tmp_path: Path) -> None:
    assert "at most 0.1%" in told(tmp_path, CALM, correction="holm", level=0.001)


def test_without_a_check_that_the_promise_is_for_nothing_is_said(tmp_path: Path) -> None:
    assert told(tmp_path, {3: "FFF", 4: "FFF"}, labels="predicted", correction="holm") == ""
