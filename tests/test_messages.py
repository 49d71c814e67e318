"""From Python a message names the Python argument, on the command line the flag."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_tools import complaint

import driftwise
from driftwise import RunConfig, run, write_report
from driftwise.cli.main import command
from driftwise.config.benchmarks import folder, known, npz, own
from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.runs.store import RunFolder, read_result

SOURCE = Path(driftwise.__file__).parent
OF_THE_COMMAND_LINE = (
    "cli/",
    "config/flags.py",
    "reproduce/",
    "runs/compare.py",
    "sweeps/",
)
"""modules that only commands call"""

FLAG = re.compile(r"(?<![\w-])--[a-z]")
SMALL = RunConfig(tasks=((0, 1), (2, 3)), epochs=1, max_per_class=40, num_drifts=0)


def begun(out: Path) -> Path:
    """A run that has only begun."""
    with RunFolder.open(out, resolve(RunConfig(seed=9)).to_json()):
        return out


def foreign(out: Path) -> Path:
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    return out


def resolved(**settings: Any) -> Callable[[Path], object]:
    return lambda _: resolve(RunConfig(**settings))


ERRORS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a run is there": (lambda out: run(SMALL, begun(out)), "resume=True or start anew with"),
    "both": (lambda out: run(SMALL, out, resume=True, overwrite=True), "overwrite=True exclude"),
    "another config": (lambda out: run(SMALL, begun(out), resume=True), "with overwrite=True"),
    "files": (lambda out: run(SMALL, foreign(out)), "choose an empty or new folder"),
    "unfinished": (lambda out: read_result(begun(out)), "finish it with resume=True"),
    "no folder": (lambda out: write_report(foreign(out), out), "name another folder"),
    "fingerprint": (
        resolved(reference="fingerprint", encoder="learner"),
        'encoder="random", or reference="held-out"',
    ),
    "checked": (
        resolved(monitor_labels="predicted", checked="just-drifted"),
        'checked="all-known"',
    ),
    "no harm": (resolved(min_harm=1.0, detector="oracle"), "use the detector ks"),
    "sequential": (resolved(detector="sequential", encoder="learner"), 'encoder="random"'),
    "pixels": (
        resolved(detector="reconstruction", reference="fingerprint", encoder="random"),
        'reference="held-out" or reference="memory"',
    ),
    "predicted": (
        resolved(reference="fingerprint", monitor_labels="predicted", encoder="random"),
        'reference="held-out", or monitor_labels="unknown"',
    ),
    "harm by fingerprint": (
        resolved(reference="fingerprint", min_harm=1.0, encoder="random"),
        'reference="held-out"',
    ),
    "given labels": (
        lambda _: assemble(resolve(RunConfig(detector="sequential", monitor_labels="predicted"))),
        'monitor_labels="given"',
    ),
    "digits": (lambda out: known(out, name="digits-cd"), 'benchmark="folder", data="'),
    "folder": (lambda _: folder(), 'data="FOLDER"'),
    "npz": (lambda _: npz(), 'data="FILE.npz"'),
    "own": (lambda _: own(), 'benchmark="folder", data="FOLDER"'),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_a_message_from_python_names_the_argument(kind: str, tmp_path: Path) -> None:
    call, words = ERRORS[kind]
    message = complaint(lambda: call(tmp_path / "out"))
    assert words in message
    assert not FLAG.search(message)


def test_a_warning_from_python_names_the_argument(tmp_path: Path) -> None:
    config = RunConfig(encoder="learner", reference="memory", detector="ks", monitor="test")
    message = assemble(resolve(config)).warnings
    assert any('use reference="held-out"' in warning for warning in message)
    assert any('use monitor="holdout"' in warning for warning in message)
    assert not any(FLAG.search(warning) for warning in message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run --out {out}", "go on with --resume or start anew with --overwrite"),
        ("run --out new --resume --overwrite", "--resume and --overwrite exclude each other"),
        ("run --out new --reference fingerprint --encoder learner", "--encoder random, or --refer"),
        ("run --out new --benchmark folder", "benchmark folder needs --data FOLDER, the folder"),
        ("run --out new --data {out}", "own: --benchmark folder --data "),
    ],
)
def test_the_command_line_names_the_flag(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = begun(tmp_path / "out")
    assert command(words.format(out=out).replace("new", str(tmp_path / "new")).split()) == 2
    assert message in capsys.readouterr().err


def raised() -> Iterator[tuple[str, str]]:
    """Every text in what is raised outside of the command line, and where."""
    for file in sorted(SOURCE.rglob("*.py")):
        name = str(file.relative_to(SOURCE))
        if name.startswith(OF_THE_COMMAND_LINE):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for part in ast.walk(node) if isinstance(node, ast.Raise) else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield f"{name}:{part.lineno}", part.value


def test_nothing_that_is_raised_outside_of_the_command_line_names_a_flag() -> None:
    texts = list(raised())
    assert len(texts) > 500
    allowed = "`ray start --head`"
    assert [place for place, text in texts if FLAG.search(text.replace(allowed, ""))] == []
