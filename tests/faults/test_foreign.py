"""Files that are whole, and are not what the run in a folder could have left there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_tools import Stop, StopAt, complaint, lasting, snapshot

import driftwise
from driftwise import RunConfig, run
from driftwise.errors import UserError
from driftwise.runs import checkpoint as state_file
from driftwise.runs import store
from driftwise.runs.saving import Saving

SMALL = RunConfig(epochs=1, tasks=((0, 1), (2, 3)), detector="oracle", threads=1)
BOTH = (store.CHECKPOINT, store.PREVIOUS)


def stopped(folder: Path, task: int, *, seed: int = 0) -> Path:
    """A run that crashed at the fifth step of a task, with a checkpoint after every step."""
    config = dataclasses.replace(SMALL, seed=seed)
    with pytest.raises(Stop):
        run(config, folder, listener=StopAt(task, 5), saving=Saving(seconds=None, steps=1))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(SMALL, folder)
    return folder


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of another seed, crashed in the first and in the second task."""
    top = tmp_path_factory.mktemp("theirs")
    return [stopped(top / str(task), task, seed=1) for task in (1, 2)]


@pytest.mark.parametrize(
    ("task", "names"),
    [(1, BOTH), (2, (*BOTH, store.RECORDS, store.EVENTS))],
    ids=["before any record", "with its records"],
)
def test_checkpoints_of_another_run_are_refused_and_nothing_is_changed(
    task: int, names: tuple[str, ...], theirs: list[Path], tmp_path: Path
) -> None:
    stopped(tmp_path, task)
    for name in names:
        shutil.copy(theirs[task - 1] / name, tmp_path)
    before = snapshot(tmp_path)
    message = complaint(lambda: run(SMALL, tmp_path, resume=True))
    assert f"{tmp_path / store.CHECKPOINT} is the checkpoint of another run" in message
    assert "of another run" in complaint(lambda: driftwise.load(tmp_path))
    after = snapshot(tmp_path)
    assert {name for name in before if before[name] != after[name]} <= {store.LOCK}


def test_a_newest_checkpoint_of_another_run_gives_way_to_the_one_before(
    theirs: list[Path], whole: Path, tmp_path: Path
) -> None:
    stopped(tmp_path, 1)
    shutil.copy(theirs[0] / store.CHECKPOINT, tmp_path)
    with pytest.warns(UserWarning, match="of another run; going on from the checkpoint before"):
        run(SMALL, tmp_path, resume=True)
    assert lasting(tmp_path) == lasting(whole)


def test_a_result_of_another_run_is_not_taken_for_its_own(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    other = json.loads((whole / store.RESULT).read_text())
    other["config"]["seed"] = 1
    (tmp_path / "run" / store.RESULT).write_text(json.dumps(other))
    (tmp_path / "run" / "checksums.json").unlink()
    message = complaint(lambda: run(SMALL, tmp_path / "run", resume=True))
    assert "is the result of another run (seed: 1 there, 0 here)" in message
    (tmp_path / "run" / store.RESULT).unlink()
    run(SMALL, tmp_path / "run", resume=True)
    assert lasting(tmp_path / "run") == lasting(whole)


def test_a_checkpoint_of_an_earlier_version_without_a_config_is_resumed(
    whole: Path, tmp_path: Path
) -> None:
    stopped(tmp_path, 2)
    for name in BOTH:
        saved = state_file.read(tmp_path / name, format=store.FORMAT)
        del saved["config"]  # as earlier versions wrote it
        state_file.write(tmp_path / name, saved, format=store.FORMAT)
    run(SMALL, tmp_path, resume=True)
    assert lasting(tmp_path) == lasting(whole)


def test_complete_tasks_without_a_checkpoint_are_no_reason_to_start_from_zero(
    whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    for name in (*BOTH, store.RESULT):
        (tmp_path / "run" / name).unlink()
    records = (tmp_path / "run" / store.RECORDS).read_bytes()
    message = complaint(lambda: run(SMALL, tmp_path / "run", resume=True))
    assert "is missing, and so is the one before it, although 2 tasks are complete" in message
    assert (tmp_path / "run" / store.RECORDS).read_bytes() == records


def test_a_first_task_that_begins_again_is_warned_of(whole: Path, tmp_path: Path) -> None:
    stopped(tmp_path, 2)
    for name in BOTH:
        (tmp_path / name).unlink()
    with pytest.warns(UserWarning, match="has no checkpoint of its first task"):
        run(SMALL, tmp_path, resume=True)
    assert lasting(tmp_path) == lasting(whole)


@pytest.mark.parametrize(
    ("name", "resume"), [(store.LOCK, True), (store.EVENTS, False), (store.RECORDS, True)]
)
def test_nothing_is_written_through_a_link_in_a_folder(
    name: str, resume: bool, whole: Path, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    shutil.copytree(whole, folder)
    (folder / store.RESULT).unlink()
    elsewhere.write_text("precious\n")
    (folder / name).unlink()
    (folder / name).symlink_to(elsewhere)
    assert "is a link" in complaint(lambda: run(SMALL, folder, resume=resume, overwrite=not resume))
    assert elsewhere.read_text() == "precious\n"


def _without(tree: dict[str, Any], *path: str) -> dict[str, Any]:
    first, *rest = path
    return {
        key: _without(value, *rest) if key == first else value
        for key, value in tree.items()
        if rest or key != first
    }


FORGED: list[Callable[[Any], Any]] = [
    lambda _: 5,
    lambda saved: _without(saved, "records"),
    lambda saved: _without(saved, "state"),
    lambda saved: {**saved, "records": {"bytes": "many", "sha256": None}},
    lambda saved: {**saved, "state": []},
    lambda saved: _without(saved, "state", "parts"),
    lambda saved: _without(saved, "state", "parts", "learner"),
    lambda saved: _without(saved, "state", "parts", "learner", "network"),
    lambda saved: {**saved, "state": {**saved["state"], "midway": {"task": 1}}},
]


def test_a_state_with_a_digest_that_fits_and_content_that_does_not_gets_one_line(
    tmp_path: Path,
) -> None:
    file = stopped(tmp_path, 2) / store.CHECKPOINT
    (tmp_path / store.PREVIOUS).unlink()
    content, saved = file.read_bytes(), state_file.read(file, format=store.FORMAT)
    for change in FORGED:
        state_file.write(file, change(saved), format=store.FORMAT)
        message = complaint(lambda: run(SMALL, tmp_path, resume=True))
        assert "not of this project" in message or "does not fit its config" in message
        with contextlib.suppress(UserError):  # and nothing else; some of it is not needed
            driftwise.load(tmp_path)
    # A format that is no number.
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    head = json.loads(header["__metadata__"]["driftwise"])
    header["__metadata__"]["driftwise"] = json.dumps({**head, "format": float("inf")})
    changed = json.dumps(header).encode()
    changed += b" " * (-len(changed) % 8)
    file.write_bytes(len(changed).to_bytes(8, "little") + changed + content[end:])
    assert "is damaged" in complaint(lambda: run(SMALL, tmp_path, resume=True))


def test_a_predictor_of_an_earlier_state_than_the_last_warns(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        driftwise.load(tmp_path / "run")
    (tmp_path / "run" / store.CHECKPOINT).write_bytes(b"half")
    with pytest.warns(UserWarning, match="is damaged.*going on from the checkpoint before it"):
        driftwise.load(tmp_path / "run")


def test_a_lock_that_cannot_be_opened_is_held_by_nobody(tmp_path: Path) -> None:
    (tmp_path / store.LOCK).mkdir()
    assert not store.is_busy(tmp_path)
