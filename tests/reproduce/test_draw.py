"""What is drawn from a sweep, and that nothing is left out without a warning."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from run_tools import complaint
from sweep_tools import job_of, tiny_plan

from driftwise.report.sweeps import DIGEST, digest_of_plan
from driftwise.reproduce import draw as drawing
from driftwise.reproduce.draw import draw, draw_claims
from driftwise.sweeps.job import perform
from driftwise.sweeps.plan import SWEEPS, write_plan


def nobody(line: str) -> None:
    raise AssertionError(f"no warning was expected: {line}")


class FirstTwo:
    """Stands for UMAP, whose first call compiles for most of a minute."""

    def __init__(self, **options: Any) -> None:
        assert options == {"n_components": 2, "random_state": 0, "n_jobs": 1}

    def fit_transform(self, features: np.ndarray) -> np.ndarray:
        return features[:, :2]


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    umap = ModuleType("umap")
    umap.__spec__ = ModuleSpec("umap", None)
    vars(umap)["UMAP"] = FirstTwo
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "umap", umap)
        yield


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of one run that has kept its features."""
    folder = tmp_path_factory.mktemp("drawn")
    plan = tiny_plan("mine", axes={"seed": [0]}, keep_features=True)
    assert perform(job_of(plan.runs[0], folder)).state == "done"
    write_plan(plan, folder)
    return folder


def test_a_sweep_leaves_its_table_in_every_form_and_its_feature_map(out: Path) -> None:
    drawn = draw(out / SWEEPS / "mine.json", nobody)
    names = {str(path.relative_to(out / "mine")) for path in drawn.files}
    assert {f"table.{ending}" for ending in ("txt", "csv", "md", "tex")} <= names
    assert {"figures/features.png", "figures/features.svg"} <= names
    assert all(path.stat().st_size for path in drawn.files)
    assert drawn.page == out / "index.html"


@pytest.fixture
def copy(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sweep in a folder of its own, with a figure that takes no time."""
    monkeypatch.setattr(drawing, "_figures", lambda *_: {"figures/a.png": b"png"})
    return Path(shutil.copytree(out, tmp_path / "out"))


def test_the_name_in_a_plan_leads_nowhere_else(copy: Path, tmp_path: Path) -> None:
    file = copy / SWEEPS / "mine.json"
    forged = {**json.loads(file.read_text()), "name": "../elsewhere"}
    file.write_text(json.dumps({**forged, DIGEST: digest_of_plan(forged)}))
    drawn = draw(file, nobody)
    assert not (tmp_path / "elsewhere").exists()
    assert all(each.is_relative_to(copy / "mine") for each in drawn.files)


def test_claims_come_from_the_sweeps_of_a_folder_and_need_one(out: Path, tmp_path: Path) -> None:
    drawn = draw_claims(out, nobody)
    endings = ("txt", "md", "csv", "html")
    assert {path.name for path in drawn.files} == {f"claims.{ending}" for ending in endings}
    assert "not measured" in drawn.text.lower()
    assert "holds no sweeps yet" in complaint(lambda: draw_claims(tmp_path, nobody))


@pytest.mark.parametrize("name", ["mine", "mine/figures", "claims", "pages", "sweeps"])
def test_nothing_is_drawn_or_planned_through_a_link(name: str, copy: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    draw(copy / SWEEPS / "mine.json", nobody)
    draw_claims(copy, nobody)
    (copy / name).rename(elsewhere)
    (copy / name).symlink_to(elsewhere)
    before = {file: file.stat().st_mtime_ns for file in elsewhere.rglob("*")}

    def again() -> None:
        write_plan(tiny_plan("other", axes={"seed": [0]}), copy)
        draw(copy / SWEEPS / "mine.json", nobody)
        draw_claims(copy, nobody)

    assert f"{copy / name} is a link" in complaint(again)
    assert {file: file.stat().st_mtime_ns for file in elsewhere.rglob("*")} == before


def test_damaged_features_and_plans_are_left_out_with_a_warning(out: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(out, tmp_path / "out"))
    (features,) = copy.glob("runs/*/features.safetensors")
    content = features.read_bytes()
    features.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    other = copy / SWEEPS / "other.json"
    other.write_text("{")
    warnings: list[str] = []
    drawn = draw(copy / SWEEPS / "mine.json", warnings.append)
    assert len(warnings) == 2
    assert any(line.startswith(f"{features}: damaged") for line in warnings)
    assert any(str(other) in line and line.endswith("it is left out") for line in warnings)
    assert not any(path.stem == "features" for path in drawn.files)
