from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.experiment import flags


@dataclass(frozen=True, kw_only=True)
class Base:
    """What two configs share."""

    seed: int = 0
    """what all randomness is drawn from"""
    lr: float = 0.1
    """step size of
    gradient descent"""


@dataclass(frozen=True, kw_only=True)
class Config(Base):
    """One field of every kind."""

    buffer_size: int
    """rows the memory holds, 100 % of them in use"""
    limit: int | None = None
    """at most so many; none: all"""
    method: str = "er"
    """how the learner rehearses"""
    sequential: bool = False
    """every task drifts the one before"""
    scope: Literal["all-seen", "since-last-event"] = "all-seen"
    """which classes drift"""
    severity: Literal[1, 2, 3] | None = None
    """how strongly"""
    hidden: tuple[int, ...] = (100, 50)
    """sizes of the layers"""
    names: tuple[str, ...] = field(default_factory=tuple)
    """what to call them"""
    tasks: tuple[tuple[int, ...], ...] | None = None
    """classes of each task"""
    cuts: tuple[tuple[float, ...], ...] = ((0.5,), (1.0, 2.0))
    """where to cut"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """settings of parts"""
    undocumented: int = 3


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a part."""

    alpha: float = 0.1
    """weight of the old logits"""
    reg_weight: float = 0.2
    """weight of the penalty"""
    nesterov: bool = False
    """look ahead"""
    sizes: tuple[int, ...] = ()
    """how many"""


def parse(*argv: str) -> dict[str, object]:
    parser = flags.OneLineParser(prog="run")
    flags.add_flags(parser, Config)
    return vars(parser.parse_args(argv))


def from_file(**values: object) -> dict[str, object]:
    return flags.from_mapping(Config, values, source="FILE")


def complaint(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def help_text(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> str:
    monkeypatch.setenv("COLUMNS", "1000")
    parser = flags.OneLineParser(prog="run")
    flags.add_flags(parser, Config, **settings)
    return parser.format_help()


# --- docstrings and help ------------------------------------------------------------------------


def test_field_docs_are_the_strings_beneath_the_fields_inherited_ones_included() -> None:
    docs = flags.field_docs(Config)
    assert list(docs) == [f.name for f in dataclasses.fields(Config)][:-1]
    assert docs["seed"] == "what all randomness is drawn from"
    assert docs["lr"] == "step size of gradient descent"
    assert docs["scope"] == "which classes drift"


def test_a_subclass_may_give_a_field_a_new_default_and_keep_its_docstring() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Renewed(Base):
        seed: int = 7
        lr: float = 0.5
        """slower"""

    assert flags.field_docs(Renewed) == {
        "seed": "what all randomness is drawn from",
        "lr": "slower",
    }


def test_a_class_without_source_has_no_docs_and_still_gets_flags() -> None:
    made = dataclasses.make_dataclass("made", [("size", int, 3)], frozen=True, kw_only=True)
    assert flags.field_docs(made) == {}
    parser = flags.OneLineParser()
    flags.add_flags(parser, made)
    assert vars(parser.parse_args(["--size", "4"])) == {"size": 4}


def test_the_help_holds_every_docstring(monkeypatch: pytest.MonkeyPatch) -> None:
    text = help_text(monkeypatch)
    for name, doc in flags.field_docs(Config).items():
        assert (doc in text) is (name != "options"), name


def test_the_help_names_every_default_as_it_would_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = help_text(monkeypatch).split("\n  --")[1:]
    lines = {
        f"--{entry.split()[0].rstrip(',')}": "--" + " ".join(entry.split()) for entry in entries
    }
    assert lines["--buffer-size"].endswith("100 % of them in use (required)")
    assert lines["--lr"] == "--lr X step size of gradient descent (default: 0.1)"
    assert lines["--limit"] == "--limit N at most so many; none: all"
    assert lines["--sequential"].startswith("--sequential, --no-sequential")
    assert lines["--sequential"].endswith("(default: false)")
    assert lines["--scope"].startswith("--scope {all-seen,since-last-event} ")
    assert lines["--severity"] == "--severity {1,2,3} how strongly"
    assert lines["--hidden"].endswith("(default: 100,50)")
    assert lines["--names"].endswith("(default: empty)")
    assert lines["--cuts"] == "--cuts JSON where to cut (default: [[0.5], [1.0, 2.0]])"
    assert lines["--undocumented"] == "--undocumented N (default: 3)"


def test_groups_put_flags_beneath_their_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    text = help_text(monkeypatch, groups={"stream": ["scope"], "learning": ["lr", "hidden"]})
    plain, _, rest = text.partition("\nstream:\n")
    stream, _, learning = rest.partition("\nlearning:\n")
    flags_of = [
        [line.split()[0] for line in part.splitlines() if line.startswith("  --")]
        for part in (stream, learning)
    ]
    assert flags_of == [["--scope"], ["--lr", "--hidden"]]
    assert "  --seed N" in plain


def test_a_group_of_fields_that_do_not_exist_is_our_own_mistake() -> None:
    with pytest.raises(TypeError, match="Config has no field speed"):
        flags.add_flags(argparse.ArgumentParser(), Config, groups={"x": ["speed"]})


def test_a_type_that_no_flag_can_carry_is_our_own_mistake() -> None:
    made = dataclasses.make_dataclass("made", [("when", complex)], frozen=True, kw_only=True)
    with pytest.raises(TypeError, match=r"made\.when: no flag can carry a <class 'complex'>"):
        flags.add_flags(argparse.ArgumentParser(), made)


# --- flags --------------------------------------------------------------------------------------


def test_flags_that_are_not_given_are_absent() -> None:
    assert parse() == {}
    assert parse("--seed", "0") == {"seed": 0}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--buffer-size 5", {"buffer_size": 5}),
        ("--seed -1", {"seed": -1}),
        ("--lr 1e-3", {"lr": 0.001}),
        ("--lr=2", {"lr": 2.0}),
        ("--limit 4", {"limit": 4}),
        ("--limit none", {"limit": None}),
        ("--method none", {"method": "none"}),
        ("--sequential", {"sequential": True}),
        ("--no-sequential", {"sequential": False}),
        ("--scope since-last-event", {"scope": "since-last-event"}),
        ("--severity 2", {"severity": 2}),
        ("--hidden 7", {"hidden": (7,)}),
        ("--hidden 7,8", {"hidden": (7, 8)}),
        ("--hidden=", {"hidden": ()}),
        ("--names a,b", {"names": ("a", "b")}),
        ("--tasks [[0,1],[],[2]]", {"tasks": ((0, 1), (), (2,))}),
        ("--cuts [[1],[0.5]]", {"cuts": ((1.0,), (0.5,))}),
        ("--seed 1 --seed 2", {"seed": 2}),
    ],
)
def test_a_flag_gives_a_value_of_the_fields_type(argv: str, expected: dict[str, object]) -> None:
    given_flags = parse(*argv.split())
    assert given_flags == expected
    assert [type(v) for v in given_flags.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--buffersize 5", "unknown flag --buffersize; did you mean --buffer-size?"),
        ("--buffer_size=5", "unknown flag --buffer_size; did you mean --buffer-size?"),
        ("--buffer 5", "unknown flag --buffer; did you mean --buffer-size?"),
        ("--sequentially", "unknown flag --sequentially; did you mean --sequential?"),
        ("--options x", "unknown flag --options; see --help"),
        ("stray", "unexpected argument 'stray'; see --help"),
        ("--lr", "--lr needs a value"),
        ("--lr --seed 1", "--lr needs a value"),
        ("--lr fast", "--lr must be a number; got 'fast'"),
        ("--lr nan", "--lr must be a number; got 'nan'"),
        ("--lr=-inf", "--lr must be a number; got '-inf'"),
        ("--lr none", "--lr must be a number; got 'none'"),
        ("--seed 1.5", "--seed must be a whole number; got '1.5'"),
        ("--limit all", "--limit must be a whole number; got 'all'"),
        ("--scope all", "--scope must be one of all-seen, since-last-event; got 'all'"),
        (
            "--scope all-sen",
            "--scope must be one of all-seen, since-last-event; got 'all-sen'; "
            "did you mean all-seen?",
        ),
        ("--severity 4", "--severity must be one of 1, 2, 3; got '4'"),
        ("--hidden 1,x", "--hidden must be whole numbers separated by commas; got '1,x'"),
        ("--hidden 1,,2", "--hidden must be whole numbers separated by commas; got '1,,2'"),
        ("--tasks 1,2", "--tasks must be a JSON list of lists of whole numbers; got '1,2'"),
        ("--tasks [1]", "--tasks must be a JSON list of lists of whole numbers; got '[1]'"),
        ("--cuts [[NaN]]", "--cuts must be a JSON list of lists of numbers; got '[[NaN]]'"),
        ("--sequential=1", "--sequential/--no-sequential: ignored explicit argument '1'"),
    ],
)
def test_a_wrong_flag_gets_one_line(argv: str, expected: str) -> None:
    assert complaint(lambda: parse(*argv.split())) == expected


def test_a_subcommand_suggests_its_own_flags_and_its_own_name() -> None:
    parser = flags.OneLineParser(prog="tool")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    flags.add_flags(commands.add_parser("run"), Config)
    flags.add_flags(commands.add_parser("sweep"), Options)

    assert vars(parser.parse_args(["run", "--lr", "1"])) == {"command": "run", "lr": 1.0}
    wrong = {
        ("run", "--method-name", "er"): "unknown flag --method-name; did you mean --method?",
        ("sweep", "--lr", "1"): "unknown flag --lr; see --help",
        ("sweep", "--alhpa", "1"): "unknown flag --alhpa; did you mean --alpha?",
        ("rum",): "COMMAND must be one of run, sweep; got 'rum'; did you mean run?",
        (): "the following arguments are required: COMMAND",
    }
    for argv, expected in wrong.items():
        assert complaint(functools.partial(parser.parse_args, argv)) == expected


# --- files --------------------------------------------------------------------------------------


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


def test_a_number_past_all_floats_is_refused() -> None:
    assert complaint(lambda: from_file(lr=10**400)).startswith(
        "FILE: lr must be a number; got 1000"
    )


def test_a_key_like_no_other_is_told_the_known_ones() -> None:
    message = complaint(lambda: flags.from_mapping(Options, {"zzz": 1}, source="FILE"))
    assert message == "FILE: unknown key 'zzz'; known: alpha, reg_weight, nesterov, sizes"


def test_a_value_of_any_size_is_shown_in_a_short_line() -> None:
    bomb: object = "x" * 1000
    for _ in range(30):
        bomb = [bomb] * 9
    for value in ("x" * 10_000, bomb, [10**9] * 100):
        assert len(complaint(functools.partial(from_file, seed=value))) < 120


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    seed=st.integers(-(10**12), 10**12),
    lr=finite,
    limit=st.none() | st.integers(0, 99),
    sequential=st.booleans(),
    scope=st.sampled_from(["all-seen", "since-last-event"]),
    hidden=st.lists(st.integers(0, 9)),
    cuts=st.lists(st.lists(finite)),
)
def test_flags_and_files_mean_the_same(sequential: bool, **values: Any) -> None:
    typed = {
        "seed": str(values["seed"]),
        "lr": repr(values["lr"]),
        "limit": "none" if values["limit"] is None else str(values["limit"]),
        "scope": values["scope"],
        "hidden": ",".join(map(str, values["hidden"])),
        "cuts": json.dumps(values["cuts"]),
    }
    argv = [f"--{name}={text}" for name, text in typed.items()]
    by_flags = parse(*argv, "--sequential" if sequential else "--no-sequential")

    written = {**values, "sequential": sequential}
    for text in (yaml.safe_dump(written), json.dumps(written)):
        assert from_file(**yaml.safe_load(text)) == by_flags


def write(folder: Path, text: str | bytes, name: str = "config.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("name", ["config.yaml", "config.json"])
def test_a_json_file_is_read_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, '{"seed": 1, "tasks": [[0, 1]], "method": {"name": "er"}}', name)
    expected = {"seed": 1, "tasks": [[0, 1]], "method": {"name": "er"}}
    assert flags.read_config_file(path) == expected
    assert flags.read_config_file(str(path)) == expected


def test_json_keeps_its_own_rules(tmp_path: Path) -> None:
    path = write(tmp_path, '{\n\t"lr": 1e-3,\n\t"method": "\\ud83d\\ude00"\n}', "config.json")
    assert flags.read_config_file(path) == {"lr": 0.001, "method": "😀"}


def test_yaml_with_comments_and_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff# mine\nlr: 1e-3\nhidden: [1, 2]\n")
    assert flags.read_config_file(path) == {"lr": "1e-3", "hidden": [1, 2]}
    assert from_file(**flags.read_config_file(path)) == {"lr": 0.001, "hidden": (1, 2)}


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
    assert complaint(lambda: flags.read_config_file(path)) == expected.format(path)


def test_no_file_and_a_folder_get_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert complaint(lambda: flags.read_config_file(missing)) == (
        f"{missing}: there is no such config file"
    )
    assert complaint(lambda: flags.read_config_file(tmp_path)) == (
        f"{tmp_path} is a folder; expected a YAML or JSON file"
    )
    beneath_a_file = write(tmp_path, "a: 1") / "config.yaml"
    assert complaint(lambda: flags.read_config_file(beneath_a_file)) == (
        f"{beneath_a_file}: Not a directory"
    )


# --- options of parts ---------------------------------------------------------------------------


def test_part_options_are_taken_out_of_the_arguments() -> None:
    argv = ["run", "--method.alpha", "-0.2", "--seed", "1", "--method.reg-weight=a=b", "--out=x.y"]
    rest, options = flags.split_part_options(argv)
    assert rest == ["run", "--seed", "1", "--out=x.y"]
    assert options == {"method": {"alpha": "-0.2", "reg_weight": "a=b"}}


def test_the_last_of_two_equal_part_options_counts() -> None:
    _, options = flags.split_part_options(["--method.alpha=1", "--method.alpha", "2"])
    assert options == {"method": {"alpha": "2"}}


def test_behind_a_double_dash_nothing_is_a_flag() -> None:
    argv = ["--a.b", "1", "--", "--c.d", "2"]
    assert flags.split_part_options(argv) == (["--", "--c.d", "2"], {"a": {"b": "1"}})


@pytest.mark.parametrize("argv", [["--method.alpha"], ["--method.alpha", "--seed", "1"]])
def test_a_part_option_needs_a_value(argv: list[str]) -> None:
    assert complaint(lambda: flags.split_part_options(argv)) == "--method.alpha needs a value"


def test_a_part_nobody_knows_is_an_unknown_flag() -> None:
    parts = ["method", "detector"]
    assert complaint(lambda: flags.split_part_options(["--metod.alpha=1"], parts)) == (
        "unknown flag --metod.alpha; did you mean --method.alpha?"
    )
    assert complaint(lambda: flags.split_part_options(["--q.z=1"], parts)) == (
        "unknown flag --q.z; see --help"
    )
    assert flags.split_part_options(["--method.x=1"], parts) == ([], {"method": {"x": "1"}})


def test_coerce_turns_text_by_the_rules_of_flags() -> None:
    values = {"alpha": "1e-3", "nesterov": "true", "sizes": "1,2"}
    assert flags.coerce(Options, values) == {"alpha": 0.001, "nesterov": True, "sizes": (1, 2)}
    assert flags.coerce(Options, {}) == {}


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [
        ({"alpha": "x"}, "method", "--method.alpha must be a number; got 'x'"),
        ({"alpha": "x"}, None, "--alpha must be a number; got 'x'"),
        ({"nesterov": "1"}, "method", "--method.nesterov must be true or false; got '1'"),
        (
            {"reg_wieght": "1"},
            "method",
            "unknown flag --method.reg-wieght; did you mean --method.reg-weight?",
        ),
        (
            {"zzz": "1"},
            None,
            "unknown flag --zzz; known: --alpha, --reg-weight, --nesterov, --sizes",
        ),
    ],
)
def test_coerce_names_the_flag_that_is_wrong(
    values: dict[str, str], part: str | None, expected: str
) -> None:
    assert complaint(lambda: flags.coerce(Options, values, part=part)) == expected


def test_in_a_file_a_part_is_its_name_or_its_name_with_options() -> None:
    content = {
        "method": {"name": "er", "alpha": 0.2},
        "detector": "ks",
        "back-bone": {"width": 8},
        "encoder": {"name": "pixels"},
        "seed": 1,
        "options": {"name": "no part"},
    }
    settings, options = flags.split_parts(content, ["method", "detector", "back_bone", "encoder"])
    assert settings == {
        "method": "er",
        "detector": "ks",
        "encoder": "pixels",
        "seed": 1,
        "options": {"name": "no part"},
    }
    assert options == {"method": {"alpha": 0.2}, "back_bone": {"width": 8}}


# --- cost ---------------------------------------------------------------------------------------


def test_importing_flags_is_quick_and_brings_neither_torch_nor_yaml() -> None:
    code = (
        "import sys, time; start = time.process_time(); import recollect.experiment.flags; "
        "print(time.process_time() - start, 'torch' in sys.modules, 'yaml' in sys.modules)"
    )

    def seconds() -> float:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        spent, torch_there, yaml_there = done.stdout.split()
        assert (torch_there, yaml_there) == ("False", "False")
        return float(spent)

    assert min(seconds() for _ in range(3)) < 0.1
