from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_tools import complaint
from sweep_tools import TINY, tiny_plan

from driftwise import RunConfig
from driftwise.adapt.vanilla import Vanilla
from driftwise.cli import main as cli
from driftwise.config.presets import resolve
from driftwise.datasets import paths
from driftwise.datasets.catalogue import KNOWN
from driftwise.report.sweeps import read_sweep
from driftwise.reproduce.charts import scale_words
from driftwise.reproduce.paper_table import paper_table
from driftwise.sweeps import plan as plans
from driftwise.sweeps.grid import Grid
from driftwise.sweeps.plan import Plan, make_plan, run_id, write_plan
from driftwise.sweeps.scale import SCALES


def tiny(**axes: Any) -> Plan:
    return tiny_plan(axes=axes)


def test_every_place_of_the_grid_has_a_run_that_is_resolved() -> None:
    plan = tiny(method=["er", "ser"], buffer_size=[20, 40])
    expected = [(method, size) for method in ("er", "ser") for size in (20, 40)]
    assert [(run.place["method"], run.place["buffer_size"]) for run in plan.runs] == expected
    assert all(run.config == resolve(run.config) for run in plan.runs)
    assert len({run.id for run in plan.runs}) == 4


def test_runs_get_one_thread_unless_the_grid_says_otherwise() -> None:
    generic: dict[str, Any] = {"benchmark": "cifar10-cd"}
    one, four = (
        make_plan("p", Grid(axes={"seed": [0]}, base={**generic, **extra})).runs[0]
        for extra in ({}, {"threads": 4})
    )
    assert (one.config.threads, four.config.threads) == (1, 4)


def test_a_setting_that_cannot_run_is_refused_before_anything_begins() -> None:
    assert "did you mean 'er'" in complaint(lambda: tiny(method=["er", "err"]))
    assert "unknown key 'epoch'" in complaint(
        lambda: make_plan("p", Grid(axes={"seed": [0]}, base={"epoch": 1}))
    )
    assert "num_drifts" in complaint(lambda: tiny(num_drifts=[-1]))
    assert "level" in complaint(lambda: tiny(**{"detector.level": [float("nan")]}))


@pytest.mark.parametrize("name", ["", "a b", "../up", "a/b", "-flag", ".hidden", "x" * 81, "é"])
def test_a_sweep_has_a_name_that_can_be_a_file(name: str) -> None:
    assert "a sweep's name" in complaint(lambda: tiny_plan(name, axes={"seed": [0]}))


TAKEN = ["index.html", "runs", "sweeps", "claims", "pages", "failures", "theory-digits-cd", "Runs"]


@pytest.mark.parametrize("name", TAKEN)
def test_a_sweep_is_not_called_like_something_else_in_its_folder(name: str) -> None:
    line = complaint(lambda: tiny_plan(name, axes={"seed": [0]}))
    assert f"cannot be called {name}" in line
    assert "--name" in line


def test_a_grid_that_is_far_too_large_is_refused_with_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plans, "MOST_RUNS", 4)
    assert len(tiny(seed=range(4)).runs) == 4
    line = complaint(lambda: tiny(seed=range(1000), buffer_size=range(1, 1001)))
    assert "more than 4 runs (its axes make 1,000,000)" in line
    rule = [{"seed": range(2, 9)}]
    assert len(make_plan("p", Grid(axes={"seed": range(9)}, base=TINY, without=rule)).runs) == 2


def test_one_run_at_two_places_is_refused() -> None:
    line = complaint(lambda: tiny(buffer_size=[None, 100]))  # 100 is the preset's
    assert "one run at two places" in line
    assert "without" in line


def test_an_option_is_named_without_its_part_where_that_is_clear() -> None:
    clear = tiny(**{"detector.level": [0.01, 0.1]})
    assert [run.place["level"] for run in clear.runs] == [0.01, 0.1]
    axes = {"detector": ["oracle"], "detector.tpr": [0.5], "method": ["er"]}
    assert set(tiny(**axes).runs[0].place) == {*plans.ALWAYS, "detector", "tpr"}


def test_a_place_says_what_tables_ask_for_also_where_the_grid_does_not() -> None:
    place = tiny(epochs=[1]).runs[0].place
    assert place == {
        "benchmark": "digits-cd",
        "method": "er",
        "buffer_size": 100,
        "num_drifts": 1,
        "adaptation": "vanilla",
        "seed": 0,
        "epochs": 1,
    }


def test_options_of_two_parts_by_the_same_name_keep_their_parts() -> None:
    grid = Grid(axes={"backbone.width": [8], "method.width": [1]})
    assert plans.names_in_places(grid) == {key: key for key in grid.axes}
    seed = Grid(axes={"detector.seed": [1], "detector.level": [0.1]})
    assert plans.names_in_places(seed) == {
        "detector.seed": "detector.seed",
        "detector.level": "level",
    }


# Ids


def test_the_same_config_has_the_same_id_whatever_grid_it_comes_from() -> None:
    by_axes = tiny(method=["er"], buffer_size=[30], seed=[2]).runs[0]
    by_base = tiny_plan("other", axes={"seed": [2]}, method="er", buffer_size=30).runs[0]
    assert by_axes.id == by_base.id
    assert by_axes.config == by_base.config


CHANGES: list[dict[str, Any]] = [
    {"method": "ser"},
    {"seed": 1},
    {"buffer_size": 7},
    {"lr": 0.123},
    {"epochs": 2},
    {"detector": "mmd"},
    {"options": {"detector": {"level": 0.011}}},
    {"tasks": ((0, 1), (2, 4))},
    {"num_drifts": 0},
    {"drift_seed": 9},
    {"threads": 2},
    {"keep_features": True},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: "-".join(change))
def test_every_setting_that_decides_the_result_is_in_the_id(change: dict[str, Any]) -> None:
    base = RunConfig(epochs=1, tasks=((0, 1), (2, 3)))
    assert run_id(resolve(replace(base, **change))) != run_id(resolve(base))


def test_where_a_benchmark_lies_makes_no_other_run() -> None:
    config = resolve(RunConfig(benchmark="cifar10-cd"))
    moved = replace(config, data="elsewhere", data_identity="0" * 64)
    assert run_id(moved) == run_id(config)


@pytest.mark.parametrize("kind", ["npz", "folder", "my_parts:Pictures"])
def test_other_data_of_ones_own_make_another_run(kind: str) -> None:
    config = RunConfig(benchmark=kind, data="here.npz")
    assert run_id(replace(config, data="there.npz")) != run_id(config)


def test_an_id_is_a_folder_name_that_says_what_runs() -> None:
    config = RunConfig(method="my.parts:Own", buffer_size=5, num_drifts=2, seed=3)
    assert run_id(config)[:-11] == "digits-cd-my-parts-Own-amr-b5-d2-s3"
    assert "/" not in run_id(replace(config, benchmark="a/../b"))


def test_a_setting_left_as_it_is_does_not_enter_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve(RunConfig())
    before = run_id(config)
    plain = RunConfig.to_json
    monkeypatch.setattr(RunConfig, "to_json", lambda self: {**plain(self), "later": None})
    defaults = plans._defaults()
    monkeypatch.setattr(plans, "_defaults", lambda: {**defaults, "later": None})
    assert run_id(config) == before


def test_ids_of_runs_made_before_presets_chose_detectors_stay() -> None:
    assert run_id(resolve(RunConfig())) == "digits-cd-er-amr-b100-d1-s0-523b54793a"
    assert run_id(resolve(RunConfig(detector="mmd"))).endswith("-2072ec5aed")


@pytest.mark.parametrize(
    ("method", "adaptation", "other"),
    [("der++", "amr", True), ("ser", "amr-plus", True), ("er", "amr", False), ("ser", "fr", False)],
)
def test_how_logits_are_recomputed_makes_another_run_only_where_any_are(
    method: str, adaptation: str, other: bool
) -> None:
    config = resolve(RunConfig(method=method, adaptation=adaptation))
    published = replace(config, realigned_logits="training")
    assert (run_id(config) != run_id(published)) == other


def test_data_that_are_read_in_another_way_make_another_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = RunConfig(benchmark="fmnist-cd")
    before = run_id(config)
    known = KNOWN["fashion-mnist"]
    monkeypatch.setitem(KNOWN, known.name, replace(known, version=known.version + 1))
    assert run_id(config) != before
    assert KNOWN["tiny-imagenet"].version > 1, "1 numbered its classes by sorted ids"


# Files


def test_a_plan_is_what_the_report_reads(tmp_path: Path) -> None:
    plan = tiny(method=["er", "ser"], seed=[0, 1])
    file = write_plan(plan, tmp_path)
    assert file == tmp_path / "sweeps" / "tiny.json"
    sweep = read_sweep(file)
    assert (sweep.name, sweep.scale, sweep.num_done) == ("tiny", "own", 0)
    assert [entry.id for entry in sweep.entries] == [run.id for run in plan.runs]
    assert [entry.seed for entry in sweep.entries] == [0, 1, 0, 1]


def test_the_same_plan_again_leaves_the_file_alone(tmp_path: Path) -> None:
    # From Python a base may hold tuples, which a file holds as lists.
    grid = Grid(axes={"seed": range(2)}, base={**TINY, "tasks": ((0, 1), (2, 3))})
    file = write_plan(make_plan("p", grid), tmp_path)
    before = file.stat().st_mtime_ns
    assert write_plan(make_plan("p", grid), tmp_path) == file
    assert file.stat().st_mtime_ns == before
    assert [path.name for path in file.parent.iterdir()] == ["p.json"]


def test_a_sweep_planned_with_weights_is_not_taken_up_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "resnet18.safetensors"
    weights.touch()
    monkeypatch.setenv("DRIFTWISE_RESNET18", str(weights))
    grid = Grid(axes={"seed": range(2)}, base={**TINY, "preset": "published"})
    write_plan(make_plan("p", grid), tmp_path)
    monkeypatch.delenv("DRIFTWISE_RESNET18")
    monkeypatch.setattr(paths, "candidates", lambda hints, *, explicit=None: [])
    line = complaint(lambda: write_plan(make_plan("p", grid), tmp_path))
    assert "(2 runs differ, as in encoder: resnet18-imagenet there, random here)" in line


def test_another_plan_of_the_same_name_is_refused_unless_it_may_replace(tmp_path: Path) -> None:
    file = write_plan(tiny(seed=[0]), tmp_path)
    before = file.read_bytes()
    other = tiny(seed=[0, 1])
    line = complaint(lambda: write_plan(other, tmp_path))
    assert "another grid" in line
    assert "--overwrite" in line
    assert file.read_bytes() == before
    write_plan(other, tmp_path, overwrite=True)
    assert len(json.loads(file.read_text())["runs"]) == 2


def test_data_that_have_moved_are_no_other_plan(tmp_path: Path) -> None:
    def plan(**base: Any) -> Plan:
        return make_plan("p", Grid(axes={"seed": [0]}, base={"benchmark": "cifar10-cd", **base}))

    places: list[dict[str, Any]] = [{"data": "/mnt/a"}, {"data": "/home/b"}, {}]
    for base in places:
        written = json.loads(write_plan(plan(**base), tmp_path).read_text())
        assert written["runs"][0]["config"]["data"] == base.get("data")
    own = [
        make_plan("own", Grid(axes={"seed": [0]}, base={"benchmark": "npz", "data": name}))
        for name in ("here.npz", "there.npz")
    ]
    write_plan(own[0], tmp_path)
    assert "another grid" in complaint(lambda: write_plan(own[1], tmp_path))


def test_a_note_in_other_words_is_no_other_plan_and_is_replaced(tmp_path: Path) -> None:
    plan = make_plan("p", Grid(axes={"seed": [0]}), scale=SCALES["smoke"])
    file = write_plan(plan, tmp_path)
    there = json.loads(file.read_text())
    del there["sha256"]  # as earlier versions left it
    there["scale"]["note"] = "as an older version put it"
    file.write_text(json.dumps(there))
    assert read_sweep(file).scale_note == "as an older version put it"
    write_plan(plan, tmp_path)
    assert read_sweep(file).scale_note == plan.scale_note
    other = make_plan("p", Grid(axes={"seed": [0]}), scale=SCALES["small"])
    assert other.runs == plan.runs  # digits are small as they are
    assert "another scale: smoke" in complaint(lambda: write_plan(other, tmp_path))


def test_what_was_changed_by_hand_stands_on_table_and_figures(tmp_path: Path) -> None:
    changed = {"detector": "oracle", "backbone": {"name": "mlp", "hidden": [8]}}
    grid = Grid(axes={"seed": [0]}, base=changed)
    plan = make_plan("p", grid, scale=SCALES["smoke"], changed=changed)
    sweep = read_sweep(write_plan(plan, tmp_path))
    told = 'changed by --set: detector=oracle, backbone={"name": "mlp", "hidden": [8]}'
    assert told in " ".join(paper_table(sweep).about)
    assert told in scale_words(sweep, [])


def test_a_plan_with_other_runs_behind_the_same_grid_is_refused(tmp_path: Path) -> None:
    file = write_plan(tiny(seed=[0]), tmp_path)
    there = json.loads(file.read_text())
    del there["sha256"]  # as earlier versions left it
    there["runs"][0]["id"] = "digits-cd-of-another-version"
    file.write_text(json.dumps(there))
    line = complaint(lambda: write_plan(tiny(seed=[0]), tmp_path))
    assert "other settings behind the same grid (1 runs differ)" in line


def test_a_setting_that_an_older_version_did_not_know_is_no_other_plan(tmp_path: Path) -> None:
    file = write_plan(tiny(seed=[0]), tmp_path)
    there = json.loads(file.read_text())
    del there["sha256"]  # as earlier versions left it
    del there["runs"][0]["config"]["lr_floor"]
    file.write_text(json.dumps(there))
    write_plan(tiny(seed=[0]), tmp_path)
    assert "lr_floor" in json.loads(file.read_text())["runs"][0]["config"]


@pytest.mark.parametrize("there", [{"format": 99, "runs": ["?"]}, {"name": "tiny"}])
def test_a_plan_of_another_format_is_refused_unless_it_may_be_replaced(
    tmp_path: Path, there: dict[str, Any]
) -> None:
    file = tmp_path / "sweeps" / "tiny.json"
    file.parent.mkdir()
    file.write_text(json.dumps(there))
    assert "of another version" in complaint(lambda: write_plan(tiny(seed=[0]), tmp_path))
    write_plan(tiny(seed=[0]), tmp_path, overwrite=True)
    assert read_sweep(file).name == "tiny"


@pytest.mark.parametrize("half", ["", '{"format": 1, "runs": [', "[1]"])
def test_half_a_plan_is_written_anew(tmp_path: Path, half: str) -> None:
    file = write_plan(tiny(seed=[0]), tmp_path)
    whole = file.read_bytes()
    file.write_text(half)
    write_plan(tiny(seed=[0]), tmp_path)
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_to_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = complaint(lambda: write_plan(tiny(seed=[0]), tmp_path / "file"))
    assert "choose another --out" in line


# --- custom parts -------------------------------------------------------------------------------

EDITED = """
from driftwise.adapt.vanilla import Vanilla
from driftwise.types import AdaptationResult
from edited_helper import NOTE

class Part(Vanilla):
    def adapt(self, drifted, context):
        return AdaptationResult(notes=(NOTE,))
"""


def test_a_sweep_with_an_edited_part_is_run_anew_and_one_without_edits_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "edited_parts.py").write_text(EDITED)
    base = {**TINY, "max_per_class": 10}
    del base["adaptation"]
    grid = {"base": base, "grid": {"adaptation": ["vanilla", "edited_parts:Part"]}}
    (tmp_path / "grid.json").write_text(json.dumps(grid))

    def sweep(note: str) -> set[str]:
        """Run it as a new process would; the notes of all results."""
        (tmp_path / "edited_helper.py").write_text(f"NOTE = {note!r}\n")
        for name in ("edited_parts", "edited_helper"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        assert cli.command(["sweep", "grid.json", "--engine", "in-process", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["total"], told["done"]) == (2, 2)
        plan = json.loads((tmp_path / "runs/grid/sweeps/grid.json").read_text())
        folders = [tmp_path / "runs/grid/runs" / run["id"] for run in plan["runs"]]
        results = [json.loads((folder / "result.json").read_text()) for folder in folders]
        return {note["text"] for result in results for note in result["notes"]}

    def made() -> dict[str, int]:
        found = (tmp_path / "runs/grid/runs").glob("*/result.json")
        return {file.parent.name: file.stat().st_mtime_ns for file in found}

    assert sweep("first") == {"first"}
    first = made()
    assert sweep("first") == {"first"}
    assert made() == first
    assert sweep("second") == {"second"}
    assert len(made()) == 3
    assert first.items() < made().items()
    assert sweep("first") == {"first"}
    assert len(made()) == 3


class Weighted(Vanilla):
    def __init__(self, weight: float = 0.5) -> None:
        self.weight = weight


def test_options_of_custom_parts_vary_in_grids() -> None:
    axes: dict[str, Any] = {"adaptation.weight": [0.5, 1]}
    plan = tiny_plan(axes=axes, adaptation=f"{__name__}:Weighted")
    assert [run.config.options["adaptation"] for run in plan.runs] == [
        {"weight": 0.5},
        {"weight": 1.0},
    ]
    assert [run.place["weight"] for run in plan.runs] == [0.5, 1]
    axes = {"adaptation.wieght": [0.5, 1]}
    assert "did you mean weight?" in complaint(
        lambda: tiny_plan(axes=axes, adaptation=f"{__name__}:Weighted")
    )


def test_ids_of_runs_without_custom_parts_are_those_of_committed_results() -> None:
    folder = Path(__file__).parents[2] / "results" / "table1-small"
    plans = sorted(folder.rglob("sweeps/*.json"))
    runs = [run for plan in plans for run in json.loads(plan.read_text())["runs"]]
    assert runs
    for run in runs:
        assert run_id(RunConfig(**run["config"])) == run["id"]
        today = resolve(RunConfig(**run["config"]))
        # The published preset has come to recompute logits as the published code does.
        is_new = today.realigned_logits == "training" and today.adaptation == "amr"
        assert (run_id(today) == run["id"]) or (is_new and today.method in ("der++", "ser"))
