"""`driftwise.plot`: one function per kind of figure, from any kind of results."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from report_builders import small_result, write_run, write_small_comparison
from sweep_builders import place_of, small_sweep, write_plan

import driftwise
from driftwise import plot
from driftwise.errors import UserError
from driftwise.report.setting_figures import DRAWERS


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_comparison(tmp_path_factory.mktemp("runs"))


def titles(figure: Figure) -> list[str]:
    return [panel.get_title() for panel in figure.axes]


def test_every_figure_of_a_report_has_a_function_and_is_a_figure(runs: Path) -> None:
    before = dict(matplotlib.rcParams)
    assert set(plot.KINDS) <= set(plot.__all__)
    assert len(plot.KINDS) == len(DRAWERS)
    for kind in plot.KINDS:
        assert isinstance(getattr(plot, kind)(runs), Figure), kind
    assert dict(matplotlib.rcParams) == before


def test_a_figure_is_the_same_from_folders_results_and_dictionaries(runs: Path) -> None:
    folders = sorted(path.parent for path in runs.rglob("result.json"))
    dictionaries = [json.loads((folder / "result.json").read_text()) for folder in folders]
    lines = []
    for given in (runs, str(runs), folders, driftwise.results(runs), dictionaries):
        (axes,) = plot.accuracy(given).axes
        lines.append([list(np.asarray(line.get_ydata())) for line in axes.get_lines()])
    assert all(each == lines[0] for each in lines)
    assert len(plot.accuracy(dictionaries[0]).axes) == 1, "one result by itself"


def test_a_figure_can_be_saved_as_a_pdf_with_its_text(runs: Path, tmp_path: Path) -> None:
    plot.accuracy(runs).savefig(tmp_path / "accuracy.pdf")
    content = (tmp_path / "accuracy.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert b"/Font" in content


def test_of_several_settings_one_must_be_chosen(tmp_path: Path) -> None:
    write_run(tmp_path / "a", small_result())
    write_run(
        tmp_path / "b", small_result(method="der++", accuracy_matrix=[[9.0, None], [7.0, 9.0]])
    )
    names = plot.settings(tmp_path)
    assert len(names) == 2
    with pytest.raises(UserError, match="expected one of 2 settings, but none was chosen"):
        plot.accuracy(tmp_path)
    with pytest.raises(UserError, match="got setting='nonsense'"):
        plot.accuracy(tmp_path, setting="nonsense")
    by_title, by_place = plot.matrix(tmp_path, setting=names[1]), plot.matrix(tmp_path, setting=-1)
    assert titles(by_title) == titles(by_place)


def test_a_sweep_has_the_figures_of_its_page(tmp_path: Path) -> None:
    figures = plot.sweep(small_sweep(tmp_path))
    assert {name.partition("-")[0] for name in figures} == {"accuracy", "cost", "gain", "radar"}
    assert all(isinstance(figure, Figure) for figure in figures.values())
    empty = write_plan(tmp_path / "empty", "own", {"er-0": place_of()})
    with pytest.raises(UserError, match=r"no run of .* is done yet"):
        plot.sweep(empty)


def test_what_cannot_be_drawn_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="result 1 is not that of a finished run: it has no"):
        plot.accuracy({"faa": 3})
    with pytest.raises(UserError, match=r"expected folders of runs.*got int"):
        plot.accuracy([3])  # type: ignore[list-item]
    write_run(tmp_path / "a", small_result())
    with pytest.raises(UserError, match="nothing to draw for samples"):
        plot.samples(tmp_path)
    with pytest.raises(UserError, match=r"expected a report\.json"):
        plot.drift(tmp_path / "absent.json")
