from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_builders import settings_in, small_result, write_run

from driftwise.report.event_words import Outcome, changes, describe_events, outcomes_of
from driftwise.report.read import find_runs
from driftwise.report.words import summary


def test_a_claim_is_right_from_the_drift_until_the_class_is_renewed(tmp_path: Path) -> None:
    claims = [(2, True), (3, False), (4, True), (5, True), (5, None)]
    matrix = [[50.0] * 5] * 5
    verdicts = [{"task": task, "class": 0, "drifted": drifted} for task, drifted in claims]
    event = {"task": 3, "classes": [0], "transform": "blur", "severity": 1}
    for adaptation, labels in (("amr", 10), ("vanilla", 0)):
        result = small_result(
            adaptation=adaptation,
            accuracy_matrix=matrix,
            verdicts=verdicts,
            drift_events=[event],
            labels={"stream": 1, "monitoring": 1, "adaptation": labels},
        )
        write_run(tmp_path / adaptation, result)
    amr, vanilla = find_runs([tmp_path]).runs
    start = [Outcome.FALSE_ALARM, Outcome.MISSED, Outcome.FOUND]
    assert list(outcomes_of(amr)) == [
        *start,
        Outcome.FALSE_ALARM,  # renewed after task 4: its new concept is known now
        Outcome.UNTESTABLE,
    ]
    assert list(outcomes_of(vanilla)) == [
        *start,
        Outcome.FOUND,  # nobody renewed it
        Outcome.UNTESTABLE,
    ]


def judged(folder: Path, events: list[dict[str, object]], **changes: object) -> list[Outcome]:
    """Outcomes for class 0, flagged at each of tasks 2 to 5 of five, and never renewed."""
    verdicts = [{"task": task, "class": 0, "drifted": True} for task in (2, 3, 4, 5)]
    result = small_result(
        accuracy_matrix=[[50.0] * 5] * 5,
        verdicts=verdicts,
        drift_events=[{"classes": [0], "severity": 3, **event} for event in events],
        **{"renewals": [], **changes},
    )
    write_run(folder, result)
    (run,) = find_runs([folder]).runs
    return list(outcomes_of(run))


RIGHT, WRONG = Outcome.FOUND, Outcome.FALSE_ALARM


def test_an_event_that_changes_nothing_is_no_drift(tmp_path: Path) -> None:
    nothing = {"task": 3, "transform": "identity"}
    assert judged(tmp_path / "a", [nothing]) == [WRONG] * 4
    assert judged(tmp_path / "b", [{**nothing, "share": 0.5, "over_tasks": 3}]) == [WRONG] * 4
    back = {"task": 3, "transform": "original"}
    assert judged(tmp_path / "c", [back]) == [WRONG] * 4  # it never left


def test_an_identity_upon_an_earlier_drift_changes_nothing_either(tmp_path: Path) -> None:
    events: list[dict[str, object]] = [
        {"task": 2, "transform": "rotation"},
        {"task": 4, "transform": "rotation+identity"},
    ]
    renewed = [{"task": 2, "class": 0}]
    assert judged(tmp_path / "a", events, renewals=renewed) == [RIGHT, WRONG, WRONG, WRONG]
    events[1]["transform"] = "rotation+gaussian-noise"
    assert judged(tmp_path / "b", events, renewals=renewed) == [RIGHT, WRONG, RIGHT, RIGHT]


@pytest.mark.parametrize("concept", ["original", "natural", "blur+rotation"])
def test_a_second_concept_is_a_drift_whether_new_or_recurring(tmp_path: Path, concept: str) -> None:
    events: list[dict[str, object]] = [
        {"task": 2, "transform": "blur"},
        {"task": 4, "transform": concept},
    ]
    renewed = [{"task": 2, "class": 0}]
    assert judged(tmp_path / "run", events, renewals=renewed) == [RIGHT, WRONG, RIGHT, RIGHT]


def test_a_gradual_event_changes_its_classes_at_each_of_its_tasks(tmp_path: Path) -> None:
    event = {"task": 2, "transform": "blur", "kind": "gradual", "over_tasks": 3}
    renewed = [{"task": task, "class": 0} for task in (2, 3, 4)]
    outcomes = judged(tmp_path / "run", [event], renewals=renewed)
    assert outcomes == [RIGHT, RIGHT, RIGHT, WRONG]
    (run,) = find_runs([tmp_path]).runs
    assert changes(run) == {2: (0,), 3: (0,), 4: (0,)}


def test_a_gradual_event_ends_where_another_takes_the_whole_class(tmp_path: Path) -> None:
    events: list[dict[str, object]] = [
        {"task": 2, "transform": "blur", "over_tasks": 4},
        {"task": 3, "transform": "blur+rotation"},
    ]
    judged(tmp_path / "run", events)
    (run,) = find_runs([tmp_path]).runs
    assert list(changes(run)) == [2, 3]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"transform": "blur"}, "blur, severity 3"),
        ({"transform": "blur", "over_tasks": 3}, "blur, severity 3, gradual over 3 tasks"),
        ({"transform": "blur", "kind": "gradual"}, "blur, severity 3, gradual within the task"),
        ({"transform": "blur", "share": 0.5}, "blur, severity 3, half of each class"),
        ({"transform": "blur", "share": 0.125}, "blur, severity 3, 12.5% of each class"),
        ({"transform": "blur", "domains": ["all"]}, "blur, severity 3"),
        ({"transform": "blur", "domains": ["art"]}, "blur, severity 3, in art"),
        ({"transform": "blur+noise"}, "blur+noise, severity up to 3"),
        ({"transform": "natural", "domains": ["cartoon"]}, "natural: cartoon"),
        ({"transform": "original", "severity": 0}, "back to the original concept"),
    ],
)
def test_events_are_reported_in_words(tmp_path: Path, event: dict[str, object], words: str) -> None:
    judged(tmp_path / "run", [{"task": 3, **event}])
    (run,) = find_runs([tmp_path]).runs
    assert f"task 3: class 0 ({words})." in describe_events(run)


def test_a_stream_whose_events_change_nothing_is_said_not_to_drift(tmp_path: Path) -> None:
    judged(tmp_path / "run", [{"task": 3, "transform": "identity", "share": 0.5}])
    (run,) = find_runs([tmp_path]).runs
    assert describe_events(run) == (
        "Nothing drifts in this stream; its events: task 3: class 0 (identity: nothing changes)."
    )


@pytest.mark.parametrize("labels", ["predicted", "unknown"])
def test_where_classes_are_not_distinguished_an_alarm_beside_drift_is_not_false(
    tmp_path: Path, labels: str
) -> None:
    event = {"task": 3, "classes": [1], "transform": "blur", "severity": 1}
    renewals = [{"task": 3, "class": 1}]
    for known in ("given", labels):
        result = small_result(
            accuracy_matrix=[[50.0] * 4] * 4,
            verdicts=[
                {"task": task, "class": label, "drifted": drifted}
                for task in (2, 3, 4)
                for label, drifted in ((0, True), (1, None))  # also unseen, drift is drift
            ],
            drift_events=[event],
            renewals=renewals,
            config={"monitor_labels": known},
        )
        write_run(tmp_path / known, result)
    given, mixed = (find_runs([tmp_path / known]).runs[0] for known in ("given", labels))
    of_class_0 = slice(None, None, 2)
    assert list(outcomes_of(given)[of_class_0]) == [WRONG, WRONG, WRONG]
    assert list(outcomes_of(mixed)[of_class_0]) == [WRONG, Outcome.BESIDE, WRONG]


# --- false alarms --------------------------------------------------------------------------------

Flags = dict[int, str]
"""Task -> one letter per class: F flagged, - not flagged, ? not testable."""

CALM: Flags = {2: "---", 3: "---", 4: "---"}
"""Class 2 drifts at task 3 and is never renewed: only the check at task 2 meets no drift."""


def false_alarms(folder: Path, *runs: Flags, labels: str = "given", **options: Any) -> str:
    """The sentence of the summary about false alarms in runs with these verdicts."""
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
    sentences = summary(settings_in(folder)[0]).rstrip(".").split(". ")
    return next((each for each in sentences if "false" in each), "")


SHARED, GROUPED = (
    [CALM, {2: "FF-", 3: "--F", 4: "F-F"}, CALM],
    [{2: "F--", 3: "FFF", 4: "FF?"}, CALM],
)
STREAM = {"spending": "inverse-square"}
CASES: dict[str, tuple[list[Flags], dict[str, Any], list[str]]] = {
    "all classes of a check together: checks": (
        [{2: "---", 3: "FFF", 4: "--F"}, CALM],
        {"correction": "holm"},
        ["in 1 of 6 checks at which unchanged classes were tested (16.7%;", "at most 5%$"],
    ),
    # 3 checks of class 0 and of class 1, and one of class 2 before it drifts; one is not testable.
    "each class alone: classes": (
        [{2: "-?-", 3: "FFF", 4: "--F"}],
        {"correction": "none"},
        ["in 2 of 6 checks of single unchanged classes (33.3%;", "5% for each class alone$"],
    ),
    # Fractions of false alarms: 0 (no alarm), 2 of 3, 0 of 1.
    "a fraction of alarms: its mean over checks": (
        [{2: "---", 3: "FFF", 4: "--F"}],
        {"correction": "benjamini-hochberg"},
        ["22.2% were false on average over 3 checks with unchanged classes; promised: at most 5%$"],
    ),
    "labels by prediction: while nothing has drifted": (
        GROUPED,
        {"labels": "predicted", "correction": "holm"},
        ["in 1 of 2 checks at which all classes were unchanged (50.0%;", "at most 5%$"],
    ),
    "labels by prediction, each class": (
        GROUPED,
        {"labels": "predicted", "correction": "none"},
        ["in 1 of 6 verdicts on single classes while all classes were unchanged (16.7%;"],
    ),
    "a stream: runs": (
        SHARED,
        {"correction": "holm", **STREAM},
        ["It raised false alarms in 1 of 3 runs (33.3%;", "at most 5% over all checks of a run$"],
    ),
    "a stream, each class": (
        SHARED,
        {"correction": "none", **STREAM},
        ["in 2 of 9 classes followed through a run (22.2%;", "alone over all checks of a run$"],
    ),
    "a stream, a fraction of alarms: 1 + 1/2, and nothing": (
        [{2: "F--", 3: "F-F", 4: "---"}, CALM],
        {"correction": "benjamini-hochberg", **STREAM},
        ["added over a run, came to 75.0% on average over 2 runs; promised: at most 5%"],
    ),
    "a stream without labels": (
        [{2: "---", 3: "FFF", 4: "FFF"}],
        {"labels": "unknown", "correction": "holm", **STREAM},
        ["in 0 of 1 runs at checks at which all classes were unchanged (0.0%;"],
    ),
    "a gap chosen by hand promises nothing": (
        [{2: "F--"}],
        {"correction": "holm", "max_statistic": 0.3},
        ["in 1 of 3 checks of single unchanged classes", "interval 6.1% to 79.2%)$"],
    ),
    "a small level": ([CALM], {"correction": "holm", "level": 0.001}, ["at most 0.1%"]),
    "no check that the promise is for": (
        [{3: "FFF", 4: "FFF"}],
        {"labels": "predicted", "correction": "holm"},
        ["^$"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_false_alarms_are_counted_in_the_unit_of_their_promise(tmp_path: Path, name: str) -> None:
    runs, options, expected = CASES[name]
    words = f"^{false_alarms(tmp_path, *runs, **options)}$"
    for part in expected:
        assert part in words


@pytest.mark.parametrize("correction", ["holm", "benjamini-hochberg", "none"])
def test_one_answer_for_all_classes_counts_once_and_only_while_nothing_has_drifted(
    tmp_path: Path, correction: str
) -> None:
    runs: list[Flags] = [{2: "FFF", 3: "FFF", 4: "FFF"}, {2: "---", 3: "FFF", 4: "FFF"}]
    words = false_alarms(tmp_path, *runs, labels="unknown", correction=correction)
    assert "in 1 of 2 checks at which all classes were unchanged (50.0%;" in words
    assert "; promised: at most 5%" in words
    assert "each class" not in words
