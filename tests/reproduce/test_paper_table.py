"""The table of a sweep beside the published numbers, in every form."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from paper_sweep_builders import Place, asked, places_of, write_sweep
from run_tools import complaint

from driftwise.reproduce.paper_table import (
    PaperTable,
    cell_by_cell,
    detector_csv,
    detector_table,
    like_the_paper,
    paper_table,
)
from driftwise.reproduce.published import NAMES, SOURCE, find, table

FORMS: dict[str, Callable[[PaperTable], str]] = {
    "text": lambda table: like_the_paper(table, decimals=1).text(),
    "csv": lambda table: cell_by_cell(table).csv(),
    "markdown": lambda table: like_the_paper(table, decimals=2).markdown(),
    "latex": lambda table: like_the_paper(table, decimals=2).latex(),
    "html": lambda table: cell_by_cell(table).html(),
}


def lines_of(table: PaperTable) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(FORMS["csv"](table))))


def near_the_paper(place: Place, seed: int) -> dict[str, Any]:
    """One point below the published accuracy with seed 0, two above with seed 1."""
    cell = find(**{**place, "benchmark": place["benchmark"].replace("digits", "fmnist")})
    assert cell is not None
    return {
        "faa": cell.faa - 1 + 3 * seed,
        "forgetting": cell.forgetting,
        "labels": asked(place["adaptation"], 240, 16),
    }


def half_done(place: Place, seed: int) -> dict[str, Any] | None:
    """cls-er not at all, ser with one seed."""
    if place["method"] == "cls-er" or (place["method"] == "ser" and seed):
        return None
    return near_the_paper(place, seed)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> PaperTable:
    folder = tmp_path_factory.mktemp("half")
    return paper_table(write_sweep(folder, places_of("table1"), half_done))


@pytest.mark.parametrize("name", ["table4", "clear10", "backbones"])
def test_a_complete_sweep_fills_every_published_cell(tmp_path: Path, name: str) -> None:
    assert name in NAMES
    sweep = write_sweep(tmp_path, places_of(name), near_the_paper, reproduces=name, seeds=1)
    found = paper_table(sweep)
    assert {cell.published for cell in found.cells} == {*table(name)}
    assert len(found.cells) == len(table(name))
    assert all(cell.num_seeds == cell.seeds_asked == 1 for cell in found.cells)
    differences = [cell.difference for cell in found.cells]
    assert differences == pytest.approx([-1.0] * len(differences))
    assert "not run" not in FORMS["text"](found).partition("FAA: final")[0]
    if name == "backbones":
        assert found.keys == ("benchmark", "backbone", "adaptation")
        assert found.shared == {"buffer_size": 5000, "method": "er"}
        assert found.drifts == (0, 2, 4)


def test_rows_columns_and_lines_are_those_of_the_paper(half: PaperTable) -> None:
    assert half.keys == ("buffer_size", "method", "adaptation")
    assert half.shared == {"benchmark": "fmnist-cd"}
    assert half.drifts == (0, 1, 2)
    assert list(half.rows) == [
        (size, method, adaptation)
        for size in (500, 5000)
        for method in ("er", "er-ace", "der++", "ser", "cls-er")
        for adaptation in ("vanilla", "fr", "amr")
    ]
    assert all((0 in row) == (names[2] == "vanilla") for names, row in half.rows.items())
    lines = FORMS["text"](half).splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:2] == ["500", "er"])
    assert lines[start].split() == [
        *("500", "er", "vanilla"),
        *("74.8", "±", "2.1", "(22.9)", "+0.5"),
        *("63.5", "±", "2.1", "(36.7)", "+0.5"),
        *("55.1", "±", "2.1", "(55.0)", "+0.5"),
    ]
    assert lines[start + 1].split() == [
        *("paper", "74.3", "±", "1.3", "(22.9)"),
        *("63.0", "±", "0.7", "(36.7)", "54.6", "±", "0.9", "(55.0)"),
    ]
    for width in (120, 80):
        text = like_the_paper(half, decimals=1).text(width)
        assert max(map(len, text.splitlines())) <= width
    assert text.count("paper  ") > 60  # broken into parts, names repeated


def test_unfinished_cells_stay_visible_and_csv_rounds_nothing(half: PaperTable) -> None:
    text = FORMS["text"](half)
    grid = text.partition("FAA: final")[0]
    assert grid.count("not run") == grid.count("[1]") == 2 * 7
    assert "98 of 140 runs done" in text
    lines = lines_of(half)
    assert len(lines) == len(half.cells) == 70
    for line, cell in zip(lines, half.cells, strict=True):
        known = cell.published
        assert known is not None
        assert line["method"] == cell.place["method"]
        assert int(line["buffer_size"]) == cell.place["buffer_size"]
        assert float(line["published_faa"]) == known.faa
        assert float(line["published_faa_sd"]) == known.faa_std
        assert (line["faa"] or None) == (None if cell.faa is None else repr(cell.faa.mean))
        assert (line["seeds"] == "0") == (line["method"] == "cls-er")
        if cell.faa is not None and cell.labels is not None:
            assert float(line["difference"]) == cell.difference
            assert float(line["labels_adaptation"]) == cell.labels.mean
            assert int(line["buffer_size_here"]) in (16, 166)
    page = FORMS["html"](half)
    assert 'class="sortable"' in page
    assert page.count("<tr>") == 72
    assert 'data-sort="74.85" data-label="FAA">74.85 ± 2.12</td>' in page
    shown, _, folded = page.partition("<summary>14 cells that have not been run yet</summary>")
    assert "not run</td>" not in shown
    assert folded.count("<tr>") == 15
    assert page.count('data-sort="0" data-label="seeds">not run</td>') == 14


def test_published_cells_that_the_sweep_leaves_out_are_shown_too(tmp_path: Path) -> None:
    places = [place for place in places_of("table1") if place["method"] == "er"]
    found = paper_table(write_sweep(tmp_path, places, near_the_paper))
    assert len(found.cells) == 70
    assert sum(cell.seeds_asked == 0 for cell in found.cells) == 56
    assert found.shared == {"benchmark": "fmnist-cd"}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_names_scale_source_buffers_labels_and_seeds(
    half: PaperTable, form: str
) -> None:
    text = " ".join(FORMS[form](half).replace('""', '"').replace("&quot;", '"').split())
    assert "smoke" in text
    assert "600 images, one epoch, a small network" in text
    assert SOURCE.strip('"').partition('"')[0] in text
    assert "differs from the paper" not in text
    if form != "csv":
        assert "500 stands for 16 samples here; 5000 stands for 166 samples here" in text
        assert "buffer 500, 1 drift: fr 240, amr 16" in text
        assert "2 seeds in each cell" in text


def test_another_benchmark_is_stated_in_every_form(tmp_path: Path) -> None:
    found = paper_table(write_sweep(tmp_path, places_of("table1", "digits-cd"), near_the_paper))
    for form, render in FORMS.items():
        text = " ".join(render(found).split())
        assert form == "csv" or "benchmark differs from the paper: digits-cd" in text
    lines = lines_of(found)
    benchmarks = {(line["benchmark"], line["published_benchmark"]) for line in lines}
    assert benchmarks == {("digits-cd", "fmnist-cd")}
    assert len(lines) == 70


def test_a_number_that_could_stand_for_two_published_ones_stands_for_none(tmp_path: Path) -> None:
    places = [
        {**place, "benchmark": "digits-cd"}
        for place in places_of("backbones")
        if place["num_drifts"] in (0, 2)
    ]
    sweep = write_sweep(tmp_path, places, lambda *_: {}, reproduces="backbones", seeds=1)
    for cell in paper_table(sweep).cells:
        if cell.measured is not None:
            assert (cell.published is None) == (cell.place["num_drifts"] == 0)


def test_a_users_own_grid_has_no_published_half(tmp_path: Path) -> None:
    places = [
        {"benchmark": "digits-cd", "method": "er", "adaptation": name, "severity": severity}
        for severity in (1, 5)
        for name in ("amr", "vanilla")
    ]
    sweep = write_sweep(tmp_path, places, lambda *_: {"faa": 50.0}, reproduces=None, seeds=1)
    found = paper_table(sweep)
    assert found.keys == ("severity", "adaptation")
    assert list(found.rows) == [(1, "vanilla"), (1, "amr"), (5, "vanilla"), (5, "amr")]
    for render in FORMS.values():
        assert "50" in render(found)
        assert "TMLR" not in render(found)
    page = FORMS["html"](found)
    assert "published" not in page
    assert "have not been run" not in page


def check_latex(text: str) -> None:
    """Environments and groups close, and every row has as many cells as the table has columns."""
    assert re.findall(r"\\begin\{(\w+)\}", text) == ["table", "tabular"]
    assert re.findall(r"\\end\{(\w+)\}", text) == ["tabular", "table"]
    bare = re.sub(r"\\[\\{}&%$#_]", "", text.replace("\\\\\n", "\n"))
    depth = 0
    for letter in bare:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    assert bare.count("$") % 2 == 0
    assert not re.search(r"(?<!\\)[%#~^_]", bare.replace(r"\setlength", ""))
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    for line in text.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
    assert sum(map(int, re.findall(r"\\multicolumn\{(\d+)\}", text))) in (0, len(columns))


TAGS = {
    *("h3", "p", "div", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "button"),
    *("details", "summary"),
}


class Balanced(HTMLParser):
    """Tags that are open; every other one must close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_latex_is_well_formed_and_a_hostile_name_is_escaped_everywhere(
    half: PaperTable, tmp_path: Path
) -> None:
    text = FORMS["latex"](half)
    check_latex(text)
    for part in (r"\toprule", r"\multicolumn{2}{c}{1 drift}", r"74.85 $\pm$ 2.12 (22.86) & +0.50"):
        assert part in text
    name = r"<b>&\input{x}|%_$#^~"
    places = [{**place, "method": name} for place in places_of("table1")[:2]]
    note = "50 % of <img src=x> & more_rows"
    faa = {"faa": 50.0}
    found = paper_table(write_sweep(tmp_path, places, lambda *_: faa, name="own", note=note))
    check_latex(FORMS["latex"](found))
    assert r"\input" not in FORMS["latex"](found)
    page = Balanced()
    page.feed(FORMS["html"](found))
    assert page.open == []
    assert page.seen <= TAGS
    assert name in {line["method"] for line in lines_of(found)}
    markdown = FORMS["markdown"](found)
    grid = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in grid}) == 1
    assert "<" not in re.sub(r"\\<", "", markdown)


# Accuracy by a detector's rates

RATED = [
    {"benchmark": "digits-cd", "method": "er", "adaptation": name, "tpr": tpr, "fpr": fpr}
    for name in ("amr", "fr")
    for tpr in (0.0, 0.5, 1.0)
    for fpr in (0.0, 0.2)
]


def by_rates(place: Place, seed: int) -> dict[str, Any] | None:
    if place["adaptation"] == "fr" and place["tpr"] == 1.0:
        return None
    return {
        "faa": 50 + 40 * place["tpr"] - 10 * place["fpr"] + 2 * seed,
        "labels": asked(place["adaptation"], 100, 10),
        "detection": {"tpr": place["tpr"], "fpr": place["fpr"]},
    }


def test_a_detectors_rates_make_rows_and_columns_and_csv_a_line_per_cell(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, RATED, by_rates, reproduces=None)
    found = detector_table(sweep)
    assert [head.title for head in found.heads] == ["adaptation", "TPR", "FPR 0", "FPR 0.2"]
    assert [[item.text for item in row] for row in found.rows] == [
        ["fr", "0", "51.0 ± 1.4", "49.0 ± 1.4"],
        ["fr", "0.5", "71.0 ± 1.4", "69.0 ± 1.4"],
        ["fr", "1", "not run", "not run"],
        ["amr", "0", "51.0 ± 1.4", "49.0 ± 1.4"],
        ["amr", "0.5", "71.0 ± 1.4", "69.0 ± 1.4"],
        ["amr", "1", "91.0 ± 1.4", "89.0 ± 1.4"],
    ]
    assert found.breaks == {3}
    assert "scale smoke" in found.text()
    lines = list(csv.DictReader(io.StringIO(detector_csv(sweep))))
    assert len(lines) == len(RATED)
    for line, place in zip(lines, RATED, strict=True):
        assert (float(line["tpr"]), float(line["fpr"])) == (place["tpr"], place["fpr"])
        if line["seeds"] == "2":
            assert float(line["tpr_reached"]) == place["tpr"]
            assert float(line["labels_adaptation"]) == (10 if line["adaptation"] == "amr" else 100)
    assert sum(line["faa"] == "" for line in lines) == 2
    without = write_sweep(tmp_path / "b", places_of("table1")[:1], lambda *_: {})
    assert "tpr and fpr" in complaint(lambda: detector_table(without))
