from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_builders import settings_in, small_result, write_run, write_small_comparison

from driftwise.report.cells import LONGEST_VALUE, Grouped, group, stat_of
from driftwise.report.costs import relative_costs
from driftwise.report.read import find_runs
from driftwise.report.words import cautions, overview, summary


def grouped(folder: Path) -> Grouped:
    return group(find_runs([folder]).runs)


def test_mean_and_sample_deviation_are_those_worked_by_hand() -> None:
    stat, one = stat_of([88.0, 90.0, 95.0]), stat_of([None, 88.0])
    assert stat is not None
    assert one is not None
    assert stat.mean == 91.0
    assert stat.sd == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert (one.mean, one.sd, one.count) == (88.0, None, 1)
    assert stat_of([None]) is None


def test_runs_that_differ_in_seed_and_threads_only_make_one_cell(tmp_path: Path) -> None:
    spelled: dict[str, object] = {"lr": 1.0, "data": None, "events": [], "options": {"method": {}}}
    for seed, config in (
        (2, spelled),
        (0, {"lr": 1}),
        (1, {"lr": 1}),
    ):  # not set is as good as None
        write_run(
            tmp_path / f"{seed}", small_result(seed=seed, config={**config, "threads": seed + 1})
        )
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
    assert "copy: same configuration and seed" in result.warnings[0]


def test_a_setting_compares_adaptations_in_order_and_distinguishes_twins(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    write_run(tmp_path / "new", small_result(adaptation="a-new-one"))
    write_run(tmp_path / "mmd", small_result(detector="mmd"))
    (setting,) = settings_in(tmp_path)
    assert setting.labels == ("vanilla", "fr", "amr, ks", "amr, mmd", "a-new-one")
    assert setting.title == "toy-cd, er, buffer 20, 1 drift"


@pytest.mark.parametrize(
    ("key", "value", "variant"),
    [
        ("drift", {"severity": 3}, "drift.severity 3"),
        ("epochs", 1, "epochs 1"),
        ("data", "my/data", "data my/data"),
        ("domains", ["photo", "art"], 'domains ["photo", "art"]'),
        ("events", [{"task": 2, "share": 0.5}], 'events [{"share": 0.5, "task": 2}]'),
        ("options", {"method": {"alpha": 0.1}}, "method.alpha 0.1"),
    ],
)
def test_adaptations_are_compared_only_where_everything_else_is_equal(
    tmp_path: Path, key: str, value: object, variant: str
) -> None:
    write_run(tmp_path / "amr", small_result())
    write_run(tmp_path / "vanilla", small_result(adaptation="vanilla", config={key: value}))
    settings = {setting.variant: setting for setting in settings_in(tmp_path)}
    assert len(settings) == 2
    assert settings[variant].labels == ("vanilla",)
    assert all(setting.title.endswith(name) for name, setting in settings.items())


@pytest.mark.parametrize(
    ("config", "trait"),
    [
        ({"label_budget": 40}, "label_budget 40"),
        ({"min_harm": 5}, "min_harm 5"),
        ({"device": "cuda"}, "device cuda"),
        ({"options": {"detector": {"level": 0.01}}}, "detector.level 0.01"),
    ],
)
def test_options_of_detection_and_adaptation_do_not_split_a_setting(
    tmp_path: Path, config: dict[str, object], trait: str
) -> None:
    write_run(tmp_path / "vanilla", small_result(adaptation="vanilla"))
    write_run(tmp_path / "amr", small_result())
    write_run(tmp_path / "other", small_result(config=config))
    (setting,) = settings_in(tmp_path)
    key = trait.partition(" ")[0]
    assert setting.labels == ("vanilla", f"amr, {key} not set", f"amr, {trait}")
    assert setting.variant == ""


def test_long_values_are_cut_in_titles_and_stay_different(tmp_path: Path) -> None:
    for share in (0.25, 0.5, 0.75):
        events = [{"task": 2, "classes": [0, 1]}, {"task": 3, "share": share}, {"task": 4}]
        write_run(tmp_path / f"{share}", small_result(config={"events": events}))
    variants = [setting.variant for setting in settings_in(tmp_path)]
    assert len(set(variants)) == 3
    for variant in variants:
        assert "…" in variant
        assert len(variant) <= len("events ") + LONGEST_VALUE + len(" (3)")


def test_settings_of_different_title_show_what_else_differs_but_not_foreign_options(
    tmp_path: Path,
) -> None:
    alpha = {"options": {"method": {"alpha": 0.1}}}
    write_run(tmp_path / "a", small_result(buffer_size=20, config={"epochs": 1}))
    write_run(tmp_path / "b", small_result(buffer_size=50, config={"epochs": 5}))
    write_run(tmp_path / "c", small_result(method="der++", config={"epochs": 5, **alpha}))
    assert [setting.title for setting in settings_in(tmp_path)] == [
        "toy-cd, der++, buffer 20, 1 drift, epochs 5",
        "toy-cd, er, buffer 20, 1 drift, epochs 1",
        "toy-cd, er, buffer 50, 1 drift, epochs 5",
    ]


def test_variants_and_traits_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for lr in (10, 9):
        for budget in (100, 20, None):
            config = {"lr": lr, "label_budget": budget}
            write_run(tmp_path / f"{lr}-{budget}", small_result(config=config))
    nine, ten = settings_in(tmp_path)
    assert (nine.variant, ten.variant) == ("lr 9", "lr 10")
    traits = [cell.trait for cell in nine.cells]
    assert traits == ["label_budget not set", "label_budget 20", "label_budget 100"]


def test_costs_are_multiples_of_full_relearning_or_else_of_the_largest(tmp_path: Path) -> None:
    write_small_comparison(tmp_path / "a")
    relative = relative_costs(settings_in(tmp_path / "a")[0])
    assert relative.basis == ("fr", "fr", "fr")
    assert relative.values == ((0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (0.25, 1.0, 1.0))
    seconds = {"train": 11.0, "detect": 0.0, "adapt": 0.0}
    write_run(tmp_path / "b" / "vanilla", small_result(adaptation="vanilla"))
    write_run(tmp_path / "b" / "amr", small_result(seconds=seconds))
    relative = relative_costs(settings_in(tmp_path / "b")[0])
    assert relative.basis == ("the largest",) * 3
    assert relative.values == ((1.0, 0.25, 1.0), (1.0, 1.0, 1.0))


def test_a_warning_of_several_runs_is_reported_once(tmp_path: Path) -> None:
    for seed, warnings in enumerate((["a", "b", "a"], ["b"], [])):
        write_run(tmp_path / f"{seed}", small_result(seed=seed, warnings=warnings))
    assert cautions(grouped(tmp_path).runs) == (
        f"{tmp_path / '0'}: a",
        f"{tmp_path / '0'} and 1 other run: b",
    )


ONE_RUN: dict[str, Any] = {"detection": {"tpr": 1.0, "fpr": 0.25}}


def test_summary_and_overview_state_the_numbers_and_no_spread_of_one_run(tmp_path: Path) -> None:
    write_small_comparison(tmp_path / "all" / "er")
    assert summary(settings_in(tmp_path / "all")[0]) == (
        "Over 2 seeds, amr ends at 90.0 ± 2.8 where vanilla ends at 52.0 and fr at 92.0, with 100 "
        "adaptation labels against fr's 400. The detector (ks) found 50% of the drifted classes at "
        "once."
    )
    write_small_comparison(tmp_path / "all" / "der", method="der++")
    assert overview(settings_in(tmp_path / "all")) == (
        "12 runs in 6 configurations and 2 settings. amr ends above vanilla in 2 of 2 settings. "
        "amr ends at or above fr in 0 of 2 settings."
    )
    write_run(tmp_path / "run", small_result(**ONE_RUN))
    assert summary(settings_in(tmp_path / "run")[0]) == (
        "With one seed, amr ends at 80.0 percent final average accuracy, with 10 adaptation "
        "labels. The detector (ks) found 100% of the drifted classes at once. One seed has "
        "no spread."
    )
