"""Plans: runs and their ids, files and their damage, the selection by `--only`."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_tools import complaint
from sweep_tools import TINY, tiny_plan

from driftwise import RunConfig, paths
from driftwise.adapt.vanilla import Vanilla
from driftwise.cli import main as cli
from driftwise.config.presets import resolve
from driftwise.datasets.catalogue import KNOWN
from driftwise.report.sweeps import read_sweep
from driftwise.reproduce.charts import scale_words
from driftwise.reproduce.paper_table import paper_table
from driftwise.sweeps import plan as plans
from driftwise.sweeps.grid import Grid
from driftwise.sweeps.plan import Plan, chosen, make_plan, run_id, write_plan
from driftwise.sweeps.scale import SCALES


def tiny(**axes: Any) -> Plan:
    return tiny_plan(axes=axes)


def based(**base: Any) -> Plan:
    return make_plan("p", Grid(axes={"seed": [0]}, base=base))


def test_every_place_of_the_grid_has_a_run_that_is_resolved() -> None:
    plan = tiny(method=["er", "ser"], buffer_size=[20, 40])
    expected = [(method, size) for method in ("er", "ser") for size in (20, 40)]
    assert [(run.place["method"], run.place["buffer_size"]) for run in plan.runs] == expected
    assert all(run.config == resolve(run.config) for run in plan.runs)
    assert len({run.id for run in plan.runs}) == 4
    # One thread unless the grid sets another number.
    threads = [based(benchmark="cifar10-cd", **more).runs[0] for more in ({}, {"threads": 4})]
    assert [run.config.threads for run in threads] == [1, 4]


def test_a_place_names_what_tables_need_and_options_without_their_part_if_unique() -> None:
    standing = {"benchmark": "digits-cd", "method": "er", "buffer_size": 100, "num_drifts": 1}
    standing |= {"adaptation": "vanilla", "seed": 0}
    assert tiny(epochs=[1]).runs[0].place == {**standing, "epochs": 1}
    clear = tiny(**{"detector.level": [0.01, 0.1]})
    assert [run.place["level"] for run in clear.runs] == [0.01, 0.1]
    axes = {"detector": ["oracle"], "detector.tpr": [0.5], "method": ["er"]}
    assert set(tiny(**axes).runs[0].place) == {*plans.ALWAYS, "detector", "tpr"}
    grid = Grid(axes={"backbone.width": [8], "method.width": [1]})
    assert plans.names_in_places(grid) == {key: key for key in grid.axes}
    seed = Grid(axes={"detector.seed": [1], "detector.level": [0.1]})
    names = {"detector.seed": "detector.seed", "detector.level": "level"}
    assert plans.names_in_places(seed) == names


REFUSED: list[tuple[Callable[[], Plan], str]] = [
    (lambda: tiny(method=["er", "err"]), "did you mean 'er'"),
    (lambda: based(epoch=1), "unknown key 'epoch'"),
    (lambda: tiny(num_drifts=[-1]), "num_drifts"),
    (lambda: tiny(**{"detector.level": [float("nan")]}), "level"),
    (lambda: tiny(buffer_size=[None, 100]), "one run at two places"),  # 100 is the preset's
]
BAD_NAMES = ("", "a b", "../up", "a/b", "-flag", ".hidden", "x" * 81, "é")
TAKEN = ("index.html", "runs", "sweeps", "claims", "pages", "failures", "theory-digits-cd", "Runs")


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_a_setting_that_cannot_run_is_refused_before_anything_starts(
    make: Callable[[], Plan], message: str
) -> None:
    assert message in complaint(make)


@pytest.mark.parametrize("name", [*BAD_NAMES, *TAKEN])
def test_a_sweeps_name_can_be_a_file_and_is_not_taken(name: str) -> None:
    line = complaint(lambda: tiny_plan(name, axes={"seed": [0]}))
    assert ("a sweep's name" if name in BAD_NAMES else f"cannot be called {name}") in line


def test_a_grid_that_is_far_too_large_is_refused_with_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plans, "MOST_RUNS", 4)
    assert len(tiny(seed=range(4)).runs) == 4
    line = complaint(lambda: tiny(seed=range(1000), buffer_size=range(1, 1001)))
    assert "more than 4 runs (its axes make 1,000,000)" in line
    rule = [{"seed": range(2, 9)}]
    assert len(make_plan("p", Grid(axes={"seed": range(9)}, base=TINY, without=rule)).runs) == 2


# Ids


def test_the_same_config_has_the_same_id_whatever_grid_it_comes_from() -> None:
    by_axes = tiny(method=["er"], buffer_size=[30], seed=[2]).runs[0]
    by_base = tiny_plan("other", axes={"seed": [2]}, method="er", buffer_size=30).runs[0]
    assert (by_axes.id, by_axes.config) == (by_base.id, by_base.config)


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


def test_every_setting_that_decides_the_result_is_in_the_id() -> None:
    base = RunConfig(epochs=1, tasks=((0, 1), (2, 3)))
    ids = {run_id(resolve(replace(base, **change))) for change in ({}, *CHANGES)}
    assert len(ids) == 1 + len(CHANGES)
    for kind in ("npz", "folder", "my_parts:Pictures"):  # a user's own data
        config = RunConfig(benchmark=kind, data="here.npz")
        assert run_id(replace(config, data="there.npz")) != run_id(config)


@pytest.mark.parametrize(
    ("method", "adaptation", "differs"),
    [("der++", "amr", True), ("ser", "amr-plus", True), ("er", "amr", False), ("ser", "fr", False)],
)
def test_how_logits_are_recomputed_makes_another_run_only_where_any_are(
    method: str, adaptation: str, differs: bool
) -> None:
    config = resolve(RunConfig(method=method, adaptation=adaptation))
    published = replace(config, realigned_logits="training")
    assert (run_id(config) != run_id(published)) == differs


def test_what_does_not_decide_the_result_is_not_in_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve(RunConfig(benchmark="cifar10-cd"))
    assert run_id(replace(config, data="elsewhere", data_identity="0" * 64)) == run_id(config)
    own = RunConfig(method="my.parts:Own", buffer_size=5, num_drifts=2, seed=3)
    assert run_id(own)[:-11] == "digits-cd-my-parts-Own-amr-b5-d2-s3"
    assert "/" not in run_id(replace(own, benchmark="a/../b"))
    # Ids made before presets chose detectors stay.
    assert run_id(resolve(RunConfig())) == "digits-cd-er-amr-b100-d1-s0-523b54793a"
    assert run_id(resolve(RunConfig(detector="mmd"))).endswith("-2072ec5aed")
    # A setting that a later version adds does not rename the runs that leave it as it is.
    before, plain, defaults = run_id(config), RunConfig.to_json, plans._defaults()
    monkeypatch.setattr(RunConfig, "to_json", lambda self: {**plain(self), "later": None})
    monkeypatch.setattr(plans, "_defaults", lambda: {**defaults, "later": None})
    assert run_id(config) == before


def test_data_that_are_read_in_another_way_make_another_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = RunConfig(benchmark="fmnist-cd")
    before = run_id(config)
    known = KNOWN["fashion-mnist"]
    monkeypatch.setitem(KNOWN, known.name, replace(known, version=known.version + 1))
    assert run_id(config) != before
    assert KNOWN["tiny-imagenet"].version > 1, "1 numbered its classes by sorted ids"


def test_ids_of_runs_without_custom_parts_are_those_of_committed_results() -> None:
    folder = Path(__file__).parents[2] / "results" / "table1-small"
    files = sorted(folder.rglob("sweeps/*.json"))
    runs = [run for file in files for run in json.loads(file.read_text())["runs"]]
    assert runs
    for run in runs:
        assert run_id(RunConfig(**run["config"])) == run["id"]
        today = resolve(RunConfig(**run["config"]))
        # The published preset has come to recompute logits as the published code does.
        is_new = today.realigned_logits == "training" and today.adaptation == "amr"
        assert (run_id(today) == run["id"]) or (is_new and today.method in ("der++", "ser"))


# Files


def test_a_plan_is_what_the_report_reads_and_is_written_once(tmp_path: Path) -> None:
    plan = tiny(method=["er", "ser"], seed=[0, 1])
    file = write_plan(plan, tmp_path)
    assert file == tmp_path / "sweeps" / "tiny.json"
    sweep = read_sweep(file)
    assert (sweep.name, sweep.scale, sweep.num_done) == ("tiny", "own", 0)
    assert [entry.id for entry in sweep.entries] == [run.id for run in plan.runs]
    assert [entry.seed for entry in sweep.entries] == [0, 1, 0, 1]
    # From Python a base may hold tuples, which a file holds as lists.
    grid = Grid(axes={"seed": range(2)}, base={**TINY, "tasks": ((0, 1), (2, 3))})
    file = write_plan(make_plan("p", grid), tmp_path)
    before = file.stat().st_mtime_ns
    assert write_plan(make_plan("p", grid), tmp_path) == file
    assert file.stat().st_mtime_ns == before
    assert sorted(path.name for path in file.parent.iterdir()) == ["p.json", "tiny.json"]


def test_another_plan_of_the_same_name_is_refused_unless_it_may_replace(tmp_path: Path) -> None:
    file = write_plan(tiny(seed=[0]), tmp_path)
    before = file.read_bytes()
    other = tiny(seed=[1, 2])
    line = complaint(lambda: write_plan(other, tmp_path))
    assert "another grid" in line
    assert "--overwrite" in line
    assert file.read_bytes() == before
    write_plan(other, tmp_path, overwrite=True)
    assert len(json.loads(file.read_text())["runs"]) == 2
    for unknown in ({"format": 99, "runs": ["?"]}, {"name": "tiny"}):
        file.write_text(json.dumps(unknown))
        assert "of another version" in complaint(lambda: write_plan(other, tmp_path))
        write_plan(other, tmp_path, overwrite=True)
        assert read_sweep(file).name == "tiny"
    (tmp_path / "file").write_text("")
    line = complaint(lambda: write_plan(other, tmp_path / "file"))
    assert "choose another --out" in line


def test_a_plan_with_further_runs_goes_on_with_the_one_that_is_there(tmp_path: Path) -> None:
    write_plan(tiny(seed=[0]), tmp_path)
    file = write_plan(tiny(seed=[0, 1]), tmp_path)
    assert len(json.loads(file.read_text())["runs"]) == 2
    assert "another grid" in complaint(lambda: write_plan(tiny(seed=[0]), tmp_path)), "fewer"
    assert len(json.loads(file.read_text())["runs"]) == 2


def test_a_sweep_planned_with_weights_is_not_resumed_without_them(
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


def test_data_in_another_folder_make_no_other_plan(tmp_path: Path) -> None:
    places: list[dict[str, Any]] = [{"data": "/mnt/a"}, {"data": "/home/b"}, {}]
    for place in places:
        plan = based(benchmark="cifar10-cd", **place)
        written = json.loads(write_plan(plan, tmp_path).read_text())
        assert written["runs"][0]["config"]["data"] == place.get("data")
    out = tmp_path / "own"
    write_plan(based(benchmark="npz", data="here.npz"), out)
    other = based(benchmark="npz", data="there.npz")
    assert "another grid" in complaint(lambda: write_plan(other, out))


def older(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite a plan as an earlier version left it, without a digest."""
    plan = json.loads(file.read_text())
    del plan["sha256"]
    change(plan)
    file.write_text(json.dumps(plan))


def test_plans_of_older_versions_are_compared_by_their_runs(tmp_path: Path) -> None:
    plan = make_plan("p", Grid(axes={"seed": [0]}), scale=SCALES["smoke"])
    file = write_plan(plan, tmp_path)
    older(file, lambda plan: plan["scale"].update(note="as an older version put it"))
    assert read_sweep(file).scale_note == "as an older version put it"
    write_plan(plan, tmp_path)
    assert read_sweep(file).scale_note == plan.scale_note
    older(file, lambda plan: plan["runs"][0]["config"].pop("lr_floor"))
    write_plan(plan, tmp_path)
    assert "lr_floor" in json.loads(file.read_text())["runs"][0]["config"]
    other = make_plan("p", Grid(axes={"seed": [0]}), scale=SCALES["small"])
    assert other.runs == plan.runs  # digits are small enough
    assert "another scale: smoke" in complaint(lambda: write_plan(other, tmp_path))
    older(file, lambda plan: plan["runs"][0].update(id="digits-cd-of-another-version"))
    line = complaint(lambda: write_plan(plan, tmp_path))
    assert "other settings behind the same grid (1 runs differ)" in line


def test_changed_settings_are_named_on_table_and_figures(tmp_path: Path) -> None:
    changed = {"detector": "oracle", "backbone": {"name": "mlp", "hidden": [8]}}
    grid = Grid(axes={"seed": [0]}, base=changed)
    plan = make_plan("p", grid, scale=SCALES["smoke"], changed=changed)
    sweep = read_sweep(write_plan(plan, tmp_path))
    words = 'changed by --set: detector=oracle, backbone={"name": "mlp", "hidden": [8]}'
    assert words in " ".join(paper_table(sweep).about)
    assert words in scale_words(sweep, [])


DAMAGE: list[Callable[[dict[str, Any]], object]] = [
    lambda plan: plan.pop("runs"),
    lambda plan: plan.update(runs=0),
    lambda plan: plan.update(runs=["x"]),
    lambda plan: plan["runs"][0].pop("id"),
    lambda plan: plan["runs"][0].update(id={}),
    lambda plan: plan["runs"][0]["place"].update(buffer_size=7),
]


@pytest.mark.parametrize("change", DAMAGE)
def test_a_damaged_plan_is_not_read_and_is_written_anew(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    plan = tiny(seed=[0, 1])
    file = write_plan(plan, tmp_path)
    content = file.read_bytes()
    changed = json.loads(content)
    change(changed)
    halves = ("", '{"format": 1, "runs": [', "[1]") if change is DAMAGE[0] else ()
    for text in (json.dumps(changed), *halves):
        file.write_text(text)
        assert "start the sweep again" in complaint(lambda: read_sweep(file)) or text == "[1]"
        warnings: list[str] = []
        write_plan(plan, tmp_path, warn=warnings.append)
        assert warnings == [f"{file} was damaged, and is written anew from the grid"]
        assert file.read_bytes() == content


# The selection

SELECTED = tiny_plan(
    axes={
        "detector.tpr": [0.5, 1.0],
        "concept_per_class": [False, True],
        "drift_seed": [None, 1],
    },
    detector="oracle",
)


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("tpr=1", "tpr", {1.0}),
        ("detector.tpr=1.0", "tpr", {1.0}),
        ("tpr=1.0,.5", "tpr", {0.5, 1.0}),
        ("concept_per_class=true", "concept_per_class", {True}),
        ("concept-per-class=False", "concept_per_class", {False}),
        ("drift_seed=null", "drift_seed", {None}),
        ("drift_seed=None", "drift_seed", {None}),
        ("seed=0", "seed", {0}),
    ],
)
def test_a_value_may_be_written_as_in_yaml_and_a_setting_as_in_the_grid(
    text: str, name: str, values: set[object]
) -> None:
    expected = [run.id for run in SELECTED.runs if run.place[name] in values]
    assert [run.id for run in chosen(SELECTED, [text])] == expected


def test_settings_narrow_each_other_values_of_one_add_up_and_unknown_ones_are_refused() -> None:
    both = chosen(SELECTED, ["tpr=1", "detector.tpr=0.5", "drift_seed=1"])
    assert [run.place["tpr"] for run in both] == [0.5, 0.5, 1.0, 1.0]
    assert {run.place["drift_seed"] for run in both} == {1}
    for text in ("drift_seed=true", "concept_per_class=1", "tpr=2", "tpr=["):
        assert "unknown value of" in complaint(lambda: chosen(SELECTED, [text]))  # noqa: B023


# Custom parts

EDITED = """
from driftwise.adapt.vanilla import Vanilla
from driftwise.types import AdaptationResult
from edited_helper import NOTE

class Part(Vanilla):
    def adapt(self, drifted, context):
        return AdaptationResult(notes=(NOTE,))
"""


@pytest.mark.usefixtures("one_figure")
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
        printed = json.loads(capsys.readouterr().out)
        assert (printed["total"], printed["done"]) == (2, 2)
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
