"""Folders from anybody: a small file does no large harm, and one bad run costs no other."""

from __future__ import annotations

import json
import math
import os
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from report_builders import settings_in, small_result, write_run, write_samples
from safetensors.numpy import save_file
from sweep_builders import place_of, write_plan

from driftwise.errors import UserError
from driftwise.report import read
from driftwise.report.index_page import write_index
from driftwise.report.read import find_runs
from driftwise.report.sweeps import read_sweep


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail instead of waiting for ever."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def in_memory(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most, f"{peak:,} bytes of memory"


def verdict(**changes: Any) -> list[dict[str, Any]]:
    return [{"task": 2, "class": 0, "drifted": True, **changes}]


def event(**changes: Any) -> list[dict[str, Any]]:
    return [{"task": 2, "classes": [0], "transform": "blur", **changes}]


def nested(levels: int) -> dict[str, Any]:
    return {"a": nested(levels - 1) if levels else 1}


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "verdict": ({"verdicts": verdict(**{"class": 10**12})}, "class number 1000000000000"),
    "event": ({"drift_events": event(classes=[10**12])}, "class number 1000000000000"),
    "per class": ({"per_class_accuracy": [{str(10**12): 3.0}]}, "class number 1000000000000"),
    "empty rows": ({"accuracy_matrix": [[]] * 30_000}, "30000 rows with a row of 0"),
    "empty til rows": ({"accuracy_matrix_til": [[]] * 30_000}, "30000 rows with a row of 0"),
    "empty counts": ({"confusion_matrix": [[]] * 30_000}, "30000 rows with a row of 0"),
    "too many tasks": ({"per_class_accuracy": [{}] * 10_000}, "of 10000 tasks"),
    "a long number": ({"seed": 10**1000}, "a number of 1,001 digits"),
    "a long setting": ({"config": {"min_harm": 10**400}}, "a number of 401 digits"),
    "not a percentage": ({"faa": 1e20}, "percentage"),
    "no accuracy": ({"accuracy_matrix": [[1e20, None], [1, 2]]}, "no percentages"),
    "no count": ({"confusion_matrix": [[-5.0]]}, "no counts"),
    "share": ({"drift_events": event(share=7)}, "a share of 7"),
    "no number": ({"faa": "high"}, "'high'"),
    "no number in a matrix": ({"accuracy_matrix": [[True]]}, "True where a number is expected"),
    "no matrix": ({"accuracy_matrix": []}, "empty 'accuracy_matrix'"),
    "a long row": ({"accuracy_matrix": [[1.0, 2.0]]}, "1 rows with a row of 2"),
    "no such task": ({"drift_events": event(task=7)}, "task 7"),
    "no verdict": ({"verdicts": verdict(drifted="yes")}, "'yes'"),
    "no class": ({"per_class_accuracy": [{"-1": 3.0}]}, "class number -1"),
    "no warning": ({"warnings": [7]}, "a warning 7"),
    "levels": ({"config": nested(200)}, "a config with more than 20 levels"),
    "letters": ({"config": {"a": "b" * 2**20}}, "a config of 1,0"),
    "huge faa": ({"faa": 1.7e308}, "beyond 1e+30"),
    "huge matrix": ({"accuracy_matrix": [[1.7e308, None], [1, 90.0]]}, "beyond 1e+30"),
    "huge class": ({"per_class_accuracy": [{"0": 1.7e308}, {}]}, "beyond 1e+30"),
    "huge seconds": ({"seconds": {"train": 1.7e308}}, "beyond 1e+30"),
    "huge flops": ({"flops": {"train": 10**200}}, "beyond 1e+30"),
    "negative": ({"labels": {"adaptation": -1.7e308}}, "beyond 1e+30"),
    "NaN": ({"faa": math.nan}, "NaN"),
    "infinite": ({"faa": -math.inf}, "Infinity"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_result_is_named_and_costs_no_memory_and_no_other_run(
    tmp_path: Path, name: str
) -> None:
    changes, reason = DAMAGED[name]
    write_run(tmp_path / "good", small_result())
    write_run(tmp_path / "bad", small_result(**changes))
    with in_memory(20_000_000):
        found = find_runs([tmp_path])
    assert [run.folder.name for run in found.runs] == ["good"]
    (warning,) = found.warnings
    assert "bad: damaged" in warning
    assert reason in warning


@pytest.mark.parametrize("text", ["1e999", "-1e999"])
def test_a_literal_that_is_too_large_is_damage(tmp_path: Path, text: str) -> None:
    write_run(tmp_path / "good", small_result())
    odd = write_run(tmp_path / "odd", small_result(faa=12.25))
    content = (odd / "result.json").read_text()
    (odd / "result.json").write_text(content.replace("12.25", text))
    (warning,) = find_runs([tmp_path]).warnings
    assert "odd: damaged" in warning


def test_names_without_an_entry_in_the_matrix_make_no_matrix(tmp_path: Path) -> None:
    names = [f"{number}" for number in range(20_000)]
    write_run(tmp_path / "run", small_result(class_names=names))
    with in_memory(40_000_000):
        (run,) = find_runs([tmp_path]).runs
    assert run.confusion is not None
    assert run.confusion.shape == (4, 4)


def test_texts_are_cut_to_what_a_page_can_bear(tmp_path: Path) -> None:
    long = "a" * 100_000
    names = {"benchmark": long, "method": long, "class_names": [long] * 4}
    events = event(transform=long, domains=[long])
    warnings = [long] * 5
    write_run(tmp_path / "run", small_result(**names, drift_events=events, warnings=warnings))
    (run,) = find_runs([tmp_path]).runs
    assert {len(run.benchmark), len(run.method), *map(len, run.class_names)} == {200}
    assert len(run.events[0].transform) == 200
    assert {len(line) for line in run.warnings} == {2000}


@pytest.fixture(params=["pipe", "endless device", "folder"])
def special(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Puts what is no regular file where one is expected."""

    def put(path: Path) -> None:
        path.unlink(missing_ok=True)
        if request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "folder":
            path.mkdir()
        else:
            path.symlink_to("/dev/zero")

    return put


@pytest.mark.parametrize("name", ["result.json", "checksums.json"])
def test_a_run_behind_a_pipe_or_a_device_is_named_and_left_out(
    tmp_path: Path, special: Callable[[Path], None], name: str
) -> None:
    write_run(tmp_path / "good", small_result())
    special(write_run(tmp_path / "bad", small_result()) / name)
    with within(20):
        found = find_runs([tmp_path])
    assert [run.folder.name for run in found.runs] == ["good"]
    (warning,) = found.warnings
    assert "bad" in warning


def test_images_behind_a_pipe_or_a_device_cost_the_images_only(
    tmp_path: Path, special: Callable[[Path], None]
) -> None:
    special(write_run(tmp_path / "run", small_result()) / "samples.safetensors")
    with within(20):
        found = find_runs([tmp_path])
    assert [run.samples for run in found.runs] == [None]
    assert "expected a regular file" in found.warnings[0]


def test_a_plan_or_a_failure_behind_a_pipe_or_a_device_is_reported(
    tmp_path: Path, special: Callable[[Path], None]
) -> None:
    plan = write_plan(tmp_path, "own", {"broken": place_of()})
    (tmp_path / "failures").mkdir()
    special(tmp_path / "failures" / "broken.json")
    with within(20):
        page = write_index(tmp_path, [read_sweep(plan)]).read_text()
    assert "the note about its failure is damaged" in page
    special(plan)
    with within(20), pytest.raises(UserError, match="cannot read the sweep"):
        read_sweep(plan)


def test_images_of_no_height_and_endless_width_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", small_result())
    empty = np.zeros((4, 0, 10**12, 1), dtype=np.uint8)
    rows = np.arange(4)
    tensors: dict[str, NDArray[Any]] = {"before": empty, "after": empty}
    save_file(tensors | {"labels": rows, "tasks": rows}, run / "samples.safetensors")
    found = find_runs([tmp_path])
    assert [each.samples for each in found.runs] == [None]
    assert "expected uint8" in found.warnings[0]


def test_only_the_images_that_are_shown_are_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", small_result())
    write_samples(run / "samples.safetensors", num=2000, side=64)
    from driftwise.report.heat_maps import sample_sheet

    (setting,) = settings_in(tmp_path)
    sample_sheet(setting)  # what is imported and cached the first time is not counted
    with in_memory(8_000_000):  # all of them are 16 MB
        assert sample_sheet(setting) is not None


def test_a_file_larger_than_any_result_is_not_read(tmp_path: Path) -> None:
    write_run(tmp_path / "good", small_result())
    bad = write_run(tmp_path / "bad", small_result())
    os.truncate(bad / "result.json", 2**40)  # of holes
    with within(5):
        (warning,) = find_runs([tmp_path]).warnings
    assert "expected at most 268,435,456 bytes, found 1,099,511,627,776" in warning


def test_links_are_not_followed_and_circles_end(tmp_path: Path) -> None:
    top, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    write_run(top / "a" / "good", small_result())
    write_run(elsewhere / "other", small_result(seed=1))
    (top / "a" / "around").symlink_to(top)
    (top / "itself").symlink_to("itself")
    (top / "linked").symlink_to(elsewhere)
    with within(5):
        found = find_runs([top])
    assert [run.folder.name for run in found.runs] == ["good"]
    (warning,) = found.warnings
    assert f"{top / 'linked'}: a link to a folder, not followed" in warning
    assert len(find_runs([top / "linked"]).runs) == 1, "a link that was named is meant"


def test_folders_within_folders_within_folders_have_an_end(tmp_path: Path) -> None:
    write_run(tmp_path / "good", small_result())
    with nested_folders(tmp_path, 1200), within(10):
        assert len(find_runs([tmp_path]).runs) == 1


@contextmanager
def nested_folders(top: Path, depth: int) -> Iterator[None]:
    """Folders that only steps of one folder reach; pytest itself could not delete them."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(top)
        for _ in range(depth):
            Path("d").mkdir()
            os.chdir("d")
        os.fchdir(here)
        yield
    finally:
        os.chdir(top)
        while Path("d").exists():
            os.chdir("d")
        while not Path.cwd().samefile(top):
            os.chdir("..")
            Path("d").rmdir()
        os.fchdir(here)
        os.close(here)


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "good", small_result())
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refuse(path: Path) -> Any:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = find_runs([tmp_path])
    assert len(found.runs) == 1
    assert found.warnings == (
        f"{tmp_path / 'closed'}: cannot be read (Permission denied), skipped",
    )


def test_a_search_among_too_many_files_ends_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "good", small_result())
    (tmp_path / "many").mkdir()
    for number in range(60):
        (tmp_path / "many" / f"{number}.txt").touch()
    monkeypatch.setattr(read, "MOST_ENTRIES", 50)
    (warning,) = find_runs([tmp_path / "good", tmp_path / "many"]).warnings
    assert f"{tmp_path / 'many'}: has more than 50 entries" in warning


def test_of_many_bad_runs_some_are_named_and_the_others_counted(tmp_path: Path) -> None:
    write_run(tmp_path / "good", small_result())
    for number in range(150):
        (tmp_path / f"bad-{number}").mkdir()
        (tmp_path / f"bad-{number}" / "result.json").write_text(json.dumps({}))
    warnings = find_runs([tmp_path]).warnings
    assert len(warnings) == 101
    assert warnings[-1] == "and 50 more"


# --- what is read --------------------------------------------------------------------------------


def test_runs_are_found_at_any_depth_and_each_only_once(tmp_path: Path) -> None:
    deep = write_run(tmp_path / "sweep" / "er" / "seed-0", small_result())
    write_run(tmp_path / "seed-1", small_result(seed=1))
    found = find_runs([tmp_path, tmp_path / "sweep", deep])
    assert sorted(run.seed for run in found.runs) == [0, 1]
    assert found.warnings == ()


def test_unfinished_and_damaged_runs_are_named_and_skipped(tmp_path: Path) -> None:
    write_run(tmp_path / "good", small_result())
    unfinished = write_run(tmp_path / "unfinished", small_result())
    (unfinished / "result.json").unlink()
    torn = write_run(tmp_path / "torn", small_result())
    (torn / "result.json").write_text('{"benchmark": "toy')
    lacking = write_run(tmp_path / "lacking", small_result())
    (lacking / "result.json").write_text(
        json.dumps({key: value for key, value in small_result().items() if key != "faa"})
    )
    found = find_runs([tmp_path])
    assert [run.folder.name for run in found.runs] == ["good"]
    named = {line.split(":")[0]: line for line in found.warnings}
    assert set(named) == {str(folder) for folder in (unfinished, torn, lacking)}
    assert "unfinished" in named[str(unfinished)]
    assert "cannot be read" in named[str(torn)]
    assert "has no 'faa'" in named[str(lacking)]


def test_a_config_above_finished_runs_is_no_unfinished_run(tmp_path: Path) -> None:
    write_run(tmp_path / "sweep" / "seed-0", small_result())
    (tmp_path / "sweep" / "config.json").write_text("{}")
    assert find_runs([tmp_path]).warnings == ()


def test_no_run_at_all_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="found none in"):
        find_runs([tmp_path])
    unfinished = write_run(tmp_path / "unfinished", small_result())
    (unfinished / "result.json").unlink()
    with pytest.raises(UserError, match="unfinished"):
        find_runs([tmp_path])
    with pytest.raises(UserError, match="expected a folder"):
        find_runs([tmp_path / "missing"])


def test_nulls_and_missing_extras_are_absences_not_damage(tmp_path: Path) -> None:
    stable = small_result(faa_drifted=None, detection={"tpr": None}, buffer_size=None)
    for extra in ("accuracy_matrix_til", "macro_f1", "calibration", "confusion_matrix", "notes"):
        del stable[extra]
    del stable["class_names"], stable["gradient_steps"]
    write_run(tmp_path / "run", stable)
    (run,) = find_runs([tmp_path]).runs
    assert run.faa_drifted is None
    assert run.detection["tpr"] is None
    assert run.calibration is None
    assert run.faa_til is None
    assert run.class_names == ("0", "1", "2", "3")
    assert np.isnan(run.accuracy[0, 1])


def test_null_in_a_confusion_matrix_counts_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result(confusion_matrix=[[1, None], [0, 2]]))
    (run,) = find_runs([tmp_path]).runs
    assert run.confusion is not None
    assert run.confusion[:2, :2].tolist() == [[1, 0], [0, 2]]


def test_calibration_reads_the_same_from_bins_and_from_columns(tmp_path: Path) -> None:
    columns = {"confidence": [None, 0.55], "accuracy": [None, 0.5], "count": [0, 10], "ece": 0.05}
    rows = [
        {"confidence": None, "accuracy": None, "count": 0},
        {"confidence": 0.55, "accuracy": 0.5, "count": 10},
    ]
    write_run(tmp_path / "a", small_result(calibration=columns))
    write_run(tmp_path / "b", small_result(calibration={"ece": 0.05, "bins": rows}))
    for run in find_runs([tmp_path]).runs:
        assert run.calibration is not None
        assert run.calibration.confidence.tolist() == [0.55]
        assert run.calibration.count.tolist() == [10.0]


def test_mean_accuracy_after_a_task_is_over_the_tasks_seen_so_far(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result())
    (run,) = find_runs([tmp_path]).runs
    assert run.mean_accuracy.tolist() == [90.0, 80.0]
    assert run.faa_til == pytest.approx(94.0)


def test_costs_leave_evaluation_out_and_are_unknown_if_a_part_is(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result(flops={"train": 5, "detect": None, "adapt": 1}))
    (run,) = find_runs([tmp_path]).runs
    assert run.cost(run.seconds) == 2.75
    assert run.cost(run.flops) is None


def test_damaged_images_cost_the_images_and_not_the_run(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", small_result(), samples=True)
    torn = write_run(tmp_path / "torn", small_result(seed=1))
    write_samples(torn / "samples.safetensors")
    content = (torn / "samples.safetensors").read_bytes()
    (torn / "samples.safetensors").write_bytes(content[:-5])
    found = find_runs([tmp_path])
    assert {run.folder: run.samples for run in found.runs} == {
        whole: whole / "samples.safetensors",
        torn: None,
    }
    (warning,) = found.warnings
    assert "torn/samples.safetensors: damaged" in warning


def test_control_characters_do_not_get_through(tmp_path: Path) -> None:
    write_run(tmp_path / "run", small_result(class_names=["a\x00b", "c\nd", "cat", "dog"]))
    (run,) = find_runs([tmp_path]).runs
    assert run.class_names[:2] == ("a�b", "c�d")
