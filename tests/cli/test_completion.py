"""`driftwise completion`: what a shell offers is what the command line takes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from driftwise.cli import main as cli
from driftwise.cli.completion import SHELLS, bash, fish, levels, zsh
from driftwise.config.registry import CATALOGUE

FOUND = levels(cli.parser())


def test_every_command_and_every_flag_is_known() -> None:
    top = FOUND["driftwise"].commands
    assert {"run", "detect", "data", "doctor", "completion"} <= top.keys()
    assert all(f"driftwise {name}" in FOUND for name in top)
    assert FOUND["driftwise run"].values["--method"] == list(CATALOGUE["method"])
    assert "--severity" in FOUND["driftwise run"].flags
    assert "fetch" in FOUND["driftwise data"].commands


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("driftwise de", ["demo", "detect"]),
        ("driftwise run --method cls", ["cls-er"]),
        ("driftwise run --seve", ["--severity"]),
        ("driftwise data ver", ["verify"]),
        ("driftwise list met", ["method"]),
    ],
)
def test_bash_completes(words: str, offered: list[str], tmp_path: Path) -> None:
    script = tmp_path / "driftwise.bash"
    script.write_text(bash(FOUND))
    given = words.split(" ")
    lines = (
        f"source {script}; COMP_WORDS=({words}); COMP_CWORD={len(given) - 1}; _driftwise;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text({"zsh": zsh, "fish": fish}[shell](FOUND))
    assert "cls-er" in script.read_text()
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True)


def test_the_command_prints_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        assert cli.command(["completion", shell]) == 0
        assert f"Completion of driftwise for {shell}" in capsys.readouterr().out
    assert cli.command(["completion", "tcsh"]) == 2
