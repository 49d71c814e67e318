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

from driftwise.reproduce.paper_layout import cell_by_cell, like_the_paper
from driftwise.reproduce.paper_table import PaperTable, paper_table
from driftwise.reproduce.published import NAMES, SOURCE, find, table


def as_text(table: PaperTable, width: int = 120) -> str:
    return like_the_paper(table, decimals=1).text(width)


def as_markdown(table: PaperTable) -> str:
    return like_the_paper(table, decimals=2).markdown()


def as_latex(table: PaperTable) -> str:
    return like_the_paper(table, decimals=2).latex()


def as_html(table: PaperTable) -> str:
    return cell_by_cell(table).html()


def as_csv(table: PaperTable) -> str:
    return cell_by_cell(table).csv()


RENDERERS: tuple[Callable[[PaperTable], str], ...] = (
    as_text,
    as_csv,
    as_markdown,
    as_latex,
    as_html,
)


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


@pytest.mark.parametrize("name", NAMES)
def test_a_complete_sweep_fills_every_published_cell(tmp_path: Path, name: str) -> None:
    sweep = write_sweep(tmp_path, places_of(name), near_the_paper, reproduces=name, seeds=1)
    found = paper_table(sweep)
    cells = list(found.cells)
    assert {cell.published for cell in cells} == {*table(name)}
    assert len(cells) == len(table(name))
    assert all(cell.num_seeds == cell.seeds_asked == 1 for cell in cells)
    assert [cell.difference for cell in cells] == pytest.approx([-1.0] * len(cells))
    assert "not run" not in as_text(found).partition("FAA: final")[0]


def test_rows_and_columns_are_those_of_the_paper(half: PaperTable) -> None:
    assert half.keys == ("buffer_size", "method", "adaptation")
    assert half.shared == {"benchmark": "fmnist-cd"}
    assert half.drifts == (0, 1, 2)
    methods = ("er", "er-ace", "der++", "ser", "cls-er")
    assert [row.names for row in half.rows] == [
        (size, method, adaptation)
        for size in (500, 5000)
        for method in methods
        for adaptation in ("vanilla", "fr", "amr")
    ]
    assert all((row.cells[0] is None) == (row.names[2] != "vanilla") for row in half.rows)


def test_backbones_are_named_by_benchmark_and_backbone(tmp_path: Path) -> None:
    sweep = write_sweep(
        tmp_path, places_of("backbones"), near_the_paper, reproduces="backbones", seeds=1
    )
    found = paper_table(sweep)
    assert found.keys == ("benchmark", "backbone", "adaptation")
    assert found.shared == {"buffer_size": 5000, "method": "er"}
    assert found.drifts == (0, 2, 4)


def test_a_line_of_text_says_what_was_measured_and_the_next_what_was_published(
    half: PaperTable,
) -> None:
    lines = as_text(half).splitlines()
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


def test_unfinished_cells_stay_visible(half: PaperTable) -> None:
    text = as_text(half)
    grid = text.partition("FAA: final")[0]
    assert grid.count("not run") == 2 * 7
    assert grid.count("[1]") == 2 * 7
    assert "112" not in grid
    assert "98 of 140 runs done" in text
    rows = list(csv.DictReader(io.StringIO(as_csv(half))))
    missing = [row for row in rows if row["seeds"] == "0"]
    assert {row["method"] for row in missing} == {"cls-er"}
    assert all(row["faa"] == "" and row["published_faa"] for row in missing)


def test_published_cells_that_nobody_asked_for_are_shown_too(tmp_path: Path) -> None:
    places = [place for place in places_of("table1") if place["method"] == "er"]
    found = paper_table(write_sweep(tmp_path, places, near_the_paper))
    assert len(list(found.cells)) == 70
    assert sum(cell.seeds_asked == 0 for cell in found.cells) == 56
    assert found.shared == {"benchmark": "fmnist-cd"}


def test_text_fits_a_terminal(half: PaperTable) -> None:
    for width in (120, 80):
        assert max(map(len, as_text(half, width=width).splitlines())) <= width
    assert as_text(half, width=80).count("paper  ") > 60  # broken into parts, names repeated


@pytest.mark.parametrize("render", RENDERERS)
def test_every_rendering_says_the_scale_and_where_the_published_numbers_come_from(
    half: PaperTable, render: Callable[[PaperTable], str]
) -> None:
    said = " ".join(render(half).replace('""', '"').replace("&quot;", '"').split())
    assert "smoke" in said
    assert "600 images, one epoch, a small network" in said
    assert SOURCE.strip('"').partition('"')[0] in said


@pytest.mark.parametrize("render", [as_text, as_markdown, as_latex, as_html])
def test_people_are_told_real_buffers_labels_and_seeds(
    half: PaperTable, render: Callable[[PaperTable], str]
) -> None:
    said = " ".join(render(half).split())
    assert "500 stands for 16 samples here; 5000 stands for 166 samples here" in said
    assert "buffer 500, 1 drift: fr 240, amr 16" in said
    assert "2 seeds in each cell" in said
    assert "differs from the paper" not in said


def test_another_benchmark_is_admitted_in_every_rendering(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, places_of("table1", "digits-cd"), near_the_paper)
    found = paper_table(sweep)
    for render in RENDERERS[:1] + RENDERERS[2:]:
        assert "benchmark differs from the paper: digits-cd" in " ".join(render(found).split())
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert {(row["benchmark"], row["published_benchmark"]) for row in rows} == {
        ("digits-cd", "fmnist-cd")
    }
    assert len(rows) == 70


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


def test_csv_gives_back_every_number_unrounded(half: PaperTable) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(half))))
    cells = list(half.cells)
    assert len(rows) == len(cells) == 70
    for row, cell in zip(rows, cells, strict=True):
        known = cell.published
        assert known is not None
        assert row["method"] == cell.place["method"]
        assert int(row["buffer_size"]) == cell.place["buffer_size"]
        assert float(row["published_faa"]) == known.faa
        assert float(row["published_faa_sd"]) == known.faa_std
        assert (row["faa"] or None) == (None if cell.faa is None else repr(cell.faa.mean))
        if cell.faa is not None and cell.labels is not None:
            assert float(row["difference"]) == cell.difference
            assert float(row["labels_adaptation"]) == cell.labels.mean
            assert int(row["buffer_size_here"]) in (16, 166)


def test_a_grid_of_ones_own_has_no_published_half(tmp_path: Path) -> None:
    places = [
        {"benchmark": "digits-cd", "method": "er", "adaptation": name, "severity": severity}
        for severity in (1, 5)
        for name in ("amr", "vanilla")
    ]
    sweep = write_sweep(tmp_path, places, lambda *_: {"faa": 50.0}, reproduces=None, seeds=1)
    found = paper_table(sweep)
    assert found.keys == ("severity", "adaptation")
    assert [row.names for row in found.rows] == [
        (1, "vanilla"),
        (1, "amr"),
        (5, "vanilla"),
        (5, "amr"),
    ]
    for render in RENDERERS:
        assert "50" in render(found)
        assert "TMLR" not in render(found)


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
    spans = sum(map(int, re.findall(r"\\multicolumn\{(\d+)\}", text)))
    assert spans in (0, len(columns))


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


def test_latex_is_well_formed(half: PaperTable) -> None:
    text = as_latex(half)
    check_latex(text)
    assert r"\toprule" in text
    assert r"\multicolumn{2}{c}{1 drift}" in text
    assert r"74.85 $\pm$ 2.12 (22.86) & +0.50" in text


def test_a_hostile_name_is_escaped_everywhere(tmp_path: Path) -> None:
    name = r"<b>&\input{x}|%_$#^~"
    places = [{**place, "method": name} for place in places_of("table1")[:2]]
    sweep = write_sweep(
        tmp_path,
        places,
        lambda *_: {"faa": 50.0},
        name="own",
        note="50 % of <img src=x> & more_rows",
    )
    found = paper_table(sweep)
    check_latex(as_latex(found))
    assert r"\input" not in as_latex(found)
    page = Balanced()
    page.feed(as_html(found))
    assert page.open == []
    assert page.seen <= {
        "h3",
        "p",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "ul",
        "li",
        "button",
    }
    assert name in {row["method"] for row in csv.DictReader(io.StringIO(as_csv(found)))}
    grid = [line for line in as_markdown(found).splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in grid}) == 1
    assert "<" not in re.sub(r"\\<", "", as_markdown(found))


def test_html_can_be_sorted_by_number(half: PaperTable) -> None:
    page = as_html(half)
    assert 'class="sortable"' in page
    assert page.count("<tr>") == 71
    assert 'data-sort="74.85">74.85 ± 2.12</td>' in page
    assert page.count('data-sort="0">not run</td>') == 14
