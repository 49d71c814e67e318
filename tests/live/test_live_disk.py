"""A disk that refuses to write costs no learned sample; the log waits, and is bounded."""

from __future__ import annotations

import contextlib
import errno
import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_tools import STABLE, live_learner, state_of
from run_tools import complaint, events_of
from same_state import same

import driftwise
from driftwise.errors import RunFailure
from driftwise.live import Event, events
from driftwise.live import live_learner as live_module
from driftwise.runs import store


def observe(mine: driftwise.LiveLearner, start: int) -> Any:
    """Ten samples; the last of them has a new class, and so a line in the log."""
    labels = STABLE.labels[start : start + 10] % 3
    labels[-1] = 3 + start // 10
    return mine.observe(STABLE.images[start : start + 10], labels)


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """By a real limit of the system, which write() meets in mid-line."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (folder / store.EVENTS).stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def gone(folder: Path) -> Iterator[None]:
    away = folder.with_name("away")
    folder.rename(away)
    try:
        yield
    finally:
        away.rename(folder)


@contextlib.contextmanager
def read_only(_: Path) -> Iterator[None]:
    """As every call that changes a file would find it; root may write whatever the mode."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.open", refuse)
        patch.setattr(Path, "open", refuse)
        patch.setattr(Path, "replace", refuse)
        yield


@pytest.mark.parametrize("trouble", [full, gone, read_only])
def test_whatever_the_disk_refuses_nothing_that_was_learned_is_lost(
    trouble: Callable[[Path], contextlib.AbstractContextManager[None]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_module, "RETRY_SECONDS", 0.0)
    folder, undisturbed = tmp_path / "it", live_learner(seed=3)
    mine = live_learner(folder=folder, seed=3)
    for each in (mine, undisturbed):
        observe(each, 0)
    mine.save()
    with trouble(folder):
        first = observe(mine, 10)
        assert first.loss is not None
        assert [note for note in first.notes if "events wait to be logged" in note]
        with pytest.raises(RunFailure):
            mine.save()
        second = observe(mine, 20)
        assert [note for note in second.notes if "which is tried again" in note]
        assert not [note for note in second.notes if "wait to be logged" in note], "noted once"
    for start in (10, 20):
        observe(undisturbed, start)
    assert not observe(mine, 30).notes, "saved by itself, and logged, once the disk writes again"
    observe(undisturbed, 30)
    mine._release()  # as if killed: nothing more is saved
    again = driftwise.LiveLearner.load(folder)
    assert again.num_samples == 40
    state, expected = state_of(again), state_of(undisturbed)
    assert state["teller"]["counters"].pop("save_failures_total") == 2
    assert state["teller"]["counters"].pop("log_failures_total") >= 2
    for name in ("save_failures_total", "log_failures_total"):
        del expected["teller"]["counters"][name]
    assert same(state, expected)
    steps = [event["step"] for event in events_of(folder) if event["event"] == "classes"]
    assert steps == [1, 2, 3, 4]
    again.close()


def test_a_folder_that_was_removed_is_saved_to_once_there_is_one_again(tmp_path: Path) -> None:
    folder = tmp_path / "it"
    mine = live_learner(folder=folder)
    observe(mine, 0)
    mine.save()
    folder.rename(tmp_path / "away")
    observe(mine, 10)
    message = complaint(mine.save, RunFailure)
    assert message.endswith("No such file or directory; bring the folder back, or make it again")
    assert not folder.exists(), "the disk may not be mounted"
    folder.mkdir()
    mine.save()
    assert "in use by another process" in complaint(lambda: driftwise.LiveLearner.load(folder))
    mine._release()
    with pytest.warns(UserWarning, match=r"events\.jsonl is not as it was written"):
        again = driftwise.LiveLearner.load(folder)
    assert again.num_samples == 20
    again.close()


def test_a_log_that_cannot_be_written_keeps_the_newest_lines_and_counts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_WAITING", 2)
    mine = live_learner(folder=tmp_path / "it")
    observe(mine, 0)
    mine.on("classes", lambda _: mine.save())
    with full(tmp_path / "it"):
        for start in range(10, 60, 10):
            notes = observe(mine, start).notes
    assert [note for note in notes if "which is tried again" in note]
    assert "driftwise_save_failures_total 5\n" in mine.counters
    observe(mine, 60)
    mine._release()
    logged = [(event["event"], event["step"]) for event in events_of(tmp_path / "it")]
    newest = [(kind, step) for step in (6, 7) for kind in ("classes", "grown")]
    assert logged == [("classes", 1), *newest]
    assert "driftwise_log_lines_lost_total 8\n" in mine.counters


def test_the_log_keeps_two_files_of_bounded_size_and_bounded_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LOG_BYTES", 2000)
    mine, folder = live_learner("mlp", folder=tmp_path / "it"), tmp_path / "it"
    refused: list[Event] = []
    mine.on("refused", refused.append)
    x = STABLE.images[:600].reshape(600, -1).astype("float32")
    mine.observe(x[:5], STABLE.labels[:5])
    x[:] = float("nan")
    mine.observe(x)
    (line,) = [event for event in events_of(folder) if event["event"] == "refused"]
    assert line["rows"] == list(range(20))
    assert line["num_rows"] == 600
    assert refused[0].details["rows"] == list(range(600)), "a callback gets all of them"
    for _ in range(60):
        mine.observe(x[:1])
    sizes = [(folder / name).stat().st_size for name in (store.EVENTS, store.OLDER_EVENTS)]
    assert max(sizes) < 2200
    lines = [
        json.loads(line)
        for name in (store.OLDER_EVENTS, store.EVENTS)
        for line in (folder / name).read_text().splitlines()
    ]
    steps = [line["step"] for line in lines if line["event"] == "refused"]
    assert steps == list(range(steps[0], 63)), "in their order, without a gap"
    mine.close()


def test_a_log_that_began_a_new_file_since_the_last_save_goes_back_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LOG_BYTES", 150)
    folder = tmp_path / "it"
    mine = live_learner(folder=folder)
    observe(mine, 0)
    mine.save()
    before = (folder / store.EVENTS).read_bytes()
    while not (folder / store.OLDER_EVENTS).exists():
        observe(mine, mine.num_samples)
    mine._release()  # as if killed
    again = driftwise.LiveLearner.load(folder)  # without a warning
    assert (folder / store.EVENTS).read_bytes() == before
    again.close()
