from __future__ import annotations

from pathlib import Path

import pytest
from report_builders import small_result, write_run, write_small_comparison

from recollect.report.cells import Grouped, group, stat_of
from recollect.report.costs import relative_costs
from recollect.report.events import Outcome, outcome_of
from recollect.report.read import find_runs
from recollect.report.words import overview, summary


def grouped(folder: Path) -> Grouped:
    return group(find_runs([folder]).runs)


def test_mean_and_sample_deviation_are_those_worked_by_hand() -> None:
    stat = stat_of([88.0, 90.0, 95.0])
    assert stat is not None
    assert stat.mean == 91.0
    assert stat.sd == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2


def test_one_seed_has_no_spread_and_no_value_no_stat() -> None:
    one = stat_of([None, 88.0])
    assert one is not None
    assert (one.mean, one.sd, one.count) == (88.0, None, 1)
    assert stat_of([None]) is None


def test_runs_that_differ_in_seed_and_threads_only_make_one_cell(tmp_path: Path) -> None:
    for seed in (2, 0, 1):
        write_run(tmp_path / f"{seed}", small_result(seed=seed, config={"threads": seed + 1}))
    (cell,) = grouped(tmp_path).cells
    assert [run.seed for run in cell.runs] == [0, 1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"benchmark": "other-cd"},
        {"method": "der++"},
        {"adaptation": "fr"},
        {"detector": "mmd"},
        {"buffer_size": 50},
        {"num_drifts": 2},
        {"config": {"lr": 0.5}},
    ],
)
def test_runs_that_differ_in_anything_else_make_two_cells(
    tmp_path: Path, change: dict[str, object]
) -> None:
    write_run(tmp_path / "a", small_result())
    write_run(tmp_path / "b", small_result(seed=1, **change))
    assert len(grouped(tmp_path).cells) == 2


def test_a_seed_counts_once_per_cell(tmp_path: Path) -> None:
    write_run(tmp_path / "a", small_result())
    write_run(tmp_path / "copy", small_result())
    result = grouped(tmp_path)
    assert [len(cell.runs) for cell in result.cells] == [1]
    (warning,) = result.warnings
    assert "copy" in warning
    assert "same configuration and seed" in warning


def test_a_setting_compares_adaptations_and_keeps_their_order(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    write_run(tmp_path / "new", small_result(adaptation="a-new-one"))
    (setting,) = grouped(tmp_path).settings
    assert setting.labels == ("vanilla", "fr", "amr", "a-new-one")
    assert setting.title == "toy-cd, er, buffer 20, 1 drift"


def test_a_config_value_that_tells_cells_apart_splits_the_setting_for_all(tmp_path: Path) -> None:
    for severity in (3, 5):
        config = {"drift": {"severity": severity}}
        write_run(tmp_path / f"amr-{severity}", small_result(config=config))
    config = {"drift": {"severity": 3}}
    write_run(tmp_path / "vanilla", small_result(adaptation="vanilla", config=config))
    three, five = grouped(tmp_path).settings
    assert (three.variant, three.labels) == ("drift.severity 3", ("vanilla", "amr"))
    assert (five.variant, five.labels) == ("drift.severity 5", ("amr",))


def test_two_detectors_of_one_adaptation_are_told_apart_by_label(tmp_path: Path) -> None:
    for detector in ("ks", "mmd"):
        write_run(tmp_path / detector, small_result(detector=detector))
    (setting,) = grouped(tmp_path).settings
    assert setting.labels == ("amr, ks", "amr, mmd")


def test_costs_are_multiples_of_full_relearning(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    relative = relative_costs(grouped(tmp_path).settings[0])
    assert relative.basis == ("fr", "fr", "fr")
    assert relative.values == ((0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (0.25, 1.0, 1.0))


def test_without_full_relearning_the_largest_cost_is_one(tmp_path: Path) -> None:
    seconds = {"train": 11.0, "detect": 0.0, "adapt": 0.0}
    write_run(tmp_path / "vanilla", small_result(adaptation="vanilla"))
    write_run(tmp_path / "amr", small_result(seconds=seconds))
    relative = relative_costs(grouped(tmp_path).settings[0])
    assert relative.basis == ("the largest",) * 3
    assert relative.values == ((1.0, 0.25, 1.0), (1.0, 1.0, 1.0))


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
    vanilla, amr = grouped(tmp_path).settings[0].cells
    start = [Outcome.FALSE_ALARM, Outcome.MISSED, Outcome.FOUND]
    assert [outcome_of(v, amr.first) for v in amr.first.verdicts] == [
        *start,
        Outcome.FALSE_ALARM,  # renewed after task 4: its new look is known now
        Outcome.UNTESTABLE,
    ]
    assert [outcome_of(v, vanilla.first) for v in vanilla.first.verdicts] == [
        *start,
        Outcome.FOUND,  # nobody renewed it
        Outcome.UNTESTABLE,
    ]


def test_the_summary_says_what_the_numbers_say(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    assert summary(grouped(tmp_path).settings[0]) == (
        "Over 2 seeds, amr ends at 90.0 ± 2.8 where vanilla ends at 52.0 and fr at 92.0, with 100 "
        "adaptation labels against fr's 400. The detector (ks) found 50% of the drifted classes at "
        "once."
    )


def test_a_summary_of_one_run_does_not_pretend_to_know_the_spread(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result(detection={"tpr": 1.0, "fpr": 0.25}))
    assert summary(grouped(tmp_path).settings[0]) == (
        "With one seed, amr ends at 80.0 percent final average accuracy, with 10 adaptation "
        "labels. The detector (ks) found 100% of the drifted classes at once and raised a false "
        "alarm in 25% of the checks of unchanged classes. One seed tells nothing about spread."
    )


def test_the_overview_of_several_settings_counts_who_wins(tmp_path: Path) -> None:
    write_small_comparison(tmp_path / "er")
    write_small_comparison(tmp_path / "der", method="der++")
    assert overview(grouped(tmp_path).settings) == (
        "12 runs in 6 configurations and 2 settings. amr ends above vanilla in 2 of 2 settings. "
        "amr ends at or above fr in 0 of 2 settings."
    )
