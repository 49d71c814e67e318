"""`driftwise sweep` and `driftwise reproduce` as a shell runs them."""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import own_parts
import pytest
from run_tools import command_line, lasting
from sweep_tools import ENVIRONMENT, TINY, is_dead, tiny_plan, undisturbed, until, write_digits

import driftwise
from driftwise.cli import sweep as sweep_command
from driftwise.cli.main import command
from driftwise.config import speed
from driftwise.runs.store import LOCK, is_busy
from driftwise.sweeps import ray_executor
from driftwise.sweeps.plan import FAILURES, RUNS, Plan

SEEDS = (0, 1)


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "orders"
    folder.mkdir()
    monkeypatch.setenv(own_parts.FOLDER, str(folder))
    return folder


def grid_file(folder: Path, part: str = "Counting", seeds: tuple[int, ...] = SEEDS) -> Path:
    file = folder / "mine.json"
    base = {**TINY, "adaptation": f"own_parts:{part}"}
    file.write_text(json.dumps({"base": base, "grid": {"seed": list(seeds)}}))
    return file


def plan_of(part: str = "Counting", seeds: tuple[int, ...] = SEEDS) -> Plan:
    return tiny_plan("mine", axes={"seed": list(seeds)}, adaptation=f"own_parts:{part}")


def start(*words: object, orders: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command_line(*words),
        env={**ENVIRONMENT, own_parts.FOLDER: str(orders)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_sweep_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(
    orders: Path, tmp_path: Path
) -> None:
    out, file = tmp_path / "out", grid_file(tmp_path)
    first = plan_of().runs[0].id
    for how in (signal.SIGKILL, signal.SIGINT):
        (orders / "gate").touch()
        (orders / "at-gate").unlink(missing_ok=True)
        words = ("sweep", file, "--out", out, "--workers", 1)
        with start(*words, orders=orders) as parent:
            until((orders / "at-gate").exists)
            worker = int((out / RUNS / first / LOCK).read_text())
            assert worker != parent.pid
            parent.send_signal(how)
            _, errors = parent.communicate()
        until(partial(is_dead, worker), seconds=10)
        assert not is_busy(out / RUNS / first)
        if how == signal.SIGINT:
            assert parent.returncode == 130
            assert errors.splitlines()[-1].endswith("run it again to go on")
            assert "Traceback" not in errors
    (orders / "gate").unlink()
    assert command(["sweep", str(file), "--out", str(out), "--engine", "in-process"]) == 0
    # One first task for each run; the second task of the first run was begun three times.
    assert Counter(own_parts.tasks_begun()) == {0: 2, 2: 4}
    plain = undisturbed(plan_of(), tmp_path / "plain")
    for run in plan_of().runs:
        assert lasting(out / RUNS / run.id) == lasting(plain / RUNS / run.id)


def test_two_processes_share_the_work_of_one_folder(
    orders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process and this one; the first run is held until both are at work."""
    seeds = tuple(range(4))
    out, file = tmp_path / "out", grid_file(tmp_path, seeds=seeds)
    words = ("sweep", file, "--out", out, "--engine", "in-process")
    first, second, *_ = (out / RUNS / run.id for run in plan_of(seeds=seeds).runs)
    (orders / "gate").touch()

    def open_the_gate() -> None:
        until(partial(is_busy, second))
        (orders / "gate").unlink()

    with start(*words, orders=orders) as other:
        until((orders / "at-gate").exists)
        assert int((first / LOCK).read_text()) == other.pid
        opening = threading.Thread(target=open_the_gate)
        opening.start()
        assert command([str(word) for word in words]) == 0
        opening.join()
        printed, errors = other.communicate(timeout=240)
    assert other.returncode == 0, errors
    assert "4 of 4 runs done" in printed
    assert "4 of 4 runs done" in capsys.readouterr().out
    assert Counter(own_parts.tasks_begun()) == {0: 4, 2: 4}
    plain = undisturbed(plan_of(seeds=seeds), tmp_path / "plain")
    for run in plan_of(seeds=seeds).runs:
        assert lasting(out / RUNS / run.id) == lasting(plain / RUNS / run.id)


def test_exit_codes_distinguish_done_from_failed_and_a_second_call_repairs(
    orders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "out", grid_file(tmp_path, "Broken")
    words = ["sweep", str(file), "--out", str(out), "--engine", "in-process", "--json"]
    (orders / "broken").touch()
    assert command([*words, "--only", "seed=0", "--retries", "2"]) == 1
    printed = capsys.readouterr()
    failed = plan_of("Broken").runs[0].id
    summary: dict[str, Any] = json.loads(printed.out)
    assert (summary["total"], summary["done"], list(summary["failed"])) == (1, 0, [failed])
    last = printed.err.splitlines()[-1]
    assert last.startswith(f"driftwise: failed: 1 of 1 runs failed, the first of them {failed}: ")
    assert "it broke in two lines (" in last
    assert re.search(r"own_parts\.py, line \d+\); the same command tries them again", last)
    note = out / FAILURES / f"{failed}.json"
    assert len(json.loads(note.read_text())["attempts"]) == 3
    (orders / "broken").unlink()
    assert command(words) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["total"], summary["done"], summary["failed"]) == (2, 2, {})
    assert all(Path(name).exists() for name in [summary["page"], *summary["files"]])
    assert not note.exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "nothing"),
        (["--workers", "0"], "at least one worker; got 0"),
        (["--only", "seed"], "--only takes KEY=VALUE"),
        (["--only", "sede=0"], "did you mean 'seed'"),
        (["--only", "seed=7"], "unknown value of seed '7'"),
        (["--engine", "rays"], "did you mean ray?"),
        (["--detector.level", "0.1"], "detector"),
        (["--retries", "-1"], "--retries must be at least 0"),
        (["--engine", "pool"], "cannot be called runs"),
    ],
)
def test_what_a_user_must_fix_is_one_line_and_leaves_no_run(
    words: list[str],
    complaint: str,
    orders: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    file = grid_file(tmp_path) if words else tmp_path / "nothing.yaml"
    if "called runs" in complaint:
        file = file.rename(tmp_path / "runs.json")
    assert command(["sweep", str(file), "--out", str(out), *words]) == 2
    errors = capsys.readouterr().err
    assert errors.count("driftwise: error: ") == 1
    assert complaint in errors.splitlines()[-1]
    assert not (out / RUNS).exists()


def test_a_dry_run_lists_the_runs_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    chosen = ["--only", "seed=0", "--only", "seed=1"]
    words = ["sweep", str(grid_file(tmp_path)), "--out", str(out), "--dry-run", *chosen]
    assert command(words) == 0
    assert capsys.readouterr().out.split() == [run.id for run in plan_of().runs]
    assert not out.exists()
    assert command([*words, "--hours", "1"]) == 0
    assert "is not known before the first runs are done" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.usefixtures("orders")
def test_a_dry_run_says_what_will_fit_by_the_runs_that_are_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, *_ = plan_of().runs
    driftwise.run(done.config, tmp_path / "out" / RUNS / done.id)
    words = ["sweep", str(grid_file(tmp_path)), "--out", str(tmp_path / "out"), "--dry-run"]
    assert command([*words, "--hours", "9"]) == 0
    count = len(plan_of().runs)
    assert f"({count} of {count} runs) will be complete after 9 h" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--set", "epochs"], "--set takes KEY=VALUE"),
        (["--set", "epochs=["], "is no YAML value"),
        (["--set", "epoch=1"], "did you mean epochs"),
        (["--only", "method=er", "--only", "adaptation=fr", "--only", "num_drifts=0"], "no run at"),
        (["--set", "detektor.level=1"], "did you mean 'detector'"),
        (["--set", "detector.levl=1"], "did you mean level"),
        (["--set", "epochs=2020-01-01"], "texts, numbers, lists and mappings"),
        (["--name", "index.html"], "cannot be called index.html"),
        (["--data", "nowhere"], "nowhere"),
        (["--hours", "0"], "--hours must be above 0"),
        (["--beside", "adaptation"], "--beside takes KEY=VALUE"),
        (["--beside", "adaption=amr-plus"], "did you mean 'adaptation'"),
        (["--beside", "adaptation=amr-pluss"], "did you mean 'amr-plus'"),
    ],
)
def test_reproducing_refuses_what_it_cannot_in_one_line(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["reproduce", "table1", "--scale", "smoke", "--benchmark", "digits-cd"]
    assert command([*asked, "--out", str(tmp_path / "out"), *words]) == 2
    errors = capsys.readouterr().err
    assert complaint in errors
    assert errors.count("\n") == 1
    assert "--benchmark digits-cd" not in errors  # it was given
    assert not (tmp_path / "out").exists()


UNHEEDED = [
    ("theory", ["--scale", "paper", "--only", "x=1", "--dry-run"], "--scale"),
    ("theory", ["--only", "x=1", "--seeds", "1"], "--only"),
    ("theory", ["--dry-run", "--benchmark", "digits-cd"], "--dry-run"),
    ("theory", ["--data", "here"], "--data"),
    ("claims", ["--set", "foo=1"], "--set"),
    ("claims", ["--name", "mine", "--quiet"], "--name"),
    ("claims", ["--seeds", "3"], "--seeds"),
    ("claims", ["--engine", "ray"], "--engine"),
    ("claims", ["--overwrite"], "--overwrite"),
    ("leaderboard", ["--scale", "smoke"], "--scale"),
]


@pytest.mark.parametrize(("name", "words", "flag"), UNHEEDED)
def test_what_is_no_sweep_refuses_flags_that_would_do_nothing(
    name: str, words: list[str], flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["reproduce", name, "--out", str(tmp_path / "out"), *words]) == 2
    assert f"reproduce {name} takes no {flag}; leave it out" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def planned(monkeypatch: pytest.MonkeyPatch, *words: str) -> Plan:
    """The one plan that `driftwise reproduce` would carry out."""
    (plan,) = all_planned(monkeypatch, *words)
    return plan


def all_planned(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[Plan]:
    """What `driftwise reproduce` would carry out."""
    plans: list[Plan] = []

    def keep(_: object, plan: Plan, __: Path) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(sweep_command, "_carry_out", keep)
    assert command(["reproduce", *words]) == 0
    return plans


def test_settings_of_the_command_line_reach_every_run_and_the_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["own-concepts", "--set", "detector.level=0.2", "--set", "epochs=3", "--data", "here"]
    plan = planned(monkeypatch, *words)
    assert (plan.name, plan.scale) == ("own-concepts-small", "small")
    for run in plan.runs:
        assert (run.config.epochs, run.config.options["detector"]["level"]) == (3, 0.2)
        assert (run.config.detector, run.config.data) == ("combined", "here")
    assert plan.scale_note.endswith("; changed by --set: detector.level=0.2, epochs=3")
    assert "--set" not in planned(monkeypatch, "own-concepts", "--data", "here").scale_note


def test_runs_beside_the_papers_join_its_grid_but_not_without_drift(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["table1", "--scale", "smoke", "--seeds", "1", "--beside", "adaptation=amr-plus"]
    plan = planned(monkeypatch, *words)
    ours = [run.place for run in plan.runs if run.place["adaptation"] == "amr-plus"]
    assert len(plan.runs) == 90
    assert len(ours) == 20
    assert all(place["num_drifts"] for place in ours)


def test_an_entry_of_ones_own_runs_every_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_command, "_drawn_only", lambda _: 0)
    entry = ["--beside", "adaptation=own_parts:Counting", "--scale", "smoke"]
    plans = all_planned(monkeypatch, "leaderboard", *entry)
    assert [plan.name for plan in plans] == [
        f"table{number}-smoke-own_parts-Counting" for number in (1, 2, 3, 4)
    ]
    for plan in plans:
        assert {run.place["adaptation"] for run in plan.runs} == {"own_parts:Counting"}
    (one,) = all_planned(monkeypatch, "leaderboard", *entry, "--benchmark", "cifar10-cd")
    assert one.reproduces == "table2"


def test_speed_is_in_the_configs_the_note_and_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "has_bf16", lambda: True)
    words = ["table1", "--scale", "smoke", "--seeds", "1", "--speed", "fast"]
    plan = planned(monkeypatch, *words)
    assert plan.name == "table1-smoke-fast"
    assert "; bf16, channels-last; " in plan.scale_note
    assert {(run.config.precision, run.config.threads) for run in plan.runs} == {("bf16", 1)}
    given = planned(monkeypatch, *words, "--set", "precision=fp32")
    assert {run.config.precision for run in given.runs} == {"fp32"}


def test_when_time_is_up_the_rest_is_left_for_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", str(grid_file(tmp_path)), "--out", str(tmp_path / "out")]
    assert command([*words, "--engine", "in-process", "--hours", "1e-9"]) == 0
    said = capsys.readouterr().err
    assert "what fits into 1e-09 h is not known before the first runs are done" in said
    assert "time is up: 2 runs are left; the same command goes on" in said


def test_engines_get_their_workers_and_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftwise.config.speed.num_processors", lambda: 8)
    asked = argparse.Namespace(engine="pool", workers=None)
    for threads, workers in ((1, 8), (3, 2), (64, 1)):
        runs = tiny_plan(axes={"seed": [0], "threads": sorted({1, threads})}).runs
        with sweep_command._engine(asked, runs, lambda *_: None) as pool:
            assert pool.slots == workers
    given: dict[str, Any] = {}
    monkeypatch.setattr(ray_executor, "OnRay", lambda *_, **settings: given.update(settings))
    asked = argparse.Namespace(
        engine="ray", ray_address="local", cpus_per_run=2.0, gpus_per_run=0.0, retries=5
    )
    sweep_command._engine(asked, plan_of().runs, lambda *_: None)
    assert given == {"cpus_per_run": 2.0, "gpus_per_run": 0.0, "retries": 5}


def test_finished_runs_need_no_data_and_damage_is_reported_to_the_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_digits(tmp_path / "digits.npz")
    base = {**TINY, "benchmark": "npz", "backbone": "mlp", "data": str(data)}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"base": base, "grid": {"seed": [0]}}))
    words = ["sweep", str(file), "--out", str(tmp_path / "out"), "--quiet"]
    assert command([*words, "--engine", "in-process"]) == 0
    data.unlink()
    plan = tmp_path / "out" / "sweeps" / "mine.json"
    plan.write_bytes(plan.read_bytes()[:-100])
    capsys.readouterr()
    assert command(words) == 0
    assert f"{plan} was damaged" in " ".join(capsys.readouterr().err.split("\n"))


def test_missing_data_are_reported_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    asked = ["reproduce", "features", "--scale", "smoke", "--data", str(gone)]
    assert command([*asked, "--out", str(tmp_path / "out")]) == 2
    assert "--benchmark digits-cd" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    file = tmp_path / "mine.json"
    grid = {"base": {"benchmark": "npz", "data": str(gone)}, "grid": {"seed": [0]}}
    file.write_text(json.dumps(grid))
    assert command(["sweep", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "--benchmark" not in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
