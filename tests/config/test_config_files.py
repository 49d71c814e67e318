from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_configs import Config, complaint

from driftwise.config.config_files import from_mapping, read_config_file, split_parts
from driftwise.config.schema import RunConfig
from driftwise.files import read_object


def from_file(**values: object) -> dict[str, object]:
    return from_mapping(Config, values, source="FILE")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"buffer-size": 5}, {"buffer_size": 5}),
        ({"buffer_size": 5}, {"buffer_size": 5}),
        ({"lr": 1}, {"lr": 1.0}),
        ({"lr": "1e-3"}, {"lr": 0.001}),
        ({"lr": "-2.5E3"}, {"lr": -2500.0}),
        ({"limit": None}, {"limit": None}),
        ({"limit": "none"}, {"limit": None}),
        ({"sequential": True}, {"sequential": True}),
        ({"severity": 2}, {"severity": 2}),
        ({"hidden": [1, 2]}, {"hidden": (1, 2)}),
        ({"hidden": []}, {"hidden": ()}),
        ({"tasks": [[0, 1], [], [2]]}, {"tasks": ((0, 1), (), (2,))}),
        ({"cuts": [["1e-3", 1]]}, {"cuts": ((0.001, 1.0),)}),
        ({"options": {"detector": {"level": 0.01}}}, {"options": {"detector": {"level": 0.01}}}),
    ],
)
def test_a_file_gives_values_of_the_fields_types(
    values: dict[str, object], expected: dict[str, object]
) -> None:
    converted = from_file(**values)
    assert converted == expected
    assert [type(v) for v in converted.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"lr": "fast"}, "lr must be a number; got 'fast'"),
        ({"lr": "0.1"}, "lr must be a number; got '0.1'"),
        ({"lr": "1e999"}, "lr must be a number; got '1e999'"),
        ({"lr": float("nan")}, "lr must be a number; got nan"),
        ({"lr": float("-inf")}, "lr must be a number; got -inf"),
        ({"lr": True}, "lr must be a number; got True"),
        ({"lr": None}, "lr must be a number; got nothing"),
        ({"seed": "1"}, "seed must be a whole number; got '1'"),
        ({"seed": 1.0}, "seed must be a whole number; got 1.0"),
        ({"seed": False}, "seed must be a whole number; got False"),
        ({"sequential": 1}, "sequential must be true or false; got 1"),
        ({"sequential": "true"}, "sequential must be true or false; got 'true'"),
        ({"method": 5}, "method must be text; got 5; write it in quotes"),
        ({"method": ["er"]}, "method must be text; got ['er']"),
        ({"scope": False}, "scope must be one of all-seen, since-last-event; got False"),
        ({"severity": True}, "severity must be one of 1, 2, 3; got True"),
        ({"severity": "2"}, "severity must be one of 1, 2, 3; got '2'; did you mean 2?"),
        ({"hidden": 5}, "hidden must be a list of whole numbers; got 5"),
        ({"hidden": "1,2"}, "hidden must be a list of whole numbers; got '1,2'"),
        ({"names": "ab"}, "names must be a list of words; got 'ab'"),
        ({"tasks": [1, 2]}, "tasks must be a list of lists of whole numbers; got [1, 2]"),
        ({"options": 3}, "options must be a mapping; got 3"),
        ({"bufersize": 5}, "unknown key 'bufersize'; did you mean buffer_size?"),
        (
            {"buffer-size": 5, "buffer_size": 6},
            "buffer_size is given twice, with '-' and with '_'; keep one",
        ),
    ],
)
def test_a_wrong_value_in_a_file_gets_one_line(values: dict[str, object], expected: str) -> None:
    assert complaint(lambda: from_file(**values)) == f"FILE: {expected}"


def test_a_value_of_any_size_is_shown_in_a_short_line() -> None:
    bomb: object = "x" * 1000
    for _ in range(30):
        bomb = [bomb] * 9
    for value in ("x" * 10_000, bomb, [10**9] * 100):
        assert len(complaint(functools.partial(from_file, seed=value))) < 120


def write(folder: Path, text: str | bytes, name: str = "config.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_json_is_read_by_its_own_rules_and_yaml_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path, '{\n\t"lr": 1e-3,\n\t"method": "\\ud83d\\ude00"\n}', "config.json")
    assert read_config_file(str(path)) == {"lr": 0.001, "method": "😀"}
    path = write(tmp_path, "\ufeff# mine\nlr: 1e-3\nhidden: [1, 2]\n")
    assert read_config_file(path) == {"lr": "1e-3", "hidden": [1, 2]}
    assert from_file(**read_config_file(path)) == {"lr": 0.001, "hidden": (1, 2)}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.yaml", "a: 1\nb: c: 2\n", "{}:2: not YAML: mapping values are not allowed here"),
        ("c.yaml", "a: 1\nb: [1\n", "{}:3: not YAML: expected ',' or ']', but got '<stream end>'"),
        (
            "c.yaml",
            "a: 1\nb: !!python/name:os.system\n",
            "{}:2: not YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/name:os.system'",
        ),
        ("c.yaml", "a: 1\nb: 2\na: 3\n", "{}:3: a is given twice; keep one"),
        ("c.yaml", "m:\n  a: 1\n  a: 2\n", "{}:3: a is given twice; keep one"),
        ("c.yaml", "a: 1\nb: \x07\n", "{}:2: not YAML: special characters are not allowed"),
        ("c.yaml", "a: 2024-13-45\n", "{}: month must be in 1..12"),
        ("c.yaml", b"a: 1\nb: \xff\n", "{}:2: not UTF-8 text; expected a YAML or JSON file"),
        ("c.yaml", "- 1\n- 2\n", "{}:1: expected lines such as 'seed: 0'; got [1, 2]"),
        ("c.yaml", "fast\n", "{}:1: expected lines such as 'seed: 0'; got 'fast'"),
        ("c.yaml", "# nothing\n", "{}:1: expected lines such as 'seed: 0'; got an empty file"),
        ("c.yaml", "[" * 1000, "{}: nested too deeply"),
        ("c.json", '{"a": 1,\n "b" 2}', "{}:2: not JSON: Expecting ':' delimiter"),
        ("c.json", '{"a": 1, "a": 2}', "{}: a is given twice; keep one"),
        ("c.json", "[1]", "{}:1: expected lines such as 'seed: 0'; got [1]"),
        ("c.json", "[" * 200_000, "{}: nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_gets_one_line(
    tmp_path: Path, name: str, text: str | bytes, expected: str
) -> None:
    path = write(tmp_path, text, name)
    assert complaint(lambda: read_config_file(path)) == expected.format(path)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("seed: {}", "9" * 100_000),
        ("tasks: [[{}, 1]]", "0x" + "f" * 100_000),
        ("? {}\n: 1", "1" + ":59" * 20_000),
    ],
)
def test_a_number_of_too_many_digits_gets_one_line(tmp_path: Path, text: str, number: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text.format(number))
    line = complaint(lambda: read_config_file(path))
    assert line.startswith(f"{path}:1: ")
    assert line.endswith("digits, expected at most 300")


@pytest.mark.parametrize("number", ["9" * 301, "-1e999", "NaN"])
def test_a_number_in_json_that_python_cannot_hold_gets_one_line(
    tmp_path: Path, number: str
) -> None:
    path = tmp_path / "c.json"
    path.write_text(f'{{"seed": {number}}}')
    readers: list[Callable[[Path], object]] = [read_config_file, read_object]
    for read in readers:
        line = complaint(functools.partial(read, path))
        assert line.startswith(str(path))
        assert len(line) < len(str(path)) + 150


@pytest.mark.parametrize("settings", [{"seed": 1 << 400_000}, {"tasks": [[1 << 400_000]]}])
def test_a_number_from_python_that_nobody_can_print_gets_one_line(settings: dict[str, Any]) -> None:
    assert "a number of 400,001 bits" in complaint(lambda: RunConfig(**settings))


def test_no_file_and_a_folder_get_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert complaint(lambda: read_config_file(missing)) == (
        f"{missing}: there is no such config file"
    )
    assert complaint(lambda: read_config_file(tmp_path)) == f"{tmp_path}: Is a directory"
    beneath_a_file = write(tmp_path, "a: 1") / "config.yaml"
    assert complaint(lambda: read_config_file(beneath_a_file)) == (
        f"{beneath_a_file}: Not a directory"
    )


def test_in_a_file_a_part_is_its_name_or_its_name_with_options() -> None:
    content = {
        "method": {"name": "er", "alpha": 0.2},
        "detector": "ks",
        "back-bone": {"width": 8},
        "encoder": {"name": "pixels"},
        "seed": 1,
        "options": {"name": "no part"},
    }
    settings, options = split_parts(content, ["method", "detector", "back_bone", "encoder"])
    assert settings == {
        "method": "er",
        "detector": "ks",
        "encoder": "pixels",
        "seed": 1,
        "options": {"name": "no part"},
    }
    assert options == {"method": {"alpha": 0.2}, "back_bone": {"width": 8}}
