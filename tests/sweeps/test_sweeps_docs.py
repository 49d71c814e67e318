"""docs/how-to/sweeps.md is true: its grid and its commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from driftwise.cli.main import command

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "sweeps.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in re.findall(r"^driftwise (.+)$", block.replace("\\\n", " "), re.MULTILINE)
]
SETTINGS = [
    shlex.split(words) for words in re.findall(r"`(--set [^`]+)`", PAGE) if "KEY" not in words
]


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the page's grid, under the name that its first line says."""
    (grid,) = re.findall(r"```yaml\n# buffers.yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "buffers.yaml").write_text(grid)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_of_the_page_is_one(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if "claims" in words:  # lists no runs; without sweeps it says so
        assert command(words) == 2
        assert "holds no sweeps yet" in capsys.readouterr().err
        return
    assert command([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("words", SETTINGS, ids=" ".join)
def test_every_setting_of_the_page_is_one(words: list[str]) -> None:
    assert command(["reproduce", "own-concepts", "--scale", "smoke", *words, "--dry-run"]) == 0


def test_the_page_has_commands_and_settings() -> None:
    assert len(COMMANDS) >= 8
    assert len(SETTINGS) >= 2
