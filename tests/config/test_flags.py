from __future__ import annotations

import argparse
import dataclasses
import functools
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_configs import Base, Config, Options, complaint

from driftwise.config import flags
from driftwise.config.config_files import from_mapping
from driftwise.config.fields import field_docs


def parse(*argv: str) -> dict[str, object]:
    parser = flags.OneLineParser(prog="run")
    flags.add_flags(parser, Config)
    return vars(parser.parse_args(argv))


def help_text(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> str:
    monkeypatch.setenv("COLUMNS", "1000")
    parser = flags.OneLineParser(prog="run")
    flags.add_flags(parser, Config, **settings)
    return parser.format_help()


# --- help ----------------------------------------------------------------------------------------


def test_a_class_without_source_has_no_docs_and_still_gets_flags() -> None:
    made = dataclasses.make_dataclass("made", [("size", int, 3)], frozen=True, kw_only=True)
    assert field_docs(made) == {}
    parser = flags.OneLineParser()
    flags.add_flags(parser, made)
    assert vars(parser.parse_args(["--size", "4"])) == {"size": 4}


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


def test_a_type_that_no_flag_can_carry_is_our_own_mistake() -> None:
    made = dataclasses.make_dataclass("made", [("when", complex)], frozen=True, kw_only=True)
    with pytest.raises(TypeError, match=r"made\.when: no flag can carry a <class 'complex'>"):
        flags.add_flags(argparse.ArgumentParser(), made)


# --- values --------------------------------------------------------------------------------------


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
        (
            f"--seed {10**20}",
            f"--seed must be a whole number; got '{10**20}'; whole numbers go up to 64 bits",
        ),
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


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=30)
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
        assert from_mapping(Config, yaml.safe_load(text), source="FILE") == by_flags


# --- options of parts ---------------------------------------------------------------------------


def test_part_options_are_taken_out_of_the_arguments() -> None:
    argv = ["run", "--method.alpha", "-0.2", "--seed", "1", "--method.reg-weight=a=b", "--out=x.y"]
    rest, options = flags.split_part_options([*argv, "--method.alpha=3", "--", "--c.d", "2"])
    assert rest == ["run", "--seed", "1", "--out=x.y", "--", "--c.d", "2"]
    assert options == {"method": {"alpha": "3", "reg_weight": "a=b"}}
    values = {"alpha": "1e-3", "nesterov": "true", "sizes": "1,2"}
    assert flags.coerce(Options, values) == {"alpha": 0.001, "nesterov": True, "sizes": (1, 2)}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--method.alpha", "--method.alpha needs a value"),
        ("--metod.alpha=1", "unknown flag --metod.alpha; did you mean --method.alpha?"),
        ("--q.z=1", "unknown flag --q.z; see --help"),
        ("--method.alpha=x", "--method.alpha must be a number; got 'x'"),
        ("--method.nesterov=1", "--method.nesterov must be true or false; got '1'"),
        (
            "--method.reg-wieght=1",
            "unknown flag --method.reg-wieght; did you mean --method.reg-weight?",
        ),
        (
            "--method.zzz=1",
            "unknown flag --method.zzz; known: --method.alpha, --method.reg-weight, "
            "--method.nesterov, --method.sizes",
        ),
    ],
)
def test_a_wrong_part_option_gets_one_line(word: str, expected: str) -> None:
    def read() -> None:
        _, options = flags.split_part_options([word, "--seed"], ["method", "detector"])
        flags.coerce(Options, options["method"], part="method")

    assert complaint(read) == expected


def test_field_docs_are_the_strings_beneath_the_fields_inherited_ones_included() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Renewed(Base):
        seed: int = 7
        lr: float = 0.5
        """slower"""

    docs = field_docs(Config)
    assert list(docs) == [f.name for f in dataclasses.fields(Config)][:-1]
    assert docs["lr"] == "step size of gradient descent"
    assert field_docs(Renewed) == {"seed": "what all randomness is drawn from", "lr": "slower"}
