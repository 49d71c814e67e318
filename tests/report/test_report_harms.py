"""Harm, share and spared drift on the page."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from report_builders import settings_in, small_result, write_run

from driftwise.report import write_report
from driftwise.report.cells import Setting
from driftwise.report.comparison import comparison_text
from driftwise.report.event_words import Outcome, outcomes_of
from driftwise.report.run_page import MAX_VERDICTS, verdict_table
from driftwise.report.verdicts import MAX_ROWS, harm_dots, verdict_grid

HARMLESS: dict[str, Any] = {"harm": 2.0, "harm_error": 3.0, "harm_unlabelled": -1.0, "spared": True}


def verdict(label: int, *, drifted: bool | None = True, **facts: Any) -> dict[str, Any]:
    return {"task": 2, "class": label, "drifted": drifted, "p_value": 0.01, **facts}


def setting_of(folder: Path, verdicts: list[dict[str, Any]], **changes: Any) -> Setting:
    write_run(folder / "run", small_result(verdicts=verdicts, **changes))
    (setting,) = settings_in(folder)
    return setting


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for panel in figure.axes for text in panel.texts]


def dashed_frames(figure: Figure) -> int:
    found = [patch.get_linestyle() for panel in figure.axes for patch in panel.patches]
    return sum(style != "solid" for style in found)


def test_harm_is_drawn_where_it_was_counted_and_where_it_was_estimated(tmp_path: Path) -> None:
    drawing = harm_dots(setting_of(tmp_path, small_result()["verdicts"]))
    assert drawing is not None
    (panel,) = drawing.figure.axes
    places = {line.get_marker(): np.asarray(line.get_xdata()).tolist() for line in panel.lines}
    assert (places["o"], places["D"]) == ([40.0], [31.0])
    assert "50% ± 4%" in texts(drawing.figure)
    assert "amr: counted 40 to 40 points, estimated 31 to 31 points" in drawing.alt


def test_a_missed_drift_shows_its_harm_and_an_unchanged_class_nothing(tmp_path: Path) -> None:
    known: dict[str, Any] = {"harm": 8.0, "harm_error": 1.0}
    verdicts = [verdict(label, drifted=False, **known) for label in (1, 2)]  # 0 and 1 drift
    drawing = harm_dots(setting_of(tmp_path, verdicts))
    assert drawing is not None
    (panel,) = drawing.figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["task 2   bee"]
    assert "✗" in texts(drawing.figure)
    assert "estimate" not in drawing.caption
    assert "moved" not in [*texts(drawing.figure), drawing.caption]


def test_spared_drift_is_framed_in_both_figures_and_named(tmp_path: Path) -> None:
    verdicts = [verdict(0, harm=40.0), verdict(1, **HARMLESS)]
    setting = setting_of(tmp_path, verdicts, config={"min_harm": 5.0})
    grid, dots = verdict_grid(setting), harm_dots(setting)
    assert grid is not None
    assert dots is not None
    assert dashed_frames(grid.figure) == dashed_frames(dots.figure) == 1
    assert "fewer than 5 points of accuracy, so that no labels are spent" in grid.caption
    assert "1 spared" in grid.alt
    assert "min_harm 5" in texts(dots.figure)
    assert "1 spared" in dots.alt


@pytest.mark.parametrize("facts", [{}, {"share": 0.4, "share_error": 0.1}])
def test_a_run_in_which_nobody_was_asked_about_harm_has_no_such_figure(
    tmp_path: Path, facts: dict[str, Any]
) -> None:
    setting = setting_of(tmp_path, [verdict(0, **facts)])
    assert harm_dots(setting) is None
    grid = verdict_grid(setting)
    assert grid is not None
    assert dashed_frames(grid.figure) == 0
    assert "spared" not in grid.caption + grid.alt
    table = verdict_table(setting.first)
    assert table is not None
    assert not any("harm" in head.title for head in table.heads)


def test_very_many_flags_are_cut_and_counted(tmp_path: Path) -> None:
    num = 3 * MAX_ROWS + 20
    verdicts = [verdict(label, harm=50.0) for label in range(num)]
    setting = setting_of(
        tmp_path, verdicts, class_names=[f"class number {label} of many" for label in range(num)]
    )
    drawing = harm_dots(setting)
    assert drawing is not None
    assert len(drawing.figure.axes[0].get_yticks()) == MAX_ROWS
    assert f"{num - MAX_ROWS} more are not shown" in drawing.caption
    table = verdict_table(setting.first)
    assert table is not None
    assert len(table.rows) == MAX_VERDICTS
    assert f"{num - MAX_VERDICTS} more are in result.json" in table.about[0]


def test_a_runs_table_reports_what_each_verdict_rests_on(tmp_path: Path) -> None:
    merged: dict[str, Any] = {"p_values": {"ks": 0.2, "mmd": 0.004}}
    verdicts = [
        small_result()["verdicts"][0],
        verdict(1, **HARMLESS, **merged),
        verdict(2, drifted=None, p_value=None, reason="fewer than 5 distinct <rows>"),
        verdict(3, drifted=False, p_value=0.5),
    ]
    table = verdict_table(setting_of(tmp_path, verdicts, config={"min_harm": 5.0}).first)
    assert table is not None
    cells = [[item.text for item in row] for row in table.rows]
    first = ["2", "ant", "drift, found", "0.9", "0.0001", "–", "0.025"]
    assert cells[0] == [*first, "40.0 ± 7.5", "31.0", "50% ± 4%", "3 of 20"]
    second = ["2", "bee", "drift, found, spared", "–", "0.01", "ks 0.2, mmd 0.004", "–"]
    assert cells[1] == [*second, "2.0 ± 3.0", "-1.0", "–", "–"]
    assert cells[2][2] == "not testable: fewer than 5 distinct <rows>"
    assert len(cells) == 3
    assert "&lt;rows&gt;" in table.html()
    assert "Of 4 verdicts in all, 1 found an unchanged class unchanged" in table.about[0]


@pytest.mark.usefixtures("one_figure")
def test_spared_verdicts_are_counted_in_the_comparison_where_harm_was_weighed(
    tmp_path: Path,
) -> None:
    verdicts = [verdict(0, harm=40.0), verdict(1, **HARMLESS)]
    plain = setting_of(tmp_path / "plain", verdicts)
    assert "spared" not in comparison_text([plain])
    setting = setting_of(tmp_path / "weighed", verdicts, config={"min_harm": 5.0})
    assert "spared" in comparison_text([setting]).split()
    out = tmp_path / "out"
    write_report([tmp_path / "weighed"], out)
    (row,) = csv.DictReader(io.StringIO((out / "table.csv").read_text()))
    assert float(row["num_spared"]) == 1


def test_spared_drift_was_not_repaired_so_that_a_later_alarm_is_right(tmp_path: Path) -> None:
    early, late = verdict(0, **HARMLESS), verdict(0, harm=40.0) | {"task": 3}
    setting = setting_of(tmp_path, [early, late], accuracy_matrix=[[50.0] * 3] * 3)
    assert list(outcomes_of(setting.first)) == [Outcome.FOUND, Outcome.FOUND]
