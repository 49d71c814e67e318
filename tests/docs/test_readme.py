"""The README is true: its tree, its commands and its code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from driftwise.cli import main as cli
from driftwise.config.flags import split_part_options
from driftwise.config.schema import PARTS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def commands() -> list[list[str]]:
    """Every `driftwise ...` command line of the README, without its comment."""
    found = re.findall(r"^    driftwise (.+)$", README, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]


def python_blocks() -> list[str]:
    """From Python, on images of one's own, live, and parts of one's own: the README's four."""
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def save_photos(folder: Path) -> None:
    """Two classes that can be told apart, in the layout that the README speaks of."""
    for number, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for shot in range(60):
            image = Image.new("RGB", (40, 36), (200 * number, 4 * shot, 90))
            image.save(folder / name / f"{shot}.jpg")


def test_the_tree_in_contributing_names_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tree = text.partition("    src/driftwise/\n")[2].partition("\n\n")[0]
    listed = set(re.findall(r"^      (\w+)/", tree, re.MULTILINE))
    package = ROOT / "src" / "driftwise"
    assert listed == {file.parent.name for file in package.glob("*/__init__.py")}


def test_there_are_two_commands_to_begin_with() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert re.search(rf"^    make {target}\b", README, re.MULTILINE)
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_parses(words: list[str]) -> None:
    rest, _ = split_part_options(words, PARTS)
    cli.parser().parse_args(rest)


def test_the_readme_has_commands_and_code_to_check() -> None:
    assert len(commands()) >= 12
    assert len(python_blocks()) == 4


def test_the_python_example_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", python_blocks()[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "'adaptation'" in done.stdout


def test_images_of_ones_own_take_five_lines_or_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    save_photos(tmp_path / "photos")
    code = python_blocks()[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 5
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["result"]["class_names"] == ["cat", "dog"]

    (yaml,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "photos.yaml").write_text(yaml)
    words = ["run", "--config", "photos.yaml", "--out", "runs/photos-from-file", "--quiet"]
    assert " ".join(words[:-1]) in README
    assert cli.command(words) == 0
    result = json.loads((tmp_path / "runs/photos-from-file/result.json").read_text())
    (event,) = result["drift_events"]
    assert (event["transform"], event["kind"]) == ("rotation+gaussian-noise", "partial")


@pytest.mark.parametrize("seed", [0, 1, 2])  # ten: benchmarks/live_accuracy.py --readme
def test_a_keeper_keeps_what_the_readme_promises(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    assert "seed = load_digits(), 0\n" in python_blocks()[2]
    exec(python_blocks()[2].replace("load_digits(), 0\n", f"load_digits(), {seed}\n"), found)
    assert found["held_out"] > 0.9
    assert found["keeper"].num_samples == 1500
    said = capsys.readouterr().out
    assert "driftwise_samples_total 1500" in said
    assert "driftwise_drifts_total 0" in said
    assert (tmp_path / "runs/live/checkpoint.safetensors").is_file()


def test_parts_of_ones_own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_parts.py").write_text(python_blocks()[3])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = [words for words in commands() if any("my_parts:" in word for word in words)]
    assert len(own) == 3
    for words in own:
        assert cli.command([*words, "--quiet"]) == 0


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
