"""Saved and loaded, a live learner goes on as if nothing had been: to the last bit."""

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
from live_tools import digits, live_learner, play, small_network
from run_tools import ENVIRONMENT, complaint
from same_state import same

import driftwise
from driftwise.errors import RunFailure
from driftwise.live.engine import LiveEngine
from driftwise.live.events import Event
from driftwise.live.labels import Request
from driftwise.runs import store


def state_of(mine: driftwise.LiveLearner) -> dict[str, Any]:
    """All that may change, but for seconds on a clock."""
    state = mine._state()
    if state["parts"] is not None:
        del state["parts"]["ledger"]["seconds"]
    return state


Load = Callable[..., driftwise.LiveLearner]


@pytest.fixture
def load() -> Iterator[Load]:
    """Loads live learners that are let go at the end, saved or not."""
    loaded: list[driftwise.LiveLearner] = []

    def it(*arguments: Any, **more: Any) -> driftwise.LiveLearner:
        loaded.append(driftwise.LiveLearner.load(*arguments, **more))
        return loaded[-1]

    yield it
    for each in loaded:
        each._release()


@pytest.mark.parametrize(
    ("known", "settings"),
    [
        (1.0, {"method": "der++", "optimiser": "adam", "lr": 0.003}),
        (0.4, {"method": "cls-er", "adaptation": "amr-plus", "check_rows": 15}),
        (1.0, {"method": "ser", "encoder": "random", "adaptation": "fr-scratch", "lr": 0.05}),
    ],
)
def test_pauses_change_no_bit(
    tmp_path: Path, load: Load, known: float, settings: dict[str, Any]
) -> None:
    stream = digits(2, classes=5, turn=450)
    answers = iter_labels(stream.labels)
    whole = live_learner(labels=answers, **settings)
    paused = live_learner(labels=answers, folder=tmp_path / "it", **settings)
    draw = np.random.default_rng(5)
    drifted = False
    for start, images, labels in stream.batches():
        given = [int(y) if draw.random() < known else None for y in labels]
        one = whole.observe(images, given)
        if start % 100 == 50:
            paused.save()
            paused.close()
            paused = load(tmp_path / "it", labels=answers)
        other = paused.observe(images, given)
        assert np.array_equal(one.predicted, other.predicted)
        assert (one.loss, one.notes, one.verdicts) == (other.loss, other.notes, other.verdicts)
        drifted |= bool(one.adapted)
    assert drifted, "or nothing worth saving happened"
    assert same(state_of(whole), state_of(paused))


def iter_labels(labels: np.ndarray) -> Any:
    return lambda request: labels[request.ids]


def test_a_live_learner_around_a_network_of_ones_own_is_loaded_around_the_same(
    tmp_path: Path, load: Load
) -> None:
    stream = digits(0, turn=None)
    with live_learner(small_network(3), folder=tmp_path / "it") as mine:
        play(mine, stream, samples=300)  # ten classes: it has grown
        expected = mine.predict_proba(stream.images)
    assert "needs its network again" in complaint(
        lambda: driftwise.LiveLearner.load(tmp_path / "it")
    )
    loaded = load(tmp_path / "it", small_network(3))
    assert np.array_equal(loaded.predict_proba(stream.images), expected)
    assert loaded.num_samples == 300
    assert loaded.classes == tuple(range(10))
    assert same(state_of(loaded), state_of(mine))


def test_a_folder_of_a_backbone_by_name_also_opens_as_a_predictor(
    tmp_path: Path, load: Load
) -> None:
    stream = digits(0, turn=None)
    with live_learner("mlp", folder=tmp_path / "it") as mine:
        play(mine, stream, samples=200)
    predictor = driftwise.load(tmp_path / "it")
    assert np.array_equal(predictor.predict(stream.images), mine.predict(stream.images))


def test_samples_without_labels_change_no_bit_of_what_is_loaded(tmp_path: Path, load: Load) -> None:
    stream = digits(0, turn=None)
    values = stream.images.reshape(-1, 64).astype(np.float32)
    with driftwise.LiveLearner("mlp", folder=tmp_path / "it") as mine:
        mine.observe(values[:50], stream.labels[:50])
        mine.observe(2 * values[50:100])  # inputs are scaled by these, too
        expected = mine.predict_proba(values)
    assert np.array_equal(load(tmp_path / "it").predict_proba(values), expected)


def test_answers_that_wait_are_saved_and_taken_up_after_a_restart(
    tmp_path: Path, load: Load
) -> None:
    stream = digits(0, turn=None)
    mine = live_learner(folder=tmp_path / "it")
    play(mine, stream, samples=100)
    ids = mine.observe(stream.images[100:150]).ids
    mine.answer(ids, stream.labels[ids])
    mine.save()
    after = mine.observe(stream.images[150:160])
    mine._release()  # as a crash would: nothing is saved
    loaded = load(tmp_path / "it")
    again = loaded.observe(stream.images[150:160])
    assert again.loss == after.loss is not None
    assert same(state_of(loaded), state_of(mine))


def test_a_detector_that_goes_by_labels_says_once_that_other_samples_are_not_watched(
    tmp_path: Path, load: Load
) -> None:
    stream = digits(0, turn=None)
    with live_learner(detector="reconstruction", folder=tmp_path / "it") as mine:
        play(mine, stream, samples=20)
        first = mine.observe(stream.images[20:30])
    assert "this detector needs labels: unlabelled samples are not monitored" in first.notes
    assert load(tmp_path / "it").observe(stream.images[30:40]).notes == ()


def test_requests_that_nobody_has_answered_survive_a_restart(tmp_path: Path, load: Load) -> None:
    stream = digits(0, classes=5, turn=450)
    asked: list[Request] = []
    settings = {"detector": "combined", "check_rows": 20}
    mine = live_learner(labels=asked.append, folder=tmp_path / "it", **settings)
    for start, images, labels in stream.batches():
        if mine.observe(images, labels if start < 350 else None).drifted:
            break
    assert asked
    mine.close()
    loaded = load(tmp_path / "it")
    loaded.answer(asked[0].ids, stream.labels[asked[0].ids])
    loaded.observe(stream.images[:0])
    assert f"labels_late_total {len(asked[0])}\n" in loaded.counters


def test_two_processes_on_one_folder_are_refused(tmp_path: Path) -> None:
    mine = live_learner(folder=tmp_path / "it")
    mine.observe(digits(0).images[:10], digits(0).labels[:10])
    mine.save()
    script = f"import driftwise; driftwise.LiveLearner.load({str(tmp_path / 'it')!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 1
    assert f"is in use by another process (pid {os.getpid()})" in done.stderr
    assert "in use" in complaint(lambda: driftwise.LiveLearner.load(tmp_path / "it"))
    mine.close()
    driftwise.LiveLearner.load(tmp_path / "it").close()


def test_a_folder_that_is_taken_or_holds_other_things_is_refused(tmp_path: Path) -> None:
    live_learner(folder=tmp_path / "it").close()
    text = complaint(lambda: live_learner(folder=tmp_path / "it"))
    assert "go on with LiveLearner.load" in text
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    assert "holds files but no run" in complaint(lambda: live_learner(folder=tmp_path / "letters"))
    assert "holds no run" in complaint(lambda: driftwise.LiveLearner.load(tmp_path / "letters"))


def test_a_folder_that_a_kill_left_before_its_config_was_written_can_be_taken_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "it").mkdir()
    for name in (".lock", "checksums.json", ".config.json.0123456789abcdef.tmp"):
        (tmp_path / "it" / name).write_text("{}")
    with live_learner(folder=tmp_path / "it") as mine:
        mine.observe(digits(0).images[:10], digits(0).labels[:10])
    assert not list((tmp_path / "it").glob("*.tmp"))


def test_a_run_of_a_benchmark_is_no_keeper(finished: Path) -> None:
    assert "no live learner" in complaint(lambda: driftwise.LiveLearner.load(finished))


def test_a_live_learner_without_a_folder_cannot_be_saved_and_says_so() -> None:
    assert "make the live learner with a folder" in complaint(live_learner().save)


def test_a_live_learner_saved_before_anything_came_is_loaded_as_such(
    tmp_path: Path, load: Load
) -> None:
    live_learner(folder=tmp_path / "it").close()
    loaded = load(tmp_path / "it")
    assert loaded.num_samples == 0
    loaded.observe(digits(0).images[:10], digits(0).labels[:10])


def test_an_error_between_batches_costs_nothing(tmp_path: Path, load: Load) -> None:
    stream = digits(0)
    told: list[str] = []
    with contextlib.suppress(KeyError), live_learner(folder=tmp_path / "it") as mine:
        mine.on("closed", lambda event: told.append(event.kind))
        mine.observe(stream.images[:10], stream.labels[:10])
        raise KeyError("somebody's mistake")
    assert load(tmp_path / "it").num_samples == 10
    assert told == ["closed"]


def test_what_a_broken_batch_left_behind_is_not_saved(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = digits(0)
    with contextlib.suppress(KeyboardInterrupt), live_learner(folder=tmp_path / "it") as mine:
        mine.observe(stream.images[:10], stream.labels[:10])
        mine.save()

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(LiveEngine, "_check", interrupted)
        mine.observe(stream.images[10:20], stream.labels[10:20])
    assert load(tmp_path / "it").num_samples == 10


def test_whoever_is_told_of_a_save_finds_it_there(tmp_path: Path, load: Load) -> None:
    stream, mine = digits(0), live_learner(folder=tmp_path / "it")
    copies: list[Path] = []

    def backup(_: Event) -> None:
        copies.append(tmp_path / f"copy {len(copies)}")
        shutil.copytree(tmp_path / "it", copies[-1])

    mine.on("saved", backup)
    for start in (0, 10):
        mine.observe(stream.images[start : start + 10], stream.labels[start : start + 10])
        mine.save()
    mine.close()
    assert [load(each).num_samples for each in copies] == [10, 20]


def test_nobody_is_told_of_a_save_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, mine = digits(0), live_learner(folder=tmp_path / "it")
    told: list[str] = []
    mine.on("*", lambda event: told.append(event.kind))
    mine.observe(stream.images[:10], stream.labels[:10])
    told.clear()
    with monkeypatch.context() as patch:
        patch.setattr(store, "_write_state", _full)
        for end in (mine.save, mine.close):
            with pytest.raises(RunFailure, match="No space left"):
                end()
    assert told == []
    ids = mine.observe(stream.images[10:20]).ids
    mine.answer(ids[:1], stream.labels[10:11])
    mine.close()
    assert told[-1] == "closed"


def _full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_no_label_is_taken_that_will_not_be_saved(tmp_path: Path, load: Load) -> None:
    stream, mine = digits(0), live_learner(folder=tmp_path / "it")
    mine.observe(stream.images[:100], stream.labels[:100])
    ids = mine.observe(stream.images[100:110]).ids
    accepted = []

    def give() -> None:
        with contextlib.suppress(driftwise.UserError):
            while True:
                mine.answer(ids[:1], stream.labels[ids[:1]])
                accepted.append(1)
                time.sleep(0.0005)

    giving = threading.Thread(target=give)
    giving.start()
    time.sleep(0.05)
    mine.close()
    giving.join(30)
    assert len(load(tmp_path / "it")._inbox.empty()[0]) == len(accepted) > 0


def test_a_callback_that_closes_the_live_learner_gets_its_way_when_all_is_told(
    tmp_path: Path, load: Load
) -> None:
    stream, mine = digits(0), live_learner(folder=tmp_path / "it")
    mine.on("classes", lambda _: mine.close())
    seen = mine.observe(stream.images[:20], stream.labels[:20])
    assert seen.new_classes
    with pytest.raises(driftwise.UserError, match="has been closed"):
        mine.observe(stream.images[:20])
    assert load(tmp_path / "it").num_samples == 20


def test_the_log_tells_what_happened_line_by_line(tmp_path: Path) -> None:
    stream = digits(2, classes=4, turn=360)
    with live_learner(folder=tmp_path / "it") as mine:
        seen = play(mine, stream)
    lines = (tmp_path / "it" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "classes"
    assert kinds[-1] == "closed"
    assert kinds.count("checked") == sum(bool(each.verdicts) for each in seen)
    realigned = [event["classes"] for event in events if event["event"] == "realigned"]
    assert realigned == [list(each.adapted) for each in seen if each.adapted]
    steps = [event["step"] for event in events]
    assert steps == sorted(steps)


def test_what_is_left_of_a_batch_that_broke_off_is_not_copied_either() -> None:
    stream = digits(0)
    mine = live_learner()
    mine.observe(stream.images[:10], stream.labels[:10])
    assert copy.deepcopy(mine).num_samples == 10
    mine._failure = "no room left"
    assert "broke off in the middle of a batch" in complaint(lambda: copy.deepcopy(mine))
    assert "broke off in the middle of a batch" in complaint(lambda: pickle.dumps(mine))


def test_a_live_learner_that_broke_off_in_a_batch_only_predicts_and_saves_nothing_of_it(
    tmp_path: Path, load: Load
) -> None:
    class Interrupting(torch.nn.Module):
        """A network that fails at its second step."""

        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(64, 10)
            self.fails = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.fails and self.training:
                raise RuntimeError("no room left")
            logits: torch.Tensor = self.head(x.flatten(1))
            return logits

    stream = digits(0)
    mine = live_learner(Interrupting(), folder=tmp_path / "it")
    mine.observe(stream.images[:10], stream.labels[:10])
    mine.save()
    said = mine.predict(stream.images[:10])
    assert mine._engine is not None
    vars(mine._engine.learner.network)["fails"] = True
    with pytest.raises(RuntimeError, match="no room left"):
        mine.observe(stream.images[10:20], stream.labels[10:20])
    for call in (
        lambda: mine.observe(stream.images[10:20], stream.labels[10:20]),
        lambda: mine.answer([0], [0]),
        lambda: mine.rehearse(1),
        mine.save,
    ):
        told = complaint(call)
        assert "broke off in the middle of a batch (" in told
        assert "no room left" in told
        assert "LiveLearner.load" in told
    assert np.array_equal(mine.predict(stream.images[:10]), said)
    mine.close()
    assert load(tmp_path / "it", Interrupting()).num_samples == 10
