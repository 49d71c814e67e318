"""The published numbers are complete, found by their place, and as printed."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files

import pytest
from run_tools import complaint

from driftwise.reproduce.published import MAIN, NAMES, PublishedCell, find, table

METHODS = {"er", "er-ace", "der++", "ser", "cls-er"}


def test_every_published_cell_is_found_by_its_own_place() -> None:
    folder = files("driftwise.reproduce").joinpath("published_numbers")
    assert "TMLR 2026" in folder.joinpath("README.md").read_text("utf-8")
    cells = [cell for name in NAMES for cell in table(name)]
    assert len(cells) == 280 + 12 + 16
    for cell in cells:
        numbers = ("faa", "faa_std", "forgetting")
        assert cell is find(**{k: v for k, v in asdict(cell).items() if k not in numbers})
    place = {"benchmark": "digits-cd", "method": "er", "adaptation": "amr"}
    assert find(**place, buffer_size=500, num_drifts=1) is None
    assert "did you mean 'table1'" in complaint(lambda: table("table-1"))


@pytest.mark.parametrize("name", MAIN)
def test_a_main_table_has_the_grid_of_the_paper(name: str) -> None:
    cells = table(name)
    drifts = (1, 2) if name in ("table1", "table2") else (2, 4)
    assert {cell.method for cell in cells} == METHODS
    assert {cell.backbone for cell in cells} == {"resnet18"}
    places = {(cell.buffer_size, cell.adaptation, cell.num_drifts) for cell in cells}
    adapted = [(name, count) for name in ("vanilla", "fr", "amr") for count in drifts]
    assert places == {(s, a, n) for s in (500, 5000) for a, n in [("vanilla", 0), *adapted]}
    assert len(cells) == 5 * len(places) == 70


@pytest.mark.parametrize(
    ("benchmark", "size", "method", "adaptation", "drifts", "backbone", "numbers"),
    [
        ("fmnist-cd", 500, "er", "amr", 1, "resnet18", (86.30, 0.86, 15.88)),
        ("fmnist-cd", 500, "der++", "vanilla", 0, "resnet18", (81.92, 0.07, 14.07)),
        ("fmnist-cd", 5000, "cls-er", "fr", 2, "resnet18", (85.48, 0.95, 11.34)),
        ("tinyimagenet-cd", 500, "er", "vanilla", 4, "resnet18", (6.30, 0.03, 58.16)),
        ("tinyimagenet-cd", 500, "er", "amr", 2, "resnet18", (6.19, 0.15, 57.67)),
        ("clear10-cd", 1000, "er-ace", "fr", 2, "resnet18", (59.33, 0.98, 25.92)),
        ("cifar10-cd", 5000, "er", "amr", 2, "resnet152", (60.23, None, 38.30)),
    ],
)
def test_numbers_are_those_that_are_printed(
    benchmark: str,
    size: int,
    method: str,
    adaptation: str,
    drifts: int,
    backbone: str,
    numbers: tuple[float, float | None, float],
) -> None:
    cell = find(
        benchmark=benchmark,
        buffer_size=size,
        method=method,
        adaptation=adaptation,
        num_drifts=drifts,
        backbone=backbone,
    )
    assert isinstance(cell, PublishedCell)
    assert (cell.faa, cell.faa_std, cell.forgetting) == numbers
