"""docs/explanations/beyond.md says what results/beyond.csv says, and the runs are what they claim to be."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from pathlib import Path

import beyond
import beyond_trials
import pytest
from beyond_outcomes import RESULTS, Outcome, append, saved
from beyond_page import PAGE, ROOT, Difference, Runs, over_cells, page
from beyond_trials import BEYOND, FLUSHED, MAIN, REALIGNED, RELEARNED, SEEDS, Cell, Trial

from driftwise.config.build import load_data

TINY = Cell(
    name="tiny-er-50",
    settings={
        "benchmark": "digits-cd",
        "num_drifts": 1,
        "method": "er",
        "buffer_size": 50,
        "epochs": 1,
    },
)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return saved(RESULTS)


def test_the_tables_are_those_of_the_saved_runs(outcomes: list[Outcome]) -> None:
    assert len(outcomes) > 0
    text = PAGE.read_text()
    assert page(text, Runs(outcomes)) == text


def test_every_cell_of_the_main_table_was_run_with_all_five_seeds(outcomes: list[Outcome]) -> None:
    for cell in MAIN:
        for adaptation in (REALIGNED, RELEARNED, FLUSHED, BEYOND):
            assert [run.seed for run in Runs(outcomes).of(cell, adaptation)] == [*SEEDS]


def test_the_readme_has_the_averages_of_all_cells(outcomes: list[Outcome]) -> None:
    by_cell = dict.fromkeys(MAIN, Runs(outcomes))
    realigned, flushed = (over_cells(by_cell, other).mean for other in (REALIGNED, FLUSHED))
    said = f"{realigned:.1f} points above it and {flushed:.1f} points above relearning"
    assert said in " ".join((ROOT / "README.md").read_text().split())


def test_all_lines_come_from_the_same_code(outcomes: list[Outcome]) -> None:
    assert len({each.commit for each in outcomes}) == 1


def test_all_adaptations_of_a_cell_and_seed_got_the_same_verdicts(outcomes: list[Outcome]) -> None:
    """As long as all answer them: what is not renewed is found again, and again."""
    first: dict[tuple[str, int], set[str]] = defaultdict(set)
    whole: dict[tuple[str, int], set[str]] = defaultdict(set)
    for each in outcomes:
        first[each.cell, each.seed].add(each.found.split(";")[0])
        answers_all = each.adaptation != "vanilla" and each.budget is None
        if each.cell in MAIN and answers_all:
            whole[each.cell, each.seed].add(each.found)
    for found in (first, whole):
        assert {key: each for key, each in found.items() if len(each) > 1} == {}


def test_no_adaptation_asked_for_more_labels_than_realignment(outcomes: list[Outcome]) -> None:
    asked = {(each.trial, each.labels) for each in outcomes}
    most = {(t.cell, t.seed, t.budget): n for t, n in asked if t.adaptation == "amr"}
    compared = [(t, n) for t, n in asked if t.adaptation.startswith("amr-")]
    assert len(compared) > 0
    for trial, labels in compared:
        assert labels <= most[trial.cell, trial.seed, trial.budget], trial


def test_a_run_that_shares_its_beginning_ends_as_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(beyond_trials.CELLS, TINY.name, TINY)
    trials = [Trial(cell=TINY.name, adaptation=name, seed=3) for name in (BEYOND, "fr")]
    shared = list(beyond.measure(trials, validate=False))
    for trial, outcome in zip(trials, shared, strict=True):
        course = beyond.Course(trial.config(), load_data(trial.config()), validate=False)
        course.run()
        assert beyond.outcome_of(trial, course.result()) == outcome
        append(outcome, tmp_path / "lines.csv")
    assert saved(tmp_path / "lines.csv") == shared
    (scored_otherwise,) = beyond.measure(trials[:1], validate=True)
    assert scored_otherwise.faa != shared[0].faa
    assert dataclasses.replace(scored_otherwise, faa=0).labels == shared[0].labels


def test_an_interval_is_that_of_a_paired_t_test() -> None:
    found = Difference.of([(3.0, 1.0), (5.0, 2.0), (4.0, 3.0)])  # 2, 3, 1: mean 2, deviation 1
    assert str(found) == "+2.0 (-0.5 to +4.5)"  # 4.303 / sqrt(3) = 2.48
    assert [found.beyond(limit) for limit in (-1, 0, 5)] == ["yes", "undecided", "**no**"]
