from __future__ import annotations

import ast
import csv
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from report_builders import settings_in, small_result, write_run, write_small_comparison

import driftwise
from driftwise.report import write_report
from driftwise.report.cells import Setting
from driftwise.report.comparison import COMPARISON, comparison, comparison_csv, comparison_text
from driftwise.report.table import Head, Item, Table, csv_text


def as_markdown(settings: Sequence[Setting]) -> str:
    return comparison(settings, name_setting=True).markdown()


RENDERERS = (comparison_text, as_markdown, comparison_csv)


def test_text_states_shared_names_once_and_aligns_the_rest(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    lines = comparison_text(settings_in(tmp_path)).splitlines()
    assert lines[0] == "toy-cd · method er · detector ks · buffer 20 · drifts 1 · seeds 2"
    (amr,) = (line for line in lines if line.startswith("amr"))
    assert amr.split() == [
        *("amr", "90.0", "±", "2.8", "10.0", "70.0", "90.0"),
        *("100", "40", "0.50", "–", "0.00", "2.8", "s", "4", "G"),
    ]
    heading = next(line for line in lines if line.startswith("adaptation"))
    rows = [line for line in lines if line.startswith(("vanilla", "fr", "amr"))]
    assert {len(row) for row in rows} == {len(heading)}
    write_run(tmp_path / "one", small_result(adaptation="fr-flush", faa=71.5))
    lines = comparison_text(settings_in(tmp_path)).splitlines()
    one = next(line for line in lines if line.startswith("fr-flush"))
    two = next(line for line in lines if line.startswith("amr"))
    assert one.index("71.5") == two.index("90.0"), "without a spread, too"


def test_text_never_exceeds_its_width_and_loses_no_column(tmp_path: Path) -> None:
    write_small_comparison(tmp_path / "a", benchmark="a-benchmark-with-a-long-name")
    write_small_comparison(tmp_path / "b", method="finetune", buffer_size=50_000)
    write_small_comparison(tmp_path / "c", method="cls-er", num_drifts=4, detector="combined")
    for width in (120, 80):
        text = comparison_text(settings_in(tmp_path), width=width)
        assert max(map(len, text.splitlines())) <= width
        for word in ("forgetting", "delay", "time", "FLOPs", "finetune", "combined", "50000"):
            assert word in text


def test_markdown_has_as_many_cells_in_every_line_and_escapes_names(tmp_path: Path) -> None:
    write_run(tmp_path / "a", small_result(method="a|b", buffer_size=None))
    lines = as_markdown(settings_in(tmp_path)).splitlines()
    assert r"a\|b" in lines[2]
    cells = [line.replace(r"\|", "").count("|") for line in lines]
    assert cells == [len(COMPARISON)] * 3  # nothing needs the columns "with" and "spared"
    assert "| – |" in lines[2]


def test_csv_keeps_full_precision_and_leaves_the_unknown_empty(tmp_path: Path) -> None:
    write_small_comparison(tmp_path)
    write_run(tmp_path / "one", small_result(adaptation="fr-flush", faa_stable=None))
    text = comparison_csv(settings_in(tmp_path))
    rows = {row["adaptation"]: row for row in csv.DictReader(io.StringIO(text))}
    expected = {"faa": 90.0, "faa_sd": 8**0.5, "gflops": 4.0, "seconds": 2.75, "faa_til": 94.0}
    assert {key: float(rows["amr"][key]) for key in expected} == expected
    assert float(rows["amr"]["gradient_steps"]) == 120
    assert (rows["fr-flush"]["faa_stable"], rows["fr-flush"]["faa_sd"]) == ("", "")


def test_twins_in_name_and_variants_differ_in_every_rendering(tmp_path: Path) -> None:
    write_run(tmp_path / "all", small_result())
    assert "with" not in comparison_text(settings_in(tmp_path)).split()
    write_run(tmp_path / "few", small_result(config={"label_budget": 40}))
    write_run(tmp_path / "steep", small_result(config={"severity": 7}))
    write_run(tmp_path / "not-compared", small_result(num_drifts=2))
    settings = settings_in(tmp_path)
    for render in RENDERERS:
        plain = render(settings).replace("\\", "")
        for words in ("label_budget 40", "label_budget not set", "severity 7"):
            assert words in plain
    assert "with –" not in comparison_text(settings)


def test_cells_of_html_are_escaped_whatever_they_hold() -> None:
    texts = ["<b>", "a&b", "two\nlines", "\u202emoc", "plain"]
    head = Head(title="<i>", meaning='"')
    for row in (texts, texts[:2]):
        table = Table(heads=[head] * len(row), rows=[[Item(text, text) for text in row]])
        html = table.html()
        assert html.count("<td") == len(row)
        assert "<b>" not in html
        assert "<i>" not in html
        assert "\u202e" not in html
        assert 'data-sort="&lt;b&gt;" data-label="&lt;i&gt;">&lt;b&gt;</td>' in html


# --- CSV -----------------------------------------------------------------------------------------

STARTS = (
    *("=", "+", "-", "@", "\t", "\r", "\n", " =", '"=', "'="),
    *("\uff1d", "\uff0b", "\uff0d", "\uff20"),
)


def cells(text: str, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), delimiter=delimiter))


@pytest.mark.parametrize("start", STARTS)
def test_no_text_in_a_csv_file_is_run_as_a_formula(start: str) -> None:
    ((cell,),) = cells(csv_text([[f"{start}cmd"]]))
    assert cell == f"'{start}cmd".replace("\r", "\n")
    text = csv_text([["er", f"a; {start}cmd;{start}cmd", f"b\n{start}cmd"]])
    for cell in (cell for line in cells(text, delimiter=";") for cell in line):
        assert cell.lstrip(' "\t')[:1] not in [*"=+-@\uff1d\uff0b\uff0d\uff20"]


def test_numbers_are_written_as_they_are_and_plain_texts_too() -> None:
    line = [-1.5, -3, 1e-9, True, None, "-1.5", "+2e-3", "der++", "a-b", "a; b", "mail@x"]
    text = csv_text([line])
    assert cells(text) == [["" if cell is None else str(cell) for cell in line]]
    assert float(cells(text)[0][0]) == -1.5


@pytest.mark.usefixtures("one_figure")
def test_names_in_a_result_reach_the_table_as_text(tmp_path: Path) -> None:
    names = {"benchmark": "=cmd|' /C calc'!A0", "method": "@SUM(1)", "adaptation": "-2+3"}
    write_run(tmp_path / "run", small_result(**names, forgetting=-4.5))
    write_report([tmp_path / "run"], tmp_path / "page")
    (row,) = csv.DictReader(io.StringIO((tmp_path / "page" / "table.csv").read_text()))
    assert [row[name] for name in names] == [f"'{text}" for text in names.values()]
    assert float(row["forgetting"]) == -4.5


def test_csv_is_written_in_one_place_only() -> None:
    source = Path(driftwise.__file__).parent
    writers = [
        file.relative_to(source).as_posix()
        for file in source.rglob("*.py")
        if "csv." in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("csv.writer", "csv.DictWriter")
    ]
    assert writers == ["report/table.py"]
