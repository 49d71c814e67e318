"""`driftwise detect` on tables of feature vectors."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_tools import empty_machine
from run_tools import strict_json

from driftwise.cli.main import command

NAMES = ["width", "height", "<b>weight"]
GASES = np.array(["argon", "neon"])[np.arange(120) % 2]


def values(seed: int, *, moved: bool = False) -> np.ndarray:
    """Three features of two gases; the height of neon has moved."""
    found = np.random.default_rng(seed).normal(size=(120, 3)) * [1, 100, 1e-3]
    found[GASES == "neon", 1] += 300 * moved
    return found


def write_csv(path: Path, x: np.ndarray, order: tuple[int, ...] = (0, 1, 2), **more: Any) -> Path:
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([*(NAMES[place] for place in order), "gas", *more])
        for number, (vector, gas) in enumerate(zip(x, GASES, strict=True)):
            rest = (column[number] for column in more.values())
            lines.writerow([*(repr(float(vector[place])) for place in order), gas, *rest])
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return empty_machine(tmp_path, monkeypatch)


@pytest.fixture
def last(machine: Path) -> Path:
    return write_csv(machine / "last.csv", values(0))


def detect(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = command(["detect", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out.replace("\n  ", " "), err  # long lines are folded


def test_a_column_that_has_no_value_in_common_is_named(
    machine: Path, last: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A date makes every class differ, so that nothing is learned about any."""
    dated = write_csv(machine / "dated.csv", values(0), day=range(120))
    now = write_csv(machine / "now.csv", values(2, moved=True), day=range(500, 620))
    code, out, _ = detect(capsys, dated, now, "--label", "gas")
    assert code == 3
    assert "leave them out with --leave-out day" in out
    code, out, _ = detect(capsys, dated, now, "--label", "gas", "--leave-out", "day")
    assert code == 3
    assert "Times and ids" not in out


def test_two_tables_are_compared_and_the_features_that_moved_are_named(
    machine: Path, last: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = write_csv(machine / "this.csv", values(2, moved=True), order=(2, 1, 0))
    code, out, _ = detect(capsys, last, now, "--label", "gas", "--out", machine / "out")
    assert code == 3
    lines = out.splitlines()
    assert "features that changed most (mean over the drifted classes)" in lines
    assert (
        lines[
            lines.index("features that changed most (mean over the drifted classes)") + 3
        ].split()[0]
        == "height"
    )
    report = strict_json((machine / "out/report.json").read_text())
    assert report["drifted_classes"] == ["neon"]
    neon = report["classes"][1]
    assert (neon["features"][0]["name"], neon["num_features_changed"]) == ("height", 1)
    page = (machine / "out/index.html").read_text()
    assert ">Features</h2>" in page
    assert 'src="data:image/png' not in page, "charts, but no images"
    assert "<b>weight" not in page
    assert not (machine / "out/drift.png").exists()
    assert detect(capsys, last, last, "--label", "gas", "--quiet") == (0, "", "")


def test_kinds_of_files_may_differ_and_labels_may_be_missing(
    machine: Path, last: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(machine / "this.npz", readings=values(2, moved=True), gas=GASES)
    np.save(machine / "this.npy", values(2, moved=True))
    for file in ("this.npz", "this.npy"):
        code, out, _ = detect(capsys, machine / file, machine / file, "--no-labels", "--json")
        assert (code, strict_json(out)["classes"][0]["name"]) == (0, "all samples")
    code, out, _ = detect(capsys, last, machine / "this.npz", "--label", "gas", "--json")
    assert (code, strict_json(out)["drifted_classes"]) == (3, ["neon"])


def test_columns_are_chosen_or_left_out(
    machine: Path, last: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = write_csv(machine / "this.csv", values(2, moved=True), id=range(120))
    flags = ("--label", "gas", "--json")
    code, out, _ = detect(capsys, last, now, *flags)
    assert (code, strict_json(out)["not_compared"]) == (3, ["id"])
    code, out, _ = detect(capsys, last, now, *flags, "--features", "width,<b>weight")
    assert (code, strict_json(out)["not_compared"]) == (0, [])
    assert detect(capsys, now, now, *flags, "--leave-out", "id,height")[0] == 0


def test_an_encoder_may_lie_in_the_working_folder(
    machine: Path, last: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine)
    (machine / "own_squares.py").write_text("def squares(x):\n    return x.square()\n")
    wider = write_csv(machine / "this.csv", 3 * values(2))
    words = (last, wider, "--label", "gas", "--detector", "mmd", "--encoder", "own_squares:squares")
    code, out, _ = detect(capsys, *words)
    assert code == 3
    assert "encoder: own_squares.squares" in out


def test_vectors_are_verified_and_shown(
    machine: Path, last: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(machine / "x.npz", features=values(0), labels=GASES)
    assert command(["data", "verify", str(machine / "x.npz")]) == 0
    assert "argon" in capsys.readouterr().out
    sheet = machine / "x.png"
    assert command(["data", "show", str(machine / "x.npz"), "--out", str(sheet)]) == 0
    assert sheet.read_bytes().startswith(b"\x89PNG")


REFUSED: dict[str, tuple[list[str], str]] = {
    "no labels": (
        ["last.csv", "last.csv"],
        "has no column 'label' of classes; it has width, height",
    ),
    "no such column": (["last.csv", "last.csv", "--label", "gaz"], "--label NAME, or compare all"),
    "text": (["last.csv", "last.csv", "--no-labels"], "column 'gas' holds text such as 'argon'"),
    "both": (["last.csv", "last.csv", "--no-labels", "--label", "gas"], "not both"),
    "a missing column": (
        ["last.csv", "narrow.csv", "--label", "gas"],
        "the current samples: the feature 'width' of the reference is missing; there are height",
    ),
    "dimensions": (
        ["two.npy", "three.npy", "--no-labels"],
        "vectors of 2, the current ones vectors of 3",
    ),
    "images": (["last.csv", "images.npz", "--label", "gas"], "label can be set for a table only"),
    "kinds": (["two.npy", "images.npz", "--no-labels"], "the reference holds vectors"),
    "size": (["two.npy", "two.npy", "--no-labels", "--size", "8"], "for folders of images only"),
    "scaling": (["two.npy", "two.npy", "--no-labels", "--scaling", "log"], "unknown scaling 'log'"),
    "a line": (["torn.csv", "last.csv", "--label", "gas"], "line 3 has 2 values, expected 4"),
    "a gap": (
        ["gap.csv", "last.csv", "--label", "gas"],
        "column 'height' has no finite number in 1",
    ),
    "no class to test": (["one.csv", "one.csv", "--label", "gas"], "no class could be tested"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_tables_are_refused_in_one_line(
    words: list[str], message: str, machine: Path, last: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = last.read_text().splitlines()
    (machine / "torn.csv").write_text("\n".join([*lines[:2], "1,2"]))
    (machine / "gap.csv").write_text("\n".join([*lines[:9], "1,,2,neon"]))
    (machine / "one.csv").write_text("\n".join(lines[:3]))
    write_csv(machine / "narrow.csv", values(0), order=(1, 2))
    np.savez(machine / "images.npz", images=np.zeros((9, 8, 8), np.uint8), labels=np.zeros(9, int))
    for name, width in (("two", 2), ("three", 3)):
        np.save(machine / f"{name}.npy", np.random.default_rng(0).normal(size=(20, width)))
    paths = [str(machine / word) if "." in word else word for word in words]
    code, _, err = detect(capsys, *paths)
    assert code == 2
    assert message in " ".join(err.split())
