from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_builders import small_result, write_run, write_samples

from driftwise.errors import UserError
from driftwise.report.cells import Cell
from driftwise.report.read import find_runs


def test_runs_are_found_at_any_depth_and_each_only_once(tmp_path: Path) -> None:
    deep = write_run(tmp_path / "sweep" / "er" / "seed-0", small_result())
    write_run(tmp_path / "seed-1", small_result(seed=1))
    found = find_runs([tmp_path, tmp_path / "sweep", deep])
    assert sorted(run.seed for run in found.runs) == [0, 1]
    assert found.warnings == ()


def test_unfinished_and_damaged_runs_are_named_and_skipped(tmp_path: Path) -> None:
    write_run(tmp_path / "good", small_result())
    unfinished = write_run(tmp_path / "unfinished", small_result())
    (unfinished / "result.json").unlink()
    torn = write_run(tmp_path / "torn", small_result())
    (torn / "result.json").write_text('{"benchmark": "toy')
    lacking = write_run(tmp_path / "lacking", small_result())
    (lacking / "result.json").write_text(
        json.dumps({key: value for key, value in small_result().items() if key != "faa"})
    )
    not_a_number = write_run(tmp_path / "nan", small_result())
    (not_a_number / "result.json").write_text(json.dumps(small_result(faa=float("nan"))))
    found = find_runs([tmp_path])
    assert [run.folder.name for run in found.runs] == ["good"]
    named = {line.split(":")[0]: line for line in found.warnings}
    assert set(named) == {str(folder) for folder in (unfinished, torn, lacking, not_a_number)}
    assert "unfinished" in named[str(unfinished)]
    assert "cannot be read" in named[str(torn)]
    assert "has no 'faa'" in named[str(lacking)]
    assert "NaN" in named[str(not_a_number)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"faa": "high"}, "'high'"),
        ({"accuracy_matrix": []}, "empty 'accuracy_matrix'"),
        ({"accuracy_matrix": [[1.0, 2.0]]}, "1 rows with a row of 2"),
        ({"drift_events": [{"task": 7, "classes": [0], "transform": "blur"}]}, "task 7"),
        ({"verdicts": [{"task": 2, "class": 0, "drifted": "yes"}]}, "'yes'"),
        ({"per_class_accuracy": [{"-1": 3.0}]}, "class number -1"),
        ({"warnings": [7]}, "a warning 7"),
    ],
)
def test_a_result_that_makes_no_sense_is_called_damaged(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    write_run(tmp_path / "good", small_result())
    write_run(tmp_path / "odd", small_result(**changes))
    (warning,) = find_runs([tmp_path]).warnings
    assert "odd: damaged" in warning
    assert reason in warning


@pytest.mark.parametrize(
    "huge",
    [
        {"faa": 1.7e308},
        {"accuracy_matrix": [[1.7e308, None], [1.7e308, 90.0]]},
        {"per_class_accuracy": [{"0": 1.7e308}, {"0": 1.7e308}]},
        {"seconds": {"train": 1.7e308, "detect": 1.7e308, "adapt": 1.7e308, "evaluate": 0}},
        {"flops": {"train": 10**200, "detect": 0, "adapt": 0, "evaluate": 0}},
        {"labels": {"stream": 0, "monitoring": 0, "adaptation": -1.7e308}},
    ],
)
def test_numbers_whose_sums_would_be_none_are_damage(tmp_path: Path, huge: dict[str, Any]) -> None:
    write_run(tmp_path / "good", small_result())
    for seed in (1, 2):
        write_run(tmp_path / f"huge-{seed}", small_result(seed=seed, **huge))
    found = find_runs([tmp_path])
    assert [run.folder.name for run in found.runs] == ["good"]
    assert all("beyond 1e+30" in line for line in found.warnings)
    large = small_result(seed=3, faa=9e29)
    write_run(tmp_path / "large", large)
    cell = Cell(runs=find_runs([tmp_path]).runs)
    stat = cell.stat(lambda run: run.faa)
    assert stat is not None
    assert math.isfinite(stat.mean + (stat.sd or 0))


def test_a_config_above_finished_runs_is_no_unfinished_run(tmp_path: Path) -> None:
    write_run(tmp_path / "sweep" / "seed-0", small_result())
    (tmp_path / "sweep" / "config.json").write_text("{}")
    assert find_runs([tmp_path]).warnings == ()


def test_no_run_at_all_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="found none in"):
        find_runs([tmp_path])
    unfinished = write_run(tmp_path / "unfinished", small_result())
    (unfinished / "result.json").unlink()
    with pytest.raises(UserError, match="unfinished"):
        find_runs([tmp_path])
    with pytest.raises(UserError, match="expected a folder"):
        find_runs([tmp_path / "missing"])


def test_nulls_and_missing_extras_are_absences_not_damage(tmp_path: Path) -> None:
    stable = small_result(faa_drifted=None, detection={"tpr": None}, buffer_size=None)
    for extra in ("accuracy_matrix_til", "macro_f1", "calibration", "confusion_matrix", "notes"):
        del stable[extra]
    del stable["class_names"], stable["gradient_steps"]
    write_run(tmp_path / "run", stable)
    (run,) = find_runs([tmp_path]).runs
    assert run.faa_drifted is None
    assert run.detection["tpr"] is None
    assert run.calibration is None
    assert run.faa_til is None
    assert run.class_names == ("0", "1", "2", "3")
    assert np.isnan(run.accuracy[0, 1])


def test_calibration_reads_the_same_from_bins_and_from_columns(tmp_path: Path) -> None:
    columns = {"confidence": [None, 0.55], "accuracy": [None, 0.5], "count": [0, 10], "ece": 0.05}
    rows = [
        {"confidence": None, "accuracy": None, "count": 0},
        {"confidence": 0.55, "accuracy": 0.5, "count": 10},
    ]
    write_run(tmp_path / "a", small_result(calibration=columns))
    write_run(tmp_path / "b", small_result(calibration={"ece": 0.05, "bins": rows}))
    for run in find_runs([tmp_path]).runs:
        assert run.calibration is not None
        assert run.calibration.confidence.tolist() == [0.55]
        assert run.calibration.count.tolist() == [10.0]


def test_mean_accuracy_after_a_task_is_over_the_tasks_seen_so_far(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result())
    (run,) = find_runs([tmp_path]).runs
    assert run.mean_accuracy.tolist() == [90.0, 80.0]
    assert run.faa_til == pytest.approx(94.0)


def test_costs_leave_evaluation_out_and_are_unknown_if_a_part_is(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result(flops={"train": 5, "detect": None, "adapt": 1}))
    (run,) = find_runs([tmp_path]).runs
    assert run.cost(run.seconds) == 2.75
    assert run.cost(run.flops) is None


def test_damaged_images_cost_the_images_and_not_the_run(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", small_result(), samples=True)
    torn = write_run(tmp_path / "torn", small_result(seed=1))
    write_samples(torn / "samples.safetensors")
    content = (torn / "samples.safetensors").read_bytes()
    (torn / "samples.safetensors").write_bytes(content[:-5])
    found = find_runs([tmp_path])
    assert {run.folder: run.samples for run in found.runs} == {
        whole: whole / "samples.safetensors",
        torn: None,
    }
    (warning,) = found.warnings
    assert "torn/samples.safetensors: damaged" in warning


def test_control_characters_do_not_get_through(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result(class_names=["a\x00b", "c\nd", "cat", "dog"]))
    (run,) = find_runs([tmp_path]).runs
    assert run.class_names[:2] == ("a�b", "c�d")
