"""Saved results as rows and data frames."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas
import polars
import pytest
from report_builders import small_result, write_run, write_small_comparison

import driftwise
from driftwise.errors import UserError


def test_each_finished_run_is_a_row_with_its_costs(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "config.json").write_text("{}")
    found = driftwise.results(tmp_path)
    assert len(found.runs) == 6
    assert repr(found).startswith("Results(6 runs, ")
    assert [line.split(": ")[1] for line in found.warnings] == [
        "unfinished (no result.json), skipped"
    ]
    means = {
        name: sum(row["faa"] for row in found.runs if row["adaptation"] == name) / 2
        for name in ("vanilla", "fr", "amr")
    }
    assert means == {"vanilla": 52.0, "fr": 92.0, "amr": 90.0}
    assert {row["labels_adaptation"] for row in found.runs} == {0, 100, 400}


def test_accuracy_and_verdicts_are_long_tables_without_gaps(tmp_path: Path) -> None:
    write_run(tmp_path / "one", small_result())
    found = driftwise.results([tmp_path])
    cells = [(row["after_task"], row["on_task"], row["accuracy"]) for row in found.accuracy]
    assert cells == [(1, 1, 90.0), (2, 1, 70.0), (2, 2, 90.0)], "nothing above the diagonal"
    verdicts = [(row["class_name"], row["drifted"]) for row in found.verdicts]
    assert verdicts == [("ant", True), ("bee", False)]


def test_frames_of_pandas_and_polars_hold_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_small_comparison(tmp_path)
    found = driftwise.results(str(tmp_path))
    first, second = found.to_pandas(), found.to_polars()
    assert isinstance(first, pandas.DataFrame)
    assert isinstance(second, polars.DataFrame)
    assert first["faa"].tolist() == second["faa"].to_list()
    assert found.to_polars("verdicts").height == len(found.verdicts)
    with pytest.raises(UserError, match="table must be one of runs, accuracy, verdicts"):
        found.to_pandas("labels")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UserError, match="pip install polars"):
        found.to_polars()
