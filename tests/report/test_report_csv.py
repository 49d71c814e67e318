"""No text in a CSV file is run as a formula, and every number stays one."""

from __future__ import annotations

import ast
import csv
import io
from pathlib import Path

import pytest
from report_builders import small_result, write_run

import driftwise
from driftwise.report import write_report
from driftwise.report.table import csv_text

FORMULA = "=cmd|' /C calc'!A0"
STARTS = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    " =",
    '"=',
    "'=",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)


def cells(text: str, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), delimiter=delimiter))


@pytest.mark.parametrize("start", STARTS)
def test_a_text_that_begins_like_a_formula_is_kept_as_text(start: str) -> None:
    ((cell,),) = cells(csv_text([[f"{start}cmd"]]))
    assert cell == f"'{start}cmd".replace("\r", "\n")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\uff1d"])
def test_where_semicolons_part_cells_no_formula_begins_either(start: str) -> None:
    text = csv_text([["er", f"a; {start}cmd;{start}cmd", f"b\n{start}cmd"]])
    for cell in (cell for line in cells(text, delimiter=";") for cell in line):
        assert not cell.lstrip(' "').startswith(start)


def test_numbers_are_written_as_they_are_and_plain_texts_too() -> None:
    line = [-1.5, -3, 1e-9, True, None, "-1.5", "+2e-3", "der++", "a-b", "a; b", "mail@x"]
    text = csv_text([line])
    assert cells(text) == [["" if cell is None else str(cell) for cell in line]]
    assert float(cells(text)[0][0]) == -1.5


def test_names_in_a_result_reach_the_table_as_text(tmp_path: Path) -> None:
    names = {"benchmark": FORMULA, "method": "@SUM(1)", "adaptation": "-2+3"}
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
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("csv.writer", "csv.DictWriter")
    ]
    assert writers == ["report/table.py"]
