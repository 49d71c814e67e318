from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from run_tools import complaint, strict_json
from safetensors.torch import load_file

from driftwise import files
from driftwise.errors import RunFailure, UserError
from driftwise.runs import store
from driftwise.runs.append_log import Journal
from driftwise.runs.store import RunFolder

CONFIG: dict[str, Any] = {"method": "er", "lr": 0.1, "detector": {"name": "ks", "level": 0.05}}


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder: None for folders, content for files."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def started(folder: Path, **files: str) -> Path:
    """A folder with an unfinished run that nobody holds, and further files in it."""
    RunFolder.open(folder, CONFIG).close()
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    return folder


def python(code: str, *arguments: object) -> list[str]:
    """A command that runs `code` with everything imported that the tests of processes need."""
    head = "import json, os, sys, time\nfrom driftwise.runs.store import RunFolder\n"
    head += "from driftwise.errors import RunFailure, UserError\n"
    return [sys.executable, "-c", head + textwrap.dedent(code), *map(str, arguments)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `code` and has printed one line; killed with SIGKILL in the end."""
    command = python(code, *arguments)
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def refusal(folder: Path, config: dict[str, Any] = CONFIG, /, **how: bool) -> str:
    """The one line with which opening is refused, having changed nothing."""
    with pytest.raises(UserError) as caught:
        RunFolder.open(folder, config, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def failing(monkeypatch: pytest.MonkeyPatch, step: str, code: int = errno.ENOSPC) -> None:
    """Let one step of an atomic write fail as a full disk would make it fail."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    if step == "write":
        # As the kernel does it: some bytes arrive, then no more.
        really_open = Path.open

        class Full:
            def __init__(self, file: Any) -> None:
                self._file = file

            def __getattr__(self, name: str) -> Any:
                return getattr(self._file, name)

            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                self._file.close()

            def write(self, content: bytes) -> int:
                self._file.write(content[: len(content) // 2])
                fail()
                return 0

        def opened(path: Path, mode: str = "r", *arguments: Any, **more: Any) -> Any:
            file = really_open(path, mode, *arguments, **more)
            return Full(file) if "x" in mode else file

        monkeypatch.setattr(Path, "open", opened)
    else:
        monkeypatch.setattr(os, step, fail)


STEPS = pytest.mark.parametrize("step", ["write", "fsync", "replace"])


# Opening a folder


@pytest.mark.parametrize("how", [{}, {"resume": True}, {"overwrite": True}], ids=str)
def test_a_missing_or_empty_folder_becomes_a_run(tmp_path: Path, how: dict[str, bool]) -> None:
    for folder in (tmp_path, tmp_path / "deep" / "er" / "run"):
        with RunFolder.open(folder, CONFIG, **how) as run:
            assert run.path == folder
            assert not run.finished
            assert run.load_checkpoint() is None
        assert names(folder) == {"config.json", "checksums.json", ".lock"}
        assert store.read_config(folder) == CONFIG
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


def test_remains_of_a_crash_before_the_config_count_as_empty(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("12345\n")
    (tmp_path / ".config.json.12345.tmp").write_text('{"meth')
    RunFolder.open(tmp_path, CONFIG).close()
    assert names(tmp_path) == {"config.json", "checksums.json", ".lock"}


def test_a_run_that_is_there_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    folder = started(tmp_path / "run", events_jsonl='{"task": 1}\n')
    before = snapshot(folder)
    assert refusal(folder) == (
        f"{folder} already holds an unfinished run; "
        "go on with resume=True or start anew with overwrite=True"
    )
    assert "exclude each other" in refusal(folder, resume=True, overwrite=True)
    (folder / "result.json").write_text("{}")
    (folder / ".lock").unlink()  # a copy without hidden files gets none
    assert "already holds a finished run" in refusal(folder)
    (folder / "result.json").unlink()
    assert snapshot(folder) == {name: before[name] for name in before if name != ".lock"}


def test_overwrite_removes_the_run_and_nobody_elses_files(tmp_path: Path) -> None:
    folder = started(tmp_path, result_json="{}", events_jsonl="{}\n", notes_txt="mine")
    (folder / "checkpoint.safetensors").write_bytes(b"old")
    (folder / "samples.safetensors").write_bytes(b"old")
    (folder / ".result.json.99.tmp").write_bytes(b"old")
    (folder / ".other.tmp").write_bytes(b"mine")
    (folder / "figures").mkdir()
    with RunFolder.open(folder, {"lr": 0.2}, overwrite=True) as run:
        assert not run.finished
        assert run.load_checkpoint() is None
    ours = {"config.json", "checksums.json", ".lock"}
    assert names(folder) == ours | {"notes.txt", ".other.tmp", "figures"}
    assert store.read_config(folder) == {"lr": 0.2}


@pytest.mark.parametrize("name", ["notes.txt", "config.json", ".hidden"])
def test_a_folder_of_somebody_else_is_never_taken(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    before = snapshot(tmp_path)
    for how in ({}, {"resume": True}, {"overwrite": True}):
        assert refusal(tmp_path, **how) == (
            f"{tmp_path} holds files but no run; choose an empty or new folder"
        )
    assert snapshot(tmp_path) == before


def test_resume_goes_on_with_the_same_config(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, {"classes": (1, 2), "seed": 0}).close()
    written = (tmp_path / "config.json").read_bytes()
    with RunFolder.open(tmp_path, {"seed": 0, "classes": (1, 2)}, resume=True) as run:
        assert not run.finished
        run.write_result({"faa": 1.0})
    with RunFolder.open(tmp_path, {"seed": 0, "classes": [1, 2]}, resume=True) as run:
        assert run.finished
        assert run.result() == {"faa": 1.0}
    assert (tmp_path / "config.json").read_bytes() == written


def test_resume_names_what_differs(tmp_path: Path) -> None:
    folder = started(tmp_path)
    here = {"method": "er", "lr": 0.03, "detector": {"name": "mmd", "level": 0.05}, "seed": 7}
    assert refusal(folder, here, resume=True) == (
        f'{folder} holds a run of another config (lr: 0.1 there, 0.03 here; detector.name: "ks" '
        'there, "mmd" here; seed: 0 there, 7 here); '
        "choose another folder or start anew with overwrite=True"
    )
    assert "(lr: 0.1 there, absent here; detector" in refusal(folder, {"method": "er"}, resume=True)
    assert "; and 3 more)" in refusal(folder, dict.fromkeys("abcde", 0), resume=True)
    assert store.read_config(folder) == CONFIG
    # A setting that a later version adds, and leaves open, makes no other run.
    RunFolder.open(folder, {**CONFIG, "code_identity": None}, resume=True).close()


def test_other_source_of_custom_parts_is_another_run_and_unreadable_source_always_is(
    tmp_path: Path,
) -> None:
    folder = started(tmp_path)
    message = refusal(folder, {**CONFIG, "code_identity": "0" * 16}, resume=True)
    assert "(the source of custom parts, or of local modules they import, has changed)" in message
    nobody_knows = {**CONFIG, "code_identity": "unreadable"}
    RunFolder.open(folder, nobody_knows, overwrite=True).close()
    assert "cannot be read" in refusal(folder, nobody_knows, resume=True)


def test_a_setting_added_since_is_at_its_default_in_a_run_begun_before(tmp_path: Path) -> None:
    folder = started(tmp_path / "old")
    assert "precision" not in CONFIG
    RunFolder.open(folder, {**CONFIG, "precision": "fp32"}, resume=True).close()
    other = refusal(folder, {**CONFIG, "precision": "bf16"}, resume=True)
    assert '(precision: "fp32" there, "bf16" here)' in other


def test_a_config_that_json_cannot_say_costs_nothing(tmp_path: Path) -> None:
    folder = started(tmp_path / "old", result_json="{}")
    before = snapshot(tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        RunFolder.open(folder, {"lr": float("nan")}, overwrite=True)
    with pytest.raises(TypeError):
        RunFolder.open(tmp_path / "new", {"lr": object()})  # type: ignore[dict-item]
    assert snapshot(tmp_path) == before


# Folders that cannot be had


def test_a_file_or_a_dangling_link_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        assert refusal(tmp_path / name) == f"{tmp_path / name} is not a folder; choose another"
    assert (tmp_path / "file").read_text() == "x"


def test_a_folder_that_cannot_be_made_is_reported_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    below = tmp_path / "file" / "deep" / "run"
    assert refusal(below) == f"cannot start a run in {below}: Not a directory"
    assert refusal(Path("/proc/nowhere/run")).startswith("cannot start a run in /proc/nowhere/run:")
    assert refusal(tmp_path / ("x" * 300)).endswith("File name too long")
    assert names(tmp_path) == {"file"}


@pytest.mark.parametrize(("place", "method"), [(Path, "mkdir"), (os, "open")])
def test_missing_permission_is_reported_and_made_folders_go_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: object, method: str
) -> None:
    real: Callable[..., Any] = getattr(place, method)

    def guarded(path: str | Path, *args: Any, **kwargs: Any) -> Any:
        if Path(path).name in ("run", ".lock"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *args, **kwargs)

    folder = tmp_path / "a" / "b" / ("run" if method == "mkdir" else "c")
    with monkeypatch.context() as patch:
        patch.setattr(place, method, guarded)
        assert refusal(folder) == f"cannot start a run in {folder}: Permission denied"
    assert names(tmp_path) == set()


@STEPS
def test_a_config_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    failing(monkeypatch, step)
    folder = tmp_path / "deep" / "run"
    assert refusal(folder) in [  # a file's checksum is written before the file appears
        f"cannot start a run: cannot write {folder / first}: No space left on device"
        for first in ("config.json", "checksums.json")
    ]
    assert names(tmp_path) == set()
    assert "No space left" in refusal(tmp_path)
    assert names(tmp_path) == set()


# One writer at a time


HOLD = """
run = RunFolder.open(sys.argv[1], json.loads(sys.argv[2]), resume=True)
print("ready", flush=True)
time.sleep(60)
"""


def test_a_live_writer_keeps_others_out_and_a_killed_one_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with child(HOLD, folder, json.dumps(CONFIG)) as process:
        before = snapshot(folder)
        for how in ({}, {"resume": True}, {"overwrite": True}):
            assert refusal(folder, **how) == (
                f"{folder} is in use by another process (pid {process.pid})"
            )
        assert snapshot(folder) == before
    assert process.returncode == -signal.SIGKILL
    assert (folder / ".lock").exists()
    with RunFolder.open(folder, CONFIG, resume=True) as run:
        assert (folder / ".lock").read_text() == f"{os.getpid()}\n"
        run.write_result({})


def test_a_folder_is_held_until_closed_also_within_a_process(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG):
        assert "is in use by another process" in refusal(tmp_path, resume=True)
    run = RunFolder.open(tmp_path, CONFIG, resume=True)
    run.close()
    with pytest.raises(AssertionError, match="after it had been closed"):
        run.append_event({})
    RunFolder.open(tmp_path, CONFIG, resume=True).close()


def test_of_many_that_start_at_once_one_gets_the_folder(tmp_path: Path) -> None:
    code = """
    print("ready", flush=True)
    sys.stdin.readline()  # all start together
    try:
        run = RunFolder.open(sys.argv[1], json.loads(sys.argv[2]), resume=True)
    except UserError as error:
        print(error, flush=True)
    else:
        print("mine", flush=True)
        sys.stdin.read()  # held until all have tried
    """
    command = python(code, tmp_path / "run", json.dumps(CONFIG))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [
        subprocess.Popen(command, env=ENVIRONMENT, text=True, **pipes)  # type: ignore[call-overload]
        for _ in range(3)
    ]
    assert all(process.stdout.readline() for process in processes)
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = sorted(process.stdout.readline().strip() for process in processes)
    for process in processes:
        process.communicate()
    assert printed.count("mine") == 1
    assert [line for line in printed if line != "mine" and "is in use by" not in line] == []


@pytest.mark.parametrize("replaced", [True, False])
def test_a_lock_file_taken_away_before_it_is_locked_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    real, tries = fcntl.flock, []

    def flock(file: Any, how: int) -> None:
        real(file, how)
        tries.append(os.fstat(file.fileno()).st_ino)
        if len(tries) == 1:  # the last holder took its lock file away just before
            (tmp_path / ".lock").unlink()
            if replaced:
                (tmp_path / ".lock").touch()

    monkeypatch.setattr(fcntl, "flock", flock)
    with RunFolder.open(tmp_path, CONFIG):
        assert len(tries) == 2
        assert tries[-1] == (tmp_path / ".lock").stat().st_ino
        monkeypatch.undo()
        assert "is in use" in refusal(tmp_path)


# Whole files or none


@STEPS
def test_a_failed_write_keeps_the_old_file_and_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.append_event({"task": 1})
        run.write_result({"faa": 1})
        run.save_checkpoint({"step": 1})
        run.save_arrays("samples", {"x": torch.ones(1)})
        before = snapshot(tmp_path)
        writes: dict[str, Callable[[], None]] = {
            "result.json": lambda: run.write_result({"faa": 2}),
            "checkpoint.safetensors": lambda: run.save_checkpoint({"step": torch.ones(9)}),
            "samples.safetensors": lambda: run.save_arrays("samples", {"x": torch.ones(9)}),
            "config.json": lambda: files.write_json(tmp_path / "config.json", [1]),
        }
        failing(monkeypatch, step)
        for name, write in writes.items():
            with pytest.raises(RunFailure) as caught:
                write()
            # Before a checkpoint the events are made safe, before other files their checksum is:
            # so there it is they that fail to be.
            firsts = {name, "checksums.json", "events.jsonl"}
            message = [
                f"cannot write {tmp_path / first}: No space left on device" for first in firsts
            ]
            assert str(caught.value) in message
            assert snapshot(tmp_path) == before


def test_a_link_under_a_name_that_can_be_guessed_leads_no_writing_elsewhere(tmp_path: Path) -> None:
    folder, victim = tmp_path / "strange", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    for number in (os.getpid(), ""):
        for name in ("x.json", "run.html"):
            (folder / f".{name}.{number}.tmp").symlink_to(victim)
    (folder / "x.json").symlink_to(victim)
    files.write_json(folder / "x.json", {"new": 1})
    assert victim.read_text() == "precious"
    assert not (folder / "x.json").is_symlink()
    assert strict_json((folder / "x.json").read_text()) == {"new": 1}


def test_writers_that_share_a_process_id_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those in two containers do."""
    monkeypatch.setattr(os, "fsync", lambda _: time.sleep(0.001))
    failed: list[Exception] = []

    def write() -> None:
        for number in range(20):
            try:
                files.write_json(tmp_path / "x.json", {"number": number})
            except RunFailure as error:
                failed.append(error)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failed == []
    assert names(tmp_path) == {"x.json"}


@pytest.mark.parametrize("kind", ["link to nothing", "link to a file", "pipe"])
def test_what_stands_in_the_place_of_a_lock_or_a_log_is_neither_made_nor_written(
    tmp_path: Path, kind: str
) -> None:
    victim = tmp_path / "victim"
    if kind == "link to a file":
        victim.write_text("precious")
    run = started(tmp_path / "run")
    places = [tmp_path / ".x.json.lock", run / ".lock", run / "events.jsonl"]
    for place in places:
        place.unlink(missing_ok=True)
        os.mkfifo(place) if kind == "pipe" else place.symlink_to(victim)
    assert not store.is_busy(run)
    with pytest.raises(RunFailure, match=r"x.json.lock: it is"), files.alone(tmp_path / "x.json"):
        pass
    with pytest.raises(UserError, match=r"link|regular file"):
        RunFolder.open(run, CONFIG, resume=True)
    (run / ".lock").unlink()
    with pytest.raises(RunFailure, match=r"events.jsonl: it is"):
        Journal(run / "events.jsonl").append({"task": 1})
    assert victim.exists() == (kind == "link to a file")
    assert not victim.exists() or victim.read_text() == "precious"


def test_only_files_that_are_noted_are_removed_and_only_from_the_folder_itself(
    tmp_path: Path,
) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    for folder in (out / "pages", elsewhere):
        folder.mkdir(parents=True)
        for name in ("ours.html", "mine.html"):
            (folder / name).touch()
    manifest = files.Manifest(out, "pages")
    manifest.add(["ours.html"])
    manifest.remove(["ours.html", "mine.html"])
    assert names(out / "pages") == {"mine.html"}
    assert names(out) == {"pages"}
    # What a stranger has noted reaches nothing outside either.
    (out / "linked").symlink_to(elsewhere)
    forged = {"pages": ["../../elsewhere/ours.html", ".."], "../elsewhere": ["ours.html"]}
    files.write_json(out / files.MANIFEST, {**forged, "linked": ["ours.html"]})
    everything = ["../../elsewhere/ours.html", "..", "ours.html"]
    files.Manifest(out, "pages").remove(everything)
    with pytest.raises(UserError, match="is a link"):
        files.Manifest(out, "linked").remove(everything)
    assert names(elsewhere) == {"ours.html", "mine.html"}
    for damaged in ("{", "[]", '{"pages": 3}', '{"pages": [3]}'):
        (out / files.MANIFEST).write_text(damaged)
        assert files.Manifest(out, "pages").names() == set()


def test_a_writer_killed_in_the_middle_leaves_the_old_file_and_the_next_tidies_up(
    tmp_path: Path,
) -> None:
    code = """
    run = RunFolder.open(sys.argv[1], json.loads(sys.argv[2]))
    run.write_result({"faa": 1})
    def fsync(_):
        print("ready", flush=True)
        time.sleep(60)
    os.fsync = fsync
    run.write_result({"faa": 2})
    """
    with child(code, tmp_path, json.dumps(CONFIG)):
        pass
    ours = {"config.json", "result.json", "checksums.json", ".lock"}
    left = {re.sub(r"[0-9a-f]{16}", "RANDOM", name) for name in names(tmp_path) - ours}
    assert left == {".result.json.RANDOM.tmp", ".checksums.json.RANDOM.tmp"}
    with RunFolder.open(tmp_path, CONFIG, resume=True) as run:
        assert run.result() == {"faa": 1}
    assert names(tmp_path) == ours


def test_a_fork_writes_nothing_into_a_folder_that_its_parent_holds(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG) as run:
        before = snapshot(tmp_path / "run")
        pid = os.fork()
        if not pid:  # nothing of pytest must run here
            refused = 0
            for write in (run.append_event, run.append_record, run.write_result):
                try:
                    write({})
                except UserError as error:
                    refused += "of which this one is a fork" in str(error)
            os._exit(refused)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 3
        assert snapshot(tmp_path / "run") == before
        assert store.is_busy(tmp_path / "run"), "it is still held"


def test_a_folder_that_goes_away_fails_the_run_at_the_next_write(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG) as run:
        run.append_event({"task": 1})
        shutil.rmtree(tmp_path / "run")
        for write in (run.append_event, run.write_result, run.save_checkpoint):
            with pytest.raises(
                RunFailure, match=r"^cannot write .*: No such file or directory(;|$)"
            ):
                write({})


def test_json_is_written_in_the_order_given_and_never_with_nan(tmp_path: Path) -> None:
    files.write_json(tmp_path / "x.json", {"b": [1.5, None], "a": "é"})
    text = '{\n "b": [\n  1.5,\n  null\n ],\n "a": "\\u00e9"\n}\n'
    assert (tmp_path / "x.json").read_text() == text
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "x.json", {"faa": float("nan")})
    assert snapshot(tmp_path) == {"x.json": text.encode()}


def test_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_json(tmp_path / "x.json", {})
    finally:
        os.umask(before)
    assert (tmp_path / "x.json").stat().st_mode & 0o777 == 0o640


# Checkpoint and events


def test_a_checkpoint_comes_back_and_equal_ones_have_equal_bytes(tmp_path: Path) -> None:
    state = {"rows": torch.arange(6).reshape(2, 3), "rng": (1, None), 3: 0.1}
    contents = []
    for name in ("one", "two"):
        with RunFolder.open(tmp_path / name, CONFIG) as run:
            run.append_event({"task": 1})
            run.save_checkpoint({"an": "older one"})
            run.save_checkpoint(state)
            contents.append((tmp_path / name / "checkpoint.safetensors").read_bytes())
            back = run.load_checkpoint()
        assert back["rows"].equal(state["rows"])
        assert {**back, "rows": None} == {**state, "rows": None}
        assert store.read_checkpoint(tmp_path / name)["rng"] == (1, None)
    assert contents[0] == contents[1]


def test_events_and_records_after_the_checkpoint_are_dropped_on_resume(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.append_event({"task": 0})
    with RunFolder.open(tmp_path, CONFIG, resume=True) as run:
        assert run.load_checkpoint() is None
        assert (tmp_path / "events.jsonl").read_bytes() == b""
        run.append_event({"task": 1, "name": "é\n"})
        run.append_record({"task": 1, "score": 0.1})
        run.save_checkpoint({"task": 1})
        run.append_event({"task": 2})
        run.append_record({"task": 2, "score": 0.2})
        with pytest.raises(ValueError, match="not JSON compliant"):
            run.append_event({"loss": float("inf")})
    for name in ("events.jsonl", "records.jsonl"):
        with (tmp_path / name).open("a") as log:
            log.write('{"task": 3, "torn')  # the process died within this line
    assert store.read_checkpoint(tmp_path) == {"task": 1}
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 3  # reading changes nothing
    with RunFolder.open(tmp_path, CONFIG, resume=True) as run:
        assert run.load_checkpoint() == {"task": 1}
        run.append_event({"task": 2})
        run.append_record({"task": 2, "score": 0.25})
        assert run.records() == [{"task": 1, "score": 0.1}, {"task": 2, "score": 0.25}]
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"task": 1, "name": "é\n"}, {"task": 2}]


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_checkpoint_whose_records_are_damaged_gives_way_to_the_one_before(
    tmp_path: Path, damage: str
) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.append_record({"task": 1})
        run.save_checkpoint({"tasks_done": 1})
        run.append_record({"task": 2})
        run.save_checkpoint({"tasks_done": 2})
    file = tmp_path / "records.jsonl"
    if damage == "changed":
        file.write_text(file.read_text().replace("2", "3"))
    elif damage == "cut":
        os.truncate(file, len('{"task": 1}\n{"ta'))
    else:
        file.unlink()
    warnings: list[str] = []
    with RunFolder.open(tmp_path, CONFIG, resume=True) as run:
        if damage == "gone":
            line = complaint(lambda: run.load_checkpoint(warnings.append))
            assert line.startswith(f"{file} is damaged: its first 24 bytes are not as they were")
            assert line.endswith("; start anew with overwrite=True")
        else:
            assert run.load_checkpoint(warnings.append) == {"tasks_done": 1}
            assert run.records() == [{"task": 1}]
            assert len(warnings) == 1
            assert warnings[0].endswith("written; going on from the checkpoint before it")


def test_records_that_somebody_changes_during_a_run_make_no_result(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.append_record({"task": 1})
        (tmp_path / "records.jsonl").write_text('{"task": 2}\n')
        assert "was changed by somebody else" in complaint(run.records, RunFailure)


def test_after_falling_back_there_are_two_good_checkpoints_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.save_checkpoint({"step": 1})
        run.save_checkpoint({"step": 2})
    (tmp_path / store.CHECKPOINT).write_bytes(b"half")
    replace = Path.replace

    def crash(self: Path, target: Path) -> Path:
        if target.name == store.CHECKPOINT:
            raise KeyboardInterrupt
        return replace(self, target)

    with RunFolder.open(tmp_path, CONFIG, resume=True) as run:
        assert run.load_checkpoint() == {"step": 1}
        monkeypatch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):  # once the last one has become the one before
            run.save_checkpoint({"step": 2})
        monkeypatch.undo()
        assert run.load_checkpoint() == {"step": 1}


def test_a_finished_run_keeps_all_of_its_events(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.save_checkpoint({"task": 1})
        run.append_event({"task": 2})
        run.write_result({})
        assert run.load_checkpoint() == {"task": 1}
    assert (tmp_path / "events.jsonl").read_text() == '{"task": 2}\n'


@pytest.mark.parametrize("length", [0, -1])
def test_a_damaged_checkpoint_is_reported_with_its_file_and_drops_no_events(
    tmp_path: Path, length: int
) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.save_checkpoint({"x": torch.ones(4)})
        run.append_event({"task": 1})
        file = tmp_path / "checkpoint.safetensors"
        file.write_bytes(file.read_bytes()[:length])
        with pytest.raises(UserError) as caught:
            run.load_checkpoint()
    assert str(caught.value).startswith(f"{file} is damaged: ")
    assert (tmp_path / "events.jsonl").read_text() == '{"task": 1}\n'


# Samples and readers


def test_arrays_are_kept_as_a_plain_safetensors_file(tmp_path: Path) -> None:
    images = torch.arange(12, dtype=torch.uint8).reshape(1, 2, 2, 3)
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.save_arrays("samples", {"before": images[:, :, ::2], "same": images[:, :, ::2]})
        with pytest.raises(KeyError):
            run.save_arrays("other", {})
    kept = load_file(tmp_path / "samples.safetensors")
    assert kept["before"].equal(images[:, :, ::2])
    assert kept["same"].equal(images[:, :, ::2])


def test_a_reader_distinguishes_finished_unfinished_and_empty_folders(tmp_path: Path) -> None:
    run = started(tmp_path / "run")
    assert (store.is_run(run), store.is_finished(run)) == (True, False)
    with pytest.raises(
        UserError, match=r"run holds an unfinished run; finish it with resume=True$"
    ):
        store.read_result(run)
    files.write_json(run / "result.json", {"faa": 81.5})
    assert (store.is_run(run), store.is_finished(run)) == (True, True)
    assert store.read_result(run) == {"faa": 81.5}
    for nothing in (tmp_path, tmp_path / "missing", run / "config.json"):
        assert (store.is_run(nothing), store.is_finished(nothing)) == (False, False)
        with pytest.raises(
            UserError, match=r"holds no run; expected a folder with config.json and"
        ):
            store.read_result(nothing)
        with pytest.raises(UserError, match=r"holds no run; expected a folder with config.json$"):
            store.read_config(nothing)
        assert store.read_checkpoint(nothing) is None


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"\xff\xfe\xfa"])
def test_a_damaged_json_file_is_reported_by_name(tmp_path: Path, content: bytes) -> None:
    run = started(tmp_path)
    for name, read in (("result.json", store.read_result), ("config.json", store.read_config)):
        (run / name).write_bytes(content)
        with pytest.raises(UserError) as caught:
            read(run)
        assert str(caught.value).startswith(f"{run / name} is damaged: ")
        assert "\n" not in str(caught.value)


def test_a_folder_that_may_not_be_entered_is_reported_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    for method in ("exists", "iterdir", "stat"):
        monkeypatch.setattr(Path, method, denied)
    assert not store.is_run(tmp_path)
    for read in (store.read_config, store.read_result, store.read_checkpoint):
        with pytest.raises(UserError, match=r"^cannot read .*: Permission denied$"):
            read(tmp_path)


def test_the_store_can_be_imported_and_refuse_without_torch(tmp_path: Path) -> None:
    code = """
    try:
        RunFolder.open(sys.argv[1], {})
    except UserError:
        assert "torch" not in sys.modules
        print("refused")
    """
    (tmp_path / "file").touch()
    command = python(code, tmp_path)
    done = subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "refused\n"


# --- checksums ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_a_file_that_was_changed_afterwards_is_reported(tmp_path: Path, name: str) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.write_result({"faa": 1.5})
    store.read_config(tmp_path)
    store.read_result(tmp_path)
    content = (tmp_path / name).read_text()
    (tmp_path / name).write_text(content.replace(":", ": ", 1))  # the same JSON, other bytes
    read = store.read_config if name == "config.json" else store.read_result
    assert "is damaged: its checksum in checksums.json does not fit" in complaint(
        lambda: read(tmp_path)
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:20],
        lambda text: text.replace("config", "confih"),  # it would have no checksum any more
        lambda text: '{"config.json": 5}',
    ],
    ids=["cut", "another name", "no list"],
)
def test_damaged_checksums_are_reported_and_do_not_count_as_absent(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.write_result({"faa": 1.5})
    file = tmp_path / "checksums.json"
    file.write_text(damage(file.read_text()))
    for line in (
        refusal(tmp_path, resume=True),
        complaint(lambda: store.read_config(tmp_path)),
        complaint(lambda: store.read_result(tmp_path)),
    ):
        assert line.startswith(f"{file} is damaged: ")
        assert line.endswith("or remove it to go on without checksums")
    file.unlink()
    with RunFolder.open(tmp_path, CONFIG, resume=True) as run:
        assert run.result() == {"faa": 1.5}


def test_checksums_that_have_none_of_their_own_count_as_before(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.write_result({"faa": 1.5})
    file = tmp_path / "checksums.json"
    seals = json.loads(file.read_text())
    del seals["checksums.json"]
    file.write_text(json.dumps(seals))
    assert store.read_result(tmp_path) == {"faa": 1.5}
    (tmp_path / "result.json").write_text("{}")
    assert "does not fit" in complaint(lambda: store.read_result(tmp_path))


def test_a_crash_between_a_checksum_and_its_file_leaves_both_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.write_result({"faa": 1.0})
        replace = Path.replace

        def crash(self: Path, target: Path) -> Path:
            if target.name == "result.json":
                raise KeyboardInterrupt
            return replace(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", crash)
            for number in (2.0, 2.5):  # again and again
                with pytest.raises(KeyboardInterrupt):
                    run.write_result({"faa": number})
        assert run.result() == {"faa": 1.0}
        run.write_result({"faa": 3.0})
        assert run.result() == {"faa": 3.0}


@pytest.mark.parametrize("content", ['{"task": 2}\n', ""])
def test_an_event_log_that_was_changed_is_warned_of_and_stops_nobody(
    tmp_path: Path, content: str
) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.append_event({"task": 1})
        run.save_checkpoint({"step": 1})
    events = tmp_path / "events.jsonl"
    events.write_text(content)
    warnings: list[str] = []
    with RunFolder.open(tmp_path, CONFIG, resume=True) as run:
        assert run.load_checkpoint(warnings.append) == {"step": 1}
        assert len(warnings) == 1
        assert warnings[0].startswith(f"{events} is not as it was written")
        # What it says from now on is sealed together with what is there.
        run.append_event({"task": 2})
        run.save_checkpoint({"step": 2})
    with RunFolder.open(tmp_path, CONFIG, resume=True) as run:
        assert run.load_checkpoint(warnings.append) == {"step": 2}
    assert len(warnings) == 1


@pytest.mark.parametrize("damage", [b"half", None])
def test_damaged_arrays_are_empty_and_reported(tmp_path: Path, damage: bytes | None) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        warnings: list[str] = []
        assert run.load_arrays("features", warnings.append) == {}
        run.save_arrays("features", {"x": torch.ones(2)})
        assert torch.equal(run.load_arrays("features", warnings.append)["x"], torch.ones(2))
        assert warnings == []
        file = tmp_path / "features.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1  # still a whole file of its kind
        file.write_bytes(damage or content)
        assert run.load_arrays("features", warnings.append) == {}
    assert warnings == [f"{file} is damaged: what it held of earlier tasks is lost"]


def test_a_result_and_a_checkpoint_of_another_run_are_refused(tmp_path: Path) -> None:
    for name, config in (("one", CONFIG), ("two", {**CONFIG, "lr": 0.2})):
        with RunFolder.open(tmp_path / name, config) as run:
            run.save_checkpoint({"of": name})
            run.write_result({"config": config})
    (tmp_path / "one" / "checksums.json").unlink()
    for name in ("result.json", "checkpoint.safetensors"):
        shutil.copy(tmp_path / "two" / name, tmp_path / "one" / name)
    with RunFolder.open(tmp_path / "one", CONFIG, resume=True) as run:
        assert "is the result of another run (lr: 0.2 there, 0.1 here)" in complaint(run.result)
        assert "is the checkpoint of another run" in complaint(run.load_checkpoint)


def test_asking_whether_a_folder_is_busy_disturbs_nobody(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG):
        assert store.is_busy(tmp_path)
    with (tmp_path / ".lock").open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)  # as another process that asks at the same moment
        assert not store.is_busy(tmp_path)


def test_a_folder_that_was_removed_and_made_again_is_held_again(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG) as run:
        shutil.rmtree(tmp_path / "run")
        (tmp_path / "run").mkdir()
        run.save_checkpoint({"step": 1})
        assert store.read_config(tmp_path / "run") == CONFIG
        assert store.is_busy(tmp_path / "run")


@pytest.mark.parametrize("complete", [1, 2])
def test_complete_tasks_without_a_checkpoint_are_refused_but_for_the_first(
    tmp_path: Path, complete: int
) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        for task in range(complete):
            run.append_record({"task": task + 1})
        warnings: list[str] = []
        if complete == 1:  # the process died between the record and its checkpoint
            assert run.load_checkpoint(warnings.append) is None
            assert run.records() == []
            assert warnings == [
                f"{tmp_path} has no checkpoint of its first task, which begins again"
            ]
        else:
            assert "although 2 tasks are complete" in complaint(run.load_checkpoint)
            assert len(run.records()) == 2


def test_a_checkpoint_that_has_gone_is_reported_and_the_one_before_counts(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        run.save_checkpoint({"step": 1})
        run.save_checkpoint({"step": 2})
        (tmp_path / store.CHECKPOINT).unlink()
        warnings: list[str] = []
        assert run.load_checkpoint(warnings.append) == {"step": 1}
    assert len(warnings) == 1
    assert "is missing; going on from the checkpoint before it" in warnings[0]
