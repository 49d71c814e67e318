"""The worked examples run, in their short form, wherever their data is."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from run_tools import ENVIRONMENT

from driftwise.datasets import library

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGES = {"yearbook": (), "pacs": ("efficientnet_lite_pytorch",)}


def run(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, words)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def numbers_of(table: str) -> dict[str, list[float]]:
    """The table's numbers by way: accuracy of each part and of all, spread, labels."""
    found = {}
    for name in (
        "labels where drift is found (amr)",
        "as many labels, evenly",
        "no labels (vanilla)",
    ):
        (line,) = re.findall(rf"^{re.escape(name)} +(.+)$", table, re.MULTILINE)
        found[name.split()[0]] = [float(word.replace(",", "")) for word in line.split()]
    return found


@pytest.mark.parametrize("name", ["yearbook", "pacs"])
def test_the_short_form_prints_a_table_and_draws_a_figure(name: str, tmp_path: Path) -> None:
    if library.find(name) is None:
        pytest.skip(f"{name} is not on this machine; DRIFTWISE_DATA names where it lies")
    if missing := [each for each in PACKAGES[name] if importlib.util.find_spec(each) is None]:
        pytest.skip(f"{missing[0]} is not installed: pip install 'driftwise[imagenet]'")
    done = run(name, "--short", "--figure", tmp_path / "figure.png")
    assert done.returncode == 0, done.stderr
    numbers = numbers_of(done.stdout)
    assert all(0 < share <= 100 for sample in numbers.values() for share in sample[:-2])
    asked, evenly, none = (numbers[way] for way in ("labels", "as", "no"))
    assert asked[-1] == evenly[-1] > none[-1] == 0
    with Image.open(tmp_path / "figure.png") as image:
        assert image.width > 1000


def test_people_at_the_inbox_raise_the_accuracy(tmp_path: Path) -> None:
    if library.find("pacs") is None:
        pytest.skip("pacs is not on this machine; DRIFTWISE_DATA names where it lies")
    if importlib.util.find_spec("efficientnet_lite_pytorch") is None:
        pytest.skip("efficientnet_lite_pytorch is not installed: pip install 'driftwise[imagenet]'")
    done = run("serve_pacs", "--short", "--figure", tmp_path / "figure.png")
    assert done.returncode == 0, done.stderr
    nobody, one, three = ([*map(float, line.split())] for line in done.stdout.splitlines()[1:4])
    assert nobody[-2:] == [0, 0]
    assert 0 < one[-2] <= three[-2]
    assert three[-3] > nobody[-3]


@pytest.mark.parametrize("name", ["yearbook", "pacs", "serve_pacs"])
def test_without_its_data_an_example_says_so_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library.find(name.removeprefix("serve_")) is not None:
        pytest.skip(f"{name} is on this machine")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, "--short", "--figure", str(tmp_path / "figure.png")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert re.fullmatch(r".+ was not found: see `driftwise data list`.+", str(ended.value.code))
