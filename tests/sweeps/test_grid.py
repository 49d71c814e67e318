"""Grids: their combinations and configs, their files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_tools import complaint

from driftwise.sweeps.grid import Grid, read_grid_file


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_every_combination_is_a_place_unless_a_rule_matches_all_its_settings() -> None:
    grid = Grid(axes={"method": ["er", "ser"], "seed": [0, 1]})
    places = [tuple(place.values()) for place in grid.places()]
    assert places == [("er", 0), ("er", 1), ("ser", 0), ("ser", 1)]
    grid = Grid(
        axes={"num_drifts": [0, 1], "adaptation": ["vanilla", "fr", "amr"]},
        without=[{"num_drifts": [0], "adaptation": ["fr", "amr"]}, {"adaptation": ["amr"]}],
    )
    places = [tuple(place.values()) for place in grid.places()]
    assert places == [(0, "vanilla"), (1, "vanilla"), (1, "fr")]


def test_base_and_place_make_one_config_options_included() -> None:
    grid = Grid(
        axes={"detector.level": [0.01], "buffer_size": [50]},
        base={"detector": {"name": "mmd", "correction": "none"}, "batch-size": 4},
    )
    config = grid.config_at(next(iter(grid.places())))
    assert (config.detector, config.buffer_size, config.batch_size) == ("mmd", 50, 4)
    assert config.options == {"detector": {"correction": "none", "level": 0.01}}
    # The config of a run is a base.
    base: dict[str, Any] = {"options": {"detector": {"level": 0.01}}, "method": "ser"}
    config = Grid(axes={"seed": [3]}, base=base).config_at({"seed": 3})
    assert config.options == {"detector": {"level": 0.01}}
    assert (config.method, config.seed) == ("ser", 3)
    # A user's data are given as in a config file.
    config = Grid(axes={"seed": [0]}, base={"data": {"folder": "photos", "size": 16}}).config_at({})
    assert (config.benchmark, config.data) == ("folder", "photos")
    assert config.options == {"benchmark": {"size": 16}}


def test_options_in_a_base_are_named_in_every_way_and_each_once() -> None:
    base = {
        "options": {"detector": {"level": 0.01}},
        "detector": {"name": "mmd", "correction": "none"},
        "detector.min-rows": 7,
    }
    options = {"level": 0.01, "correction": "none", "min_rows": 7}
    assert Grid(axes={"seed": [0]}, base=base).config_at({"seed": 0}).options["detector"] == options
    for twice in ({"detector.level": 0.1}, {"detector": {"level": 0.1}}):
        line = complaint(lambda: Grid(axes={"seed": [0]}, base={**base, **twice}))  # noqa: B023
        assert "detector.level is given twice in the base" in line


def test_a_file_has_name_grid_base_without_and_scale(tmp_path: Path) -> None:
    text = """
name: mine
scale: smoke
base: {epochs: 2}
grid:
  buffer-size: [50, 100]
  method: er
without:
  - {buffer-size: 50}
"""
    found = read_grid_file(written(tmp_path, text, "other.yaml"))
    assert (found.name, found.scale) == ("mine", "smoke")
    assert found.grid == Grid(
        axes={"buffer_size": [50, 100], "method": ["er"]},
        base={"epochs": 2},
        without=[{"buffer_size": [50]}],
    )
    for name_line in ("", "name:\n"):
        text = f"{name_line}grid: {{seed: [0]}}"
        unnamed = read_grid_file(written(tmp_path, text, "first.yaml"))
        assert (unnamed.name, unnamed.scale) == ("first", None)
    text = json.dumps({"grid": {"seed": [0]}})
    assert read_grid_file(written(tmp_path, text, "second.json")).name == "second"
    for empty in ("base:", "without:", "base: {}\nwithout: []"):
        found = read_grid_file(written(tmp_path, f"grid: {{seed: [0]}}\n{empty}\n"))
        assert found.grid == Grid(axes={"seed": [0]}, without=[])


def test_to_json_makes_the_same_grid() -> None:
    grid = Grid(axes={"seed": (0, 1)}, base={"epochs": 1}, without=[{"seed": (1,)}])
    plain: dict[str, Any] = json.loads(json.dumps(grid.to_json()))
    again = Grid(axes=plain["grid"], base=plain["base"], without=plain["without"])
    assert list(again.places()) == list(grid.places()) == [{"seed": 0}]


REFUSED = [
    ("gird: {seed: [0]}", "did you mean 'grid'"),
    ("grid: {methd: [er]}", "did you mean 'method'"),
    ("grid: {detectr.level: [0.1]}", "did you mean 'detector'"),
    ("name: mine", "expected a grid"),
    ("grid: [er, ser]", "takes a mapping"),
    ("{grid: {seed: 0}, base: 3}", "takes a mapping"),
    ("{grid: {seed: 0}, without: {seed: 0}}", "without takes a list"),
    ("grid: {method: []}", "empty list"),
    ("grid: {method: [er, er]}", "a value twice: er, er"),
    ("grid: {tasks: [[0, 1]]}", "texts and numbers; got [0, 1]"),
    ("grid: {method: [{name: er}]}", "texts and numbers"),
    ("grid: {buffer-size: [50], buffer_size: [100]}", "buffer_size is given twice"),
    (
        "{grid: {buffer_size: [5, 6]}, without: [{buffer-size: 5, buffer_size: 6}]}",
        "buffer_size is given twice",
    ),
    ("{base: {options: 3}, grid: {detector.level: [0.1]}}", "options are given as"),
    ("{base: {options: {detector: 3}}, grid: {seed: [0]}}", "options are given as"),
    ("{base: {events: [{at: 2020-01-01}]}, grid: {seed: [0]}}", "texts, numbers, lists and map"),
    ("{base: {2020-01-01: 3}, grid: {seed: [0]}}", "texts, numbers, lists and mappings"),
    ("{base: {data: !!set {a}}, grid: {seed: [0]}}", "texts, numbers, lists and mappings"),
    ("{base: {method: er}, grid: {method: [ser]}}", "is in the grid and in the base"),
    ("{base: {buffer-size: 50}, grid: {buffer_size: [100]}}", "is in the grid and in the base"),
    ("{base: {detector: {level: 0.1}}, grid: {detector.level: [0.2]}}", "in the grid and in the"),
    (
        "{base: {options: {detector: {level: 0.1}}}, grid: {detector.level: [0.2]}}",
        "is in the grid and in the base",
    ),
    ("{grid: {method: [er]}, without: [{metod: er}]}", "did you mean 'method'"),
    (
        "{grid: {adaptation: [fr, amr]}, without: [{adaptation: ammr}]}",
        "unknown value of adaptation under without 'ammr'; did you mean 'amr'",
    ),
    (
        "{grid: {seed: [0, 1]}, without: [{seed: 2020-01-01}]}",
        "unknown value of seed under without",
    ),
    ("{grid: {method: [er]}, without: [{method: er}]}", "leaves no combination"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_bad_file_is_refused_in_one_line_that_begins_with_its_name(
    tmp_path: Path, text: str, message: str
) -> None:
    file = written(tmp_path, text)
    line = complaint(lambda: read_grid_file(file))
    assert line.startswith(f"{file}:")
    assert line.count(str(file)) == 1
    assert message in line
