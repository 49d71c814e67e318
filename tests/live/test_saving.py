"""Saved and loaded, a live learner goes on to the last bit; damaged or forged folders are refused."""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import (
    CHANGING,
    STABLE,
    before_drift,
    feed,
    live_learner,
    small_network,
    state_of,
    unlabelled,
)
from run_tools import ENVIRONMENT, complaint, events_of
from same_state import same

import driftwise
from driftwise.errors import RunFailure
from driftwise.live import Event, Request
from driftwise.live.engine import LiveEngine
from driftwise.live.settings import to_json
from driftwise.runs import checkpoint as state_file
from driftwise.runs import store

Load = Callable[..., driftwise.LiveLearner]


@pytest.fixture
def load() -> Iterator[Load]:
    """Loads live learners that are released at the end, saved or not."""
    loaded: list[driftwise.LiveLearner] = []

    def it(*arguments: Any, **more: Any) -> driftwise.LiveLearner:
        loaded.append(driftwise.LiveLearner.load(*arguments, **more))
        return loaded[-1]

    yield it
    for each in loaded:
        each._release()


def observe(mine: driftwise.LiveLearner, start: int = 0) -> Any:
    return mine.observe(STABLE.images[start : start + 10], STABLE.labels[start : start + 10])


# Exact resume


@pytest.mark.parametrize(
    ("known", "settings"),
    [
        (1.0, {"method": "der++", "optimiser": "adam", "lr": 0.003}),
        (0.4, {"method": "cls-er", "adaptation": "amr-plus", "check_rows": 15}),
        (1.0, {"method": "ser", "adaptation": "fr-scratch", "lr": 0.05}),
        (0.0, {"detector": "mmd", "check_rows": 20, "catch_up_steps": 30}),
        (1.0, {"detector": "sequential", "reference_size": 6, "check_rows": 1, "lr": 0.05}),
        (1.0, {"optimiser": "adam", "lr": None, "normalise": True, "replay_steps": 2}),
    ],
    ids=["der++", "cls-er", "ser", "unlabelled", "sequential", "defaults"],
)
def test_restarts_change_no_bit(
    tmp_path: Path, load: Load, known: float, settings: dict[str, Any]
) -> None:
    def answers(request: Request) -> Any:
        return CHANGING.labels[request.ids]

    whole = live_learner(labels=answers, **settings)
    paused = live_learner(labels=answers, folder=tmp_path / "it", **settings)
    draw = np.random.default_rng(5)
    adapted = False
    for start, images, labels in CHANGING.batches():
        sure = not known and start < 350
        given = [int(y) if sure or draw.random() < known else None for y in labels]
        one = whole.observe(images, given)
        if start % 130 == 100:
            paused.save()
            paused.close()
            paused = load(tmp_path / "it", labels=answers)
        other = paused.observe(images, given)
        assert np.array_equal(one.predicted, other.predicted)
        assert (one.loss, one.notes, one.verdicts) == (other.loss, other.notes, other.verdicts)
        adapted |= bool(one.adapted)
        if start > 650 and adapted:
            break
    assert adapted, "or nothing worth saving happened"
    state, expected = state_of(paused), state_of(whole)
    if settings.get("detector") == "sequential":  # saved as a set of fingerprints, in any order
        for each in (state, expected):
            for test in each["parts"]["monitors"][0]["detector"]["tests"].values():
                test["known"] = sorted(test["known"].tolist())
    assert same(state, expected)


@pytest.mark.parametrize(("seconds", "lost"), [(0.0, 0), (3600.0, 20), (None, 20)])
def test_a_killed_process_loses_what_came_since_the_last_save_by_itself(
    seconds: float | None, lost: int, tmp_path: Path, load: Load
) -> None:
    mine = live_learner(folder=tmp_path / "it", seed=1, save_seconds=seconds)
    observe(mine, 0)
    mine.save()
    for start in (10, 20):
        observe(mine, start)
    mine._release()  # as if killed: nothing more is saved
    assert load(tmp_path / "it").num_samples == 30 - lost


def test_nothing_is_saved_by_itself_where_there_is_no_folder() -> None:
    assert not observe(live_learner(save_seconds=0.0)).notes


def test_answers_and_requests_that_wait_survive_a_restart(tmp_path: Path, load: Load) -> None:
    requests: list[Request] = []
    mine = before_drift(labels=requests.append, folder=tmp_path / "it")
    unlabelled(mine, alarms=1)
    ids = mine.observe(CHANGING.images[:20]).ids
    mine.answer(ids, CHANGING.labels[:20])
    mine.save()
    after = mine.observe(CHANGING.images[20:30])
    mine._release()  # as a crash would: nothing is saved
    loaded = load(tmp_path / "it")
    again = loaded.observe(CHANGING.images[20:30])
    assert again.loss == after.loss is not None
    assert same(state_of(loaded), state_of(mine))
    assert [r.ids.tolist() for r in loaded.open_requests] == [
        r.ids.tolist() for r in mine.open_requests
    ]
    loaded.answer(requests[0].ids, CHANGING.labels[requests[0].ids])
    loaded.observe(CHANGING.images[:0])
    assert f"labels_late_total {20 + len(requests[0])}\n" in loaded.counters


def test_a_given_network_is_needed_again_and_a_named_one_also_opens_as_a_predictor(
    tmp_path: Path, load: Load
) -> None:
    with live_learner(small_network(3), folder=tmp_path / "it") as mine:
        feed(mine, STABLE, samples=200)  # ten classes: it has grown
    assert "needs its network again" in complaint(lambda: load(tmp_path / "it"))
    loaded = load(tmp_path / "it", small_network(3))
    assert np.array_equal(loaded.predict_proba(STABLE.images), mine.predict_proba(STABLE.images))
    assert (loaded.num_samples, loaded.classes) == (200, tuple(range(10)))
    assert same(state_of(loaded), state_of(mine))
    with live_learner("mlp", folder=tmp_path / "named") as mine:
        feed(mine, STABLE, samples=200)
    assert "give none" in complaint(lambda: load(tmp_path / "named", small_network(3)))
    predictor = driftwise.load(tmp_path / "named")
    assert np.array_equal(predictor.predict(STABLE.images), mine.predict(STABLE.images))


def test_a_detector_that_needs_labels_says_so_once_also_after_a_restart(
    tmp_path: Path, load: Load
) -> None:
    with live_learner(detector="reconstruction", folder=tmp_path / "it") as mine:
        feed(mine, STABLE, samples=20)
        first = mine.observe(STABLE.images[20:30])
    assert "this detector needs labels: unlabelled samples are not monitored" in first.notes
    assert load(tmp_path / "it").observe(STABLE.images[30:40]).notes == ()


def test_a_folder_from_before_some_settings_and_states_is_loaded_with_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def earlier(*parts: Any) -> dict[str, Any]:
        settings = to_json(*parts)
        del settings["catch_up_steps"]
        return settings

    with monkeypatch.context() as patch:
        patch.setattr("driftwise.live.live_learner.to_json", earlier)
        with live_learner(folder=tmp_path / "kept") as mine:
            feed(mine, STABLE, samples=100)
    saved = state_file.read(tmp_path / "kept" / store.CHECKPOINT, format=store.FORMAT)
    state = saved["state"]
    del state["upkeep"]["behind"], state["upkeep"]["untestable"], state["published"]
    del state["upkeep"]["window"]["outdated_before"], state["parts"]["seen"]
    counters = state["teller"]["counters"]
    counters["rows_total"] = counters.pop("samples_total")
    state_file.write(tmp_path / "kept" / store.CHECKPOINT, saved, format=store.FORMAT)
    with driftwise.LiveLearner.load(tmp_path / "kept") as again:
        assert again.num_samples == 100
        assert "driftwise_samples_total 100\n" in again.counters
        assert again._settings.catch_up_steps == 100
        observe(again, 100)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_goes_on_as_the_original_does(copied: Callable[[Any], Any], tmp_path: Path) -> None:
    mine = live_learner(method="der++")
    feed(mine, STABLE, samples=300)
    other = copied(mine)
    assert same(state_of(other), state_of(mine))
    observe(mine, 300)
    assert not same(state_of(other), state_of(mine))
    observe(other, 300)
    assert same(state_of(other), state_of(mine))
    with live_learner(folder=tmp_path / "kept") as mine:
        assert "save it, and load the folder" in complaint(lambda: copied(mine))


# Saving and closing


def test_folders_in_use_taken_or_of_something_else_are_refused(
    tmp_path: Path, finished: Path, load: Load
) -> None:
    mine = live_learner(folder=tmp_path / "it")
    observe(mine)
    mine.save()
    script = f"import driftwise; driftwise.LiveLearner.load({str(tmp_path / 'it')!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 1
    assert f"is in use by another process (pid {os.getpid()})" in done.stderr
    assert "in use" in complaint(lambda: load(tmp_path / "it"))
    mine.close()
    assert "go on with LiveLearner.load" in complaint(lambda: live_learner(folder=tmp_path / "it"))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    assert "holds files but no run" in complaint(lambda: live_learner(folder=tmp_path / "letters"))
    assert "holds no run" in complaint(lambda: load(tmp_path / "letters"))
    assert "no live learner" in complaint(lambda: load(finished))
    # What a kill leaves before the config is written is no run.
    (tmp_path / "killed").mkdir()
    for name in (".lock", "checksums.json", ".config.json.0123456789abcdef.tmp"):
        (tmp_path / "killed" / name).write_text("{}")
    live_learner(folder=tmp_path / "killed").close()
    assert not list((tmp_path / "killed").glob("*.tmp"))
    loaded = load(tmp_path / "killed")
    assert loaded.num_samples == 0, "saved before any sample came"
    observe(loaded)


class Interrupting(torch.nn.Module):
    """A network that fails in training once `fails` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(64, 10)
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails and self.training:
            raise RuntimeError("no room left")
        logits: torch.Tensor = self.head(x.flatten(1))
        return logits


def test_a_live_learner_that_broke_off_in_a_batch_only_predicts_and_saves_nothing_of_it(
    tmp_path: Path, load: Load
) -> None:
    mine = live_learner(Interrupting(), folder=tmp_path / "it")
    observe(mine)
    mine.save()
    predicted = mine.predict(STABLE.images[:10])
    mine.on("classes", lambda _: mine.close())
    assert mine._engine is not None
    vars(mine._engine.learner.network)["fails"] = True
    with pytest.raises(RuntimeError, match="no room left"):
        observe(mine, 10)
    calls: list[Callable[[], object]] = [
        lambda: observe(mine, 10),
        lambda: mine.answer([0], [0]),
        mine.rehearse,
        mine.save,
    ]
    for call in calls:
        message = complaint(call)
        assert "broke off in the middle of a batch (" in message
        assert "no room left" in message
        assert "LiveLearner.load" in message
    assert np.array_equal(mine.predict(STABLE.images[:10]), predicted)
    mine.close()
    assert load(tmp_path / "it", Interrupting()).num_samples == 10
    without_folder = live_learner()
    observe(without_folder)
    without_folder._failure = "no room left"
    for copied in (copy.deepcopy, pickle.dumps):
        assert "broke off" in complaint(lambda copied=copied: copied(without_folder))  # type: ignore[misc]


@pytest.mark.parametrize("interrupts", [False, True])
def test_an_error_in_a_with_block_saves_all_but_a_batch_that_broke_off(
    interrupts: bool, tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[str] = []
    with contextlib.suppress(KeyboardInterrupt), live_learner(folder=tmp_path / "it") as mine:
        mine.on("closed", lambda event: kinds.append(event.kind))
        observe(mine)
        mine.save()

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        observe(mine, 10)
        if interrupts:
            mine.save()
            monkeypatch.setattr(LiveEngine, "_check", interrupted)
            observe(mine, 20)
        raise KeyboardInterrupt
    assert load(tmp_path / "it").num_samples == 20
    assert kinds == ["closed"]


def test_callbacks_find_a_save_complete_and_may_save_or_close(tmp_path: Path, load: Load) -> None:
    """A save or close during a batch is made at its end: state and log agree."""
    folder, copies = tmp_path / "it", list[Path]()

    def back_up(_: Event) -> None:
        copies.append(tmp_path / f"copy {len(copies)}")
        shutil.copytree(folder, copies[-1])

    mine = live_learner(folder=folder)
    mine.on("saved", back_up)
    mine.on("drifted", lambda _: mine.save())
    observe(mine)
    mine.save()
    for _, images, labels in CHANGING.batches():
        if mine.observe(images, labels).adapted:
            break
    mine._release()  # as if killed: nothing more is saved
    assert load(copies[0]).num_samples == 10
    again = load(folder)
    adapted = sum(len(e["classes"]) for e in events_of(folder) if e["event"] == "realigned")
    assert f"driftwise_adaptations_total {adapted}\n" in again.counters
    assert adapted > 0
    closing = live_learner(folder=tmp_path / "closing")
    closing.on("classes", lambda _: closing.close())
    assert observe(closing).new_classes
    assert "has been closed" in complaint(lambda: observe(closing, 10))
    assert load(tmp_path / "closing").num_samples == 10


def test_a_save_that_failed_is_not_announced_and_closing_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    mine, kinds = live_learner(folder=tmp_path / "it"), list[str]()
    observe(mine)
    mine.on("*", lambda event: kinds.append(event.kind))
    with monkeypatch.context() as patch:
        patch.setattr(state_file, "write_into", full)
        for end in (mine.save, mine.close):
            with pytest.raises(RunFailure, match="No space left"):
                end()
    assert kinds == []
    ids = mine.observe(STABLE.images[10:20]).ids
    mine.answer(ids[:1], STABLE.labels[10:11])
    mine.close()
    assert kinds[-1] == "closed"


def test_no_label_is_accepted_that_will_not_be_saved(tmp_path: Path, load: Load) -> None:
    mine, accepted = live_learner(folder=tmp_path / "it"), list[int]()
    observe(mine)
    ids = mine.observe(STABLE.images[10:20]).ids

    def give() -> None:
        with contextlib.suppress(driftwise.UserError):
            while True:
                mine.answer(ids[:1], STABLE.labels[ids[:1]])
                accepted.append(1)
                time.sleep(0.0005)

    giving = threading.Thread(target=give)
    giving.start()
    time.sleep(0.05)
    mine.close()
    giving.join(30)
    assert len(load(tmp_path / "it")._inbox.empty()[0]) == len(accepted) > 0


# Damaged and forged folders


@pytest.fixture(scope="module")
def saved_twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A live learner that was saved after 100 samples and after 200."""
    folder = tmp_path_factory.mktemp("saved") / "it"
    mine = live_learner(folder=folder)
    for start in (0, 100):
        mine.observe(STABLE.images[start : start + 100], STABLE.labels[start : start + 100])
        mine.save()
    mine._release()
    return folder


@pytest.fixture
def folder(saved_twice: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(saved_twice, tmp_path / "it")
    return tmp_path / "it"


def test_a_damaged_or_missing_checkpoint_is_reported(folder: Path, load: Load) -> None:
    (folder / store.CHECKPOINT).write_bytes(b"half")
    with pytest.warns(UserWarning, match="is damaged.*going on from the checkpoint before it"):
        loaded = load(folder)
    assert loaded.num_samples == 100
    loaded._release()
    (folder / store.PREVIOUS).write_bytes(b"half")
    message = complaint(lambda: load(folder))
    assert message.endswith("begin anew in another folder")
    assert "--" not in message
    for name in (store.CHECKPOINT, store.PREVIOUS):
        (folder / name).unlink()
    with pytest.warns(UserWarning, match="nothing is saved in .*: the live learner begins anew"):
        assert load(folder).num_samples == 0


def put(tree: Any, path: tuple[Any, ...], value: object) -> Any:
    """A tree with another value at one place."""
    if not path:
        return value
    changed = dict(tree) if isinstance(tree, dict) else list(tree)
    changed[path[0]] = put(tree[path[0]] if path[1:] else None, path[1:], value)
    return changed if isinstance(tree, dict) else type(tree)(changed)


FORGED: list[tuple[tuple[Any, ...], object]] = [
    (("upkeep",), {}),
    (("upkeep", "window", "learned", "images"), None),
    (("upkeep", "window", "given", "current", "labels"), torch.zeros(2, 2)),
    (("upkeep", "window", "numbers", "counts"), torch.zeros(3)),
    (("upkeep", "window", "since"), {"x": 1}),
    (("upkeep", "behind"), "x"),
    (("upkeep", "untestable"), [None]),
    (("parts", "seen", "mean"), torch.zeros(1, 1, dtype=torch.float64)),
    (("parts", "seen", "count"), "x"),
    (("parts", "seen", "flags"), {"1": [2]}),
    (("teller", "counters", "samples_total"), [1]),
    (("teller", "steps"), "x"),
    (("intake", "count"), (3,)),
    (("intake", "shape"), [2**61, 8, 1]),
    (("parts", "learner", "steps"), 10**30),
    (("parts", "learner", "factor"), ()),
    (("parts", "learner", "optimiser", "param_groups", 0, "initial_lr"), "x"),
    (("parts", "learner", "optimiser", "param_groups", 0, "momentum"), "x"),
    (("parts", "learner", "memory", "slots", "order"), torch.zeros(3)),
    (("parts", "ledger"), [1, 2]),
    (("first_outputs",), 10**15),
    (("inbox", "answers"), 0.5),
]


def test_a_forged_state_is_refused_in_one_line_that_names_the_folder(folder: Path) -> None:
    (folder / store.PREVIOUS).unlink()
    saved = state_file.read(folder / store.CHECKPOINT, format=store.FORMAT)
    for path, value in FORGED:
        forged = {**saved, "state": put(saved["state"], path, value)}
        state_file.write(folder / store.CHECKPOINT, forged, format=store.FORMAT)
        with pytest.raises((driftwise.UserError, driftwise.RunFailure)) as caught:
            driftwise.LiveLearner.load(folder)
        assert str(folder) in str(caught.value), path
        assert "\n" not in str(caught.value)


def test_forged_settings_are_refused_and_lead_nowhere(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / store.CONFIG).read_text())
    (folder / "checksums.json").unlink()  # who sends a folder sends fitting ones
    elsewhere = str(tmp_path / "elsewhere")
    for name, value, text in [
        ("network", None, "does not fit its config"),
        ("detector", None, "does not fit its config"),
        ("folder", elsewhere, "unknown setting of a live learner 'folder'"),
        ("labels", elsewhere, "unknown setting of a live learner 'labels'"),
        ("data", elsewhere, "unknown setting of a live learner 'data'"),
        ("buffer_size", "many", "buffer_size must be a whole number"),
        ("method", "os:system", "if you trust it, load with trust_imports=True"),
    ]:
        settings = {**config["keeper"], name: value}
        if value is None:
            del settings[name]
        (folder / store.CONFIG).write_text(json.dumps({**config, "keeper": settings}))
        message = complaint(lambda: driftwise.LiveLearner.load(folder))
        assert text in message
        assert str(folder) in message
    assert not (tmp_path / "elsewhere").exists()
