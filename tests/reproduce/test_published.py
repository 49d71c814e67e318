from __future__ import annotations

from importlib.resources import files

import pytest

from driftwise.errors import UserError
from driftwise.reproduce.published import MAIN, NAMES, PublishedCell, find, table

METHODS = {"er", "er-ace", "der++", "ser", "cls-er"}


def test_the_published_files_travel_with_the_package() -> None:
    folder = files("driftwise.reproduce").joinpath("published_numbers")
    for name in ("accuracy_tables.csv", "clear10_table.csv", "backbone_table.csv", "README.md"):
        assert folder.joinpath(name).is_file()
    assert "TMLR 2026" in folder.joinpath("README.md").read_text("utf-8")


def test_every_cell_is_there_and_is_found_by_its_own_place() -> None:
    cells = [cell for name in NAMES for cell in table(name)]
    assert len(cells) == 280 + 12 + 16
    for cell in cells:
        assert cell is find(
            benchmark=cell.benchmark,
            buffer_size=cell.buffer_size,
            method=cell.method,
            adaptation=cell.adaptation,
            num_drifts=cell.num_drifts,
            backbone=cell.backbone,
        )


@pytest.mark.parametrize("name", MAIN)
def test_a_main_table_has_the_grid_of_the_paper(name: str) -> None:
    cells = table(name)
    drifts = (1, 2) if name in ("table1", "table2") else (2, 4)
    assert {cell.method for cell in cells} == METHODS
    assert {cell.backbone for cell in cells} == {"resnet18"}
    places = {(cell.buffer_size, cell.adaptation, cell.num_drifts) for cell in cells}
    assert places == {
        (size, adaptation, count)
        for size in (500, 5000)
        for adaptation, count in (
            ("vanilla", 0),
            *((name, count) for name in ("vanilla", "fr", "amr") for count in drifts),
        )
    }
    assert len(cells) == 5 * len(places) == 70


@pytest.mark.parametrize(
    ("place", "faa", "deviation", "forgetting"),
    [
        (("fmnist-cd", 500, "er", "amr", 1), 86.30, 0.86, 15.88),
        (("fmnist-cd", 500, "der++", "vanilla", 0), 81.92, 0.07, 14.07),
        (("fmnist-cd", 5000, "cls-er", "fr", 2), 85.48, 0.95, 11.34),
        (("tinyimagenet-cd", 500, "er", "vanilla", 4), 6.30, 0.03, 58.16),
        (("tinyimagenet-cd", 500, "er", "amr", 2), 6.19, 0.15, 57.67),
        (("clear10-cd", 1000, "er-ace", "fr", 2), 59.33, 0.98, 25.92),
    ],
)
def test_numbers_are_those_that_are_printed(
    place: tuple[str, int, str, str, int], faa: float, deviation: float, forgetting: float
) -> None:
    benchmark, size, method, adaptation, drifts = place
    cell = find(
        benchmark=benchmark,
        buffer_size=size,
        method=method,
        adaptation=adaptation,
        num_drifts=drifts,
    )
    assert cell is not None
    assert (cell.faa, cell.faa_std, cell.forgetting) == (faa, deviation, forgetting)


def test_backbones_have_no_deviation_and_do_not_hide_the_main_tables() -> None:
    def cell(backbone: str) -> PublishedCell | None:
        return find(
            benchmark="cifar10-cd",
            buffer_size=5000,
            method="er",
            adaptation="amr",
            num_drifts=2,
            backbone=backbone,
        )

    deep, vit, plain = cell("resnet152"), cell("vit-s"), cell("resnet18")
    assert deep is not None
    assert (deep.faa, deep.faa_std, deep.forgetting) == (60.23, None, 38.30)
    assert vit is not None
    assert vit.faa == 56.15
    assert plain is not None
    assert plain.faa_std is not None


def test_what_was_not_published_is_not_found() -> None:
    place = {"benchmark": "digits-cd", "method": "er", "adaptation": "amr"}
    assert find(**place, buffer_size=500, num_drifts=1) is None
    with pytest.raises(UserError, match="did you mean 'table1'"):
        table("table-1")
