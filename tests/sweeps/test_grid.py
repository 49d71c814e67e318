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


def refusal(folder: Path, text: str) -> str:
    """With what one line a file is refused; the file's name comes first."""
    file = written(folder, text)
    line = complaint(lambda: read_grid_file(file))
    assert line.startswith(f"{file}:")
    assert line.count(str(file)) == 1
    return line


def test_every_combination_is_a_place_and_the_last_axis_varies_fastest() -> None:
    grid = Grid(axes={"method": ["er", "ser"], "seed": [0, 1]})
    assert [tuple(place.values()) for place in grid.places()] == [
        ("er", 0),
        ("er", 1),
        ("ser", 0),
        ("ser", 1),
    ]


def test_a_combination_is_left_out_if_a_rule_matches_it_in_all_settings() -> None:
    grid = Grid(
        axes={"num_drifts": [0, 1], "adaptation": ["vanilla", "fr", "amr"]},
        without=[{"num_drifts": [0], "adaptation": ["fr", "amr"]}, {"adaptation": ["amr"]}],
    )
    assert [tuple(place.values()) for place in grid.places()] == [
        (0, "vanilla"),
        (1, "vanilla"),
        (1, "fr"),
    ]


def test_base_and_place_make_one_config_options_included() -> None:
    grid = Grid(
        axes={"detector.level": [0.01], "buffer_size": [50]},
        base={"detector": {"name": "mmd", "correction": "none"}, "batch-size": 4},
    )
    config = grid.config_at(next(iter(grid.places())))
    assert (config.detector, config.buffer_size, config.batch_size) == ("mmd", 50, 4)
    assert config.options == {"detector": {"correction": "none", "level": 0.01}}


def test_the_config_of_a_run_is_a_base() -> None:
    base = {"options": {"detector": {"level": 0.01}}, "method": "ser"}
    grid = Grid(axes={"seed": [3]}, base=base)
    config = grid.config_at({"seed": 3})
    assert config.options == {"detector": {"level": 0.01}}
    assert (config.method, config.seed) == ("ser", 3)


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


def test_data_of_ones_own_stand_in_a_base_as_in_a_config_file() -> None:
    grid = Grid(axes={"seed": [0]}, base={"data": {"folder": "photos", "size": 16}})
    config = grid.config_at({"seed": 0})
    assert (config.benchmark, config.data) == ("folder", "photos")
    assert config.options == {"benchmark": {"size": 16}}


def test_a_file_says_name_grid_base_without_and_scale(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name_line", ["", "name:\n"])
def test_a_file_without_a_name_goes_by_its_own_and_json_will_do(
    tmp_path: Path, name_line: str
) -> None:
    yaml = read_grid_file(written(tmp_path, f"{name_line}grid: {{seed: [0]}}", "first.yaml"))
    assert (yaml.name, yaml.scale) == ("first", None)
    text = json.dumps({"grid": {"seed": [0]}})
    assert read_grid_file(written(tmp_path, text, "second.json")).name == "second"


def test_what_to_json_says_makes_the_same_grid() -> None:
    grid = Grid(axes={"seed": (0, 1)}, base={"epochs": 1}, without=[{"seed": (1,)}])
    told: dict[str, Any] = json.loads(json.dumps(grid.to_json()))
    again = Grid(axes=told["grid"], base=told["base"], without=told["without"])
    assert list(again.places()) == list(grid.places()) == [{"seed": 0}]


@pytest.mark.parametrize("empty", ["base:", "without:", "base: {}\nwithout: []"])
def test_a_key_that_stands_empty_says_nothing(tmp_path: Path, empty: str) -> None:
    found = read_grid_file(written(tmp_path, f"grid: {{seed: [0]}}\n{empty}\n"))
    assert found.grid == Grid(axes={"seed": [0]}, without=[])


@pytest.mark.parametrize(
    "base",
    ["{options: 3}", "{options: {detector: 3}}", "{options: [detector]}"],
)
def test_options_are_given_by_part(tmp_path: Path, base: str) -> None:
    line = refusal(tmp_path, f"{{base: {base}, grid: {{detector.level: [0.1]}}}}")
    assert "options are given as" in line


@pytest.mark.parametrize("base", ["events: [{at: 2020-01-01}]", "2020-01-01: 3", "data: !!set {a}"])
def test_what_json_cannot_say_is_refused_in_one_line(tmp_path: Path, base: str) -> None:
    line = refusal(tmp_path, f"{{base: {{{base}}}, grid: {{seed: [0]}}}}")
    assert "texts, numbers, lists and mappings" in line


def test_a_setting_spelled_in_two_ways_is_refused(tmp_path: Path) -> None:
    line = refusal(tmp_path, "grid: {buffer-size: [50], buffer_size: [100]}")
    assert "buffer_size is given twice" in line
    rule = "{grid: {buffer_size: [5, 6]}, without: [{buffer-size: 5, buffer_size: 6}]}"
    assert "buffer_size is given twice" in refusal(tmp_path, rule)


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest(tmp_path: Path) -> None:
    assert "did you mean 'grid'" in refusal(tmp_path, "gird: {seed: [0]}")


def test_an_unknown_setting_or_part_is_refused_with_the_nearest(tmp_path: Path) -> None:
    assert "did you mean 'method'" in refusal(tmp_path, "grid: {methd: [er]}")
    assert "did you mean 'detector'" in refusal(tmp_path, "grid: {detectr.level: [0.1]}")


def test_a_file_without_a_grid_is_refused(tmp_path: Path) -> None:
    assert "expected a grid" in refusal(tmp_path, "name: mine")
    assert "takes a mapping" in refusal(tmp_path, "grid: [er, ser]")
    assert "takes a mapping" in refusal(tmp_path, "{grid: {seed: 0}, base: 3}")
    assert "without takes a list" in refusal(tmp_path, "{grid: {seed: 0}, without: {seed: 0}}")


def test_an_axis_is_a_list_of_texts_and_numbers_without_repeats(tmp_path: Path) -> None:
    assert "empty list" in refusal(tmp_path, "grid: {method: []}")
    assert "a value twice: er, er" in refusal(tmp_path, "grid: {method: [er, er]}")
    assert "texts and numbers; got [0, 1]" in refusal(tmp_path, "grid: {tasks: [[0, 1]]}")
    assert "texts and numbers" in refusal(tmp_path, "grid: {method: [{name: er}]}")


@pytest.mark.parametrize(
    ("base", "axis"),
    [
        ("method: er", "method: [ser]"),
        ("buffer-size: 50", "buffer_size: [100]"),
        ("detector: {level: 0.1}", "detector.level: [0.2]"),
        ("options: {detector: {level: 0.1}}", "detector.level: [0.2]"),
    ],
)
def test_a_setting_stands_in_the_base_or_in_the_grid(tmp_path: Path, base: str, axis: str) -> None:
    line = refusal(tmp_path, f"{{base: {{{base}}}, grid: {{{axis}}}}}")
    assert "is in the grid and in the base" in line


def test_without_speaks_of_settings_of_the_grid_and_leaves_something(tmp_path: Path) -> None:
    stranger = refusal(tmp_path, "{grid: {method: [er]}, without: [{metod: er}]}")
    assert "did you mean 'method'" in stranger
    mistyped = refusal(tmp_path, "{grid: {adaptation: [fr, amr]}, without: [{adaptation: ammr}]}")
    assert "unknown value of adaptation under without 'ammr'; did you mean 'amr'" in mistyped
    dated = refusal(tmp_path, "{grid: {seed: [0, 1]}, without: [{seed: 2020-01-01}]}")
    assert "unknown value of seed under without" in dated
    nothing = refusal(tmp_path, "{grid: {method: [er]}, without: [{method: er}]}")
    assert "leaves no combination" in nothing
