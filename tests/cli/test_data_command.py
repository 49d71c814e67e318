"""`driftwise data` from the command line's side."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from data_tools import (
    empty_machine,
    serving,
    write_fashion_mnist,
    write_images,
    write_pacs,
)
from PIL import Image
from run_tools import strict_json

from driftwise.cli.data import add_data_command
from driftwise.config.flags import OneLineParser
from driftwise.datasets.catalogue import KNOWN, RemoteFile
from driftwise.errors import UserError


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return strict_json(self.out)


Command = Callable[..., Outcome]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_machine(tmp_path, monkeypatch)


@pytest.fixture
def data(machine: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `driftwise data ...` as the command line does."""

    def run(*words: object, options: dict[str, dict[str, str]] | None = None) -> Outcome:
        top = OneLineParser(prog="driftwise")
        add_data_command(top.add_subparsers(metavar="COMMAND", required=True))
        arguments = top.parse_args(["data", *map(str, words)])
        arguments.options = options or {}
        code = arguments.call(arguments)
        return Outcome(code, *capsys.readouterr())

    return run


def test_the_list_has_a_line_per_data_set(data: Command, machine: Path) -> None:
    folder = write_fashion_mnist(machine / "home/data/fashion-mnist")
    outcome = data("list")
    assert (outcome.code, outcome.err) == (0, "")
    lines = {line.split()[0]: line for line in outcome.out.splitlines()[2:]}
    assert list(lines) == list(KNOWN)
    assert lines["fashion-mnist"].endswith(str(folder))
    assert "MIT" in lines["fashion-mnist"]
    assert "inside a package" in lines["digits"]
    assert "169 MB" in lines["cifar-100"]
    assert "driftwise data fetch cifar-100" in lines["cifar-100"]
    assert "by hand" in lines["pacs"]


def test_the_list_as_json_has_every_fact(data: Command, machine: Path) -> None:
    folder = write_pacs(machine / "work/data/pacs")
    listed = {line["name"]: line for line in data("list", "--json").json}
    assert list(listed) == list(KNOWN)
    assert listed["pacs"]["path"] == str(folder)
    assert listed["pacs"]["bytes_on_disk"] > 0
    assert listed["pacs"]["can_be_fetched"] is False
    assert listed["cifar-10"]["is_here"] is False
    assert listed["cifar-10"]["download_bytes"] == 170_498_071
    assert {line["licence"] for line in listed.values()} >= {"MIT", "CC BY 4.0"}


def test_fetch_puts_a_set_where_the_list_finds_it(
    data: Command, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_fashion_mnist(machine / "server")
    with serving(folder) as url:
        files = tuple(
            RemoteFile(url=f"{url}/{file.name}", md5=hashlib.md5(file.read_bytes()).hexdigest())
            for file in folder.iterdir()
        )
        known = replace(KNOWN["fashion-mnist"], files=files)
        monkeypatch.setitem(KNOWN, "fashion-mnist", known)
        outcome = data("fetch", "fmnist-cd", "--json")
    place = machine / "home/.local/share/driftwise/fashion-mnist"
    assert outcome.json == {"name": "fashion-mnist", "path": str(place)}
    assert outcome.code == 0
    assert "downloading train-images-idx3-ubyte.gz" in outcome.err
    assert str(place) in data("list").out
    again = data("fetch", "fashion-mnist")
    assert again.out == f"fashion-mnist is in {place}\n"
    assert again.err == ""


def test_verify_counts_and_says_that_all_is_well(data: Command, machine: Path) -> None:
    write_pacs(machine / "sets")
    outcome = data("verify", "pacs", "--data", machine / "sets")
    assert outcome.code == 0
    table = [line.split() for line in outcome.out.splitlines()]
    assert ["class", "all", "art_painting", "cartoon", "photo", "sketch"] in table
    assert ["dog", "8", "2", "2", "2", "2"] in table
    assert ["total", "16", "4", "4", "4", "4"] in table
    assert outcome.out.endswith("\nsound\n")
    assert "decoding pacs" in outcome.err


def test_verify_exits_with_1_when_something_is_wrong(data: Command, machine: Path) -> None:
    folder = write_pacs(machine / "sets")
    bad = folder / "photo/dog/1.png"
    bad.write_bytes(b"")
    for words in (("pacs", "--data", folder), (folder,)):
        outcome = data("verify", *words)
        assert outcome.code == 1
        assert f"problem: cannot use {bad}: it is empty" in outcome.out
        assert outcome.out.endswith("1 problems\n")


def test_show_draws_a_sheet_of_a_set_a_benchmark_or_a_path(data: Command, machine: Path) -> None:
    folder = write_pacs(machine / "sets")
    (machine / "pets").mkdir()
    write_images(machine / "pets/cats", 1, side=8)
    write_images(machine / "pets/dogs", 1, side=9)
    for words, name in (
        (("digits",), "digits.png"),
        (("pacs-cd", "--data", folder), "pacs.png"),
        ((folder, "--out", "deep/sheet.png"), "deep/sheet.png"),
        ((machine / "pets", "--size", 8, "--classes", 1), "pets.png"),
    ):
        outcome = data("show", *words)
        assert (outcome.code, outcome.out) == (0, f"the contact sheet: {name}\n")
        with Image.open(machine / "work" / name) as image:
            assert image.format == "PNG"


def test_a_table_is_verified_and_shown_by_its_columns(data: Command, machine: Path) -> None:
    table = machine / "readings.csv"
    lines = [f"{i % 7},{i * i % 11},{'ab'[i % 2]},{2020 + i // 20}" for i in range(40)]
    table.write_text("\n".join(["x,y,gas,year", *lines]))
    columns = ("--label", "gas", "--domain", "year")
    counts = data("verify", table, *columns, "--json").json["counts"]
    assert counts == {
        part: {"a": n, "b": n} for part, n in (("all", 20), ("2020", 10), ("2021", 10))
    }
    sizes = []
    for words in (columns, ("--label", "gas", "--classes", "1")):
        assert data("show", table, *words).code == 0
        with Image.open(machine / "work/readings.png") as image:
            sizes.append(image.size)
    assert sizes[0][0] > sizes[1][0], "a panel for each domain"
    with pytest.raises(UserError, match="say by `label`"):
        data("show", table)
    with pytest.raises(UserError, match="your own table"):
        data("verify", "digits", "--label", "gas")


def test_a_class_whose_name_is_no_text_is_listed_and_shown(data: Command, machine: Path) -> None:
    for name in (b"caf\xe9", b"dogs"):
        write_images(machine / "pets" / os.fsdecode(name), 2)
    assert "caf\\udce9" in data("verify", machine / "pets").out
    assert data("verify", machine / "pets", "--json").json["counts"]["all"]["caf\udce9"] == 2
    assert data("show", machine / "pets").code == 0
    with Image.open(machine / "work/pets.png") as image:
        assert image.format == "PNG"


def test_show_lists_files_that_are_left_out(data: Command, machine: Path) -> None:
    for name in ("cats", "dogs"):
        write_images(machine / "pets" / name, 2)
    (machine / "pets/cats/a.jfif").write_bytes(b"x")
    message = f"1 file is no image by name and left out: {machine / 'pets/cats/a.jfif'}"
    assert message in data("show", machine / "pets").err


def test_quiet_prints_nothing(data: Command, machine: Path) -> None:
    write_pacs(machine / "sets")
    for action in ("verify", "show"):
        outcome = data(action, "pacs", "--data", machine / "sets", "--quiet")
        assert (outcome.code, outcome.out, outcome.err) == (0, "", "")


MISTAKES: dict[str, tuple[list[str], str]] = {
    "no action": ([], "ACTION"),
    "unknown action": (["lst"], "did you mean list"),
    "unknown name": (["verify", "cifar10"], "did you mean 'cifar-10'.*nor is there such a path"),
    "unknown name to fetch": (["fetch", "cifar10"], "did you mean 'cifar-10'"),
    "nothing to fetch": (["fetch", "digits"], "inside a package"),
    "nowhere": (["show", "cifar-10"], "cifar-10 was not found"),
    "data with a path": (["show", ".", "--data", "."], "--data goes with the name"),
    "data with an embedded set": (["verify", "digits", "--data", "x"], "leave out x"),
    "data to show an embedded set": (["show", "digits", "--data", "x"], "leave out x"),
    "size of a known set": (["show", "digits", "--size", "9"], "a size of its own"),
    "no image format": (["show", "digits", "--out", "x.jpg"], r"a \.png file"),
    "unknown flag": (["list", "--jsn"], "did you mean --json"),
}


@pytest.mark.parametrize(("words", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_reported(data: Command, words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        data(*words)
