"""What is acknowledged is kept and applied once, in order; predictions never wait."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from same_state import same
from serve_tools import CHANGING, batch, open_service, state_of

from driftwise.errors import RunFailure, UserError
from driftwise.live.engine import BatchOutcome, LiveEngine
from driftwise.serve import audit, history
from driftwise.serve.audit import AuditLog
from driftwise.serve.request_log import RequestLog
from driftwise.serve.service import Conflict, Overloaded, Service, Unavailable
from driftwise.serve.settings import ServeSettings

SECONDS = 30


def feed(service: Service, start: int, stop: int, *, labelled: int = 35) -> None:
    for number in range(start, stop):
        x, y = batch(number)
        service.observe(x, y if number < labelled else None).result(SECONDS)


def answer_all(service: Service, by: str = "local") -> int:
    """Right answers to all that is asked; how many."""
    cards = service.board.cards()
    if cards:
        ids = [card.id for card in cards]
        service.label(ids, [int(CHANGING.labels[each]) for each in ids], by=by).result(SECONDS)
    return len(cards)


def crashed_copy(service: Service, to: Path) -> Path:
    """The folder as a crash at this moment would leave it."""
    shutil.copytree(service.folder, to)
    return to


def test_after_a_crash_the_state_is_that_of_an_undisturbed_service(tmp_path: Path) -> None:
    with open_service(tmp_path / "a") as straight:
        feed(straight, 0, 56)
        assert straight.live.status["waiting"]
        assert answer_all(straight) > 0
        feed(straight, 56, 58)
        expected = state_of(straight)
    service = open_service(tmp_path / "b")
    feed(service, 0, 20)
    service.submit("save").result(SECONDS)
    feed(service, 20, 40)
    folder = crashed_copy(service, tmp_path / "c")
    service.close()
    again = open_service(folder)
    assert "20 requests of the log were applied again" in again.notes
    feed(again, 40, 56)
    answer_all(again)
    folder = crashed_copy(again, tmp_path / "d")
    again.close()
    with open_service(folder) as last:
        feed(last, 56, 58)
        found = state_of(last)
    # One change more: the request to save.
    assert found.pop("applied") == expected.pop("applied") + 1
    assert same(found, expected)


def test_a_crash_before_the_first_save_loses_nothing(tmp_path: Path) -> None:
    service = open_service(tmp_path / "a")
    feed(service, 0, 3)
    folder = crashed_copy(service, tmp_path / "b")
    with open_service(folder) as again:
        assert same(state_of(again), state_of(service))
        assert again.notes == ["3 requests of the log were applied again"]
    service.close()


def test_closed_and_opened_again_it_goes_on(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        feed(service, 0, 5)
        expected = state_of(service)
    with open_service(tmp_path) as again:
        assert again.notes == []
        assert same(state_of(again), expected)


def test_it_can_be_opened_and_saved_again_and_again_without_a_change(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        feed(service, 0, 3)
    for _ in range(3):
        with open_service(tmp_path) as service:
            assert service.view["applied"] == 3
    with open_service(tmp_path) as service:
        feed(service, 3, 4)
        for _ in range(3):
            service.submit("save").result(SECONDS)
    with open_service(tmp_path) as service:
        assert service.observe(*batch(4)).result(SECONDS)["number"] == 8


def test_a_damaged_state_is_replaced_by_the_one_before_and_the_log(tmp_path: Path) -> None:
    with open_service(tmp_path / "a") as service:
        for start in (0, 2, 4):
            feed(service, start, start + 2)
            service.submit("save").result(SECONDS)
        feed(service, 6, 8)
        expected = state_of(service)
        folder = crashed_copy(service, tmp_path / "copy")
    (folder / "learner" / "checkpoint.safetensors").write_bytes(b"damaged")
    with open_service(folder) as again:
        assert any("going on from the checkpoint before it" in each for each in again.notes)
        assert same(state_of(again), expected)


def test_a_repeated_key_has_no_effect_also_after_a_restart(tmp_path: Path) -> None:
    x, y = batch(0)
    with open_service(tmp_path) as service:
        first = service.observe(x, y, key="a").result(SECONDS)
        assert service.observe(x, y, key="a").result(SECONDS) == first
        assert service.live.num_samples == 10
    with open_service(tmp_path) as again:
        assert again.observe(x, y, key="a").result(SECONDS)["ids"] == first["ids"]
        assert again.live.num_samples == 10


def test_if_the_log_cannot_be_written_a_change_is_refused_and_not_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_service(tmp_path) as service:
        feed(service, 0, 2)
        before = state_of(service)

        def fail(_: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(Unavailable, match="No space left"):
                service.observe(*batch(2))
        assert same(state_of(service), before)
        feed(service, 2, 3)
        assert service.live.num_samples == 30


def test_too_many_waiting_changes_are_refused_before_they_are_logged(tmp_path: Path) -> None:
    with open_service(tmp_path, max_waiting=2) as service:
        feed(service, 0, 1)
        blocked, entered = threading.Event(), threading.Event()

        def wait(_: object) -> None:
            entered.set()
            blocked.wait(SECONDS)

        service.live.on("observed", wait)
        futures = [service.observe(*batch(1))]
        entered.wait(SECONDS)
        futures += [service.observe(*batch(number)) for number in (2, 3)]
        with pytest.raises(Overloaded):
            service.observe(*batch(4))
        # Predictions go on meanwhile.
        assert service.predict(batch(5)[0]).shape == (10, 5)
        blocked.set()
        assert [each.result(SECONDS)["number"] for each in futures] == [2, 3, 4]


def test_a_refused_batch_is_reported_and_the_next_one_is_taken(tmp_path: Path) -> None:
    with open_service(tmp_path / "a") as service:
        feed(service, 0, 1)
        with pytest.raises(UserError, match="of shape"):
            service.observe(np.zeros((2, 4, 4, 1), dtype=np.uint8)).result(SECONDS)
        feed(service, 1, 2)
        assert service.live.num_samples == 20
        folder = crashed_copy(service, tmp_path / "copy")
        with open_service(folder) as again:
            assert same(state_of(again), state_of(service))


def test_a_request_that_breaks_the_learner_can_be_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = open_service(tmp_path / "a")
    feed(service, 0, 2)

    check = LiveEngine._check

    def fail(engine: LiveEngine, outcome: BatchOutcome) -> None:
        if outcome.next_id == 30:
            raise MemoryError("no memory")
        check(engine, outcome)

    with monkeypatch.context() as patch:
        patch.setattr(LiveEngine, "_check", fail)
        with pytest.raises(RunFailure, match="broken off"):
            service.observe(*batch(2)).result(SECONDS)
        assert not service.ready
        with pytest.raises(Unavailable, match="restart the service"):
            service.observe(*batch(2))
        assert service.predict(batch(0)[0]).shape == (10, 5)
        service.close()
        stuck = open_service(tmp_path / "a")
        assert any("--skip-request 3" in each for each in stuck.notes)
        stuck.close()
    with open_service(tmp_path / "a", skip=(3,)) as again:
        assert again.ready
        assert again.live.num_samples == 20
        feed(again, 2, 3)


def test_labels_of_people_realign_a_drifted_class(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        feed(service, 0, 60)
        status = service.live.status
        assert status["waiting"]
        assert len(service.board) == status["open_requests"] > 10
        shown = {card.predicted for card in service.board.cards()}
        assert shown & set(status["waiting"])
        answer_all(service, by="anna")
        assert service.board.cards() == []
        feed(service, 60, 62)
        assert service.live.counters.count("driftwise_adaptations_total 0") == 0
        assert service.live.status["labels"]["adaptation"] > 10
        drifted = [line for line in service.history.verdicts if line["drifted"]]
        assert all(count > 0 for count in drifted[0]["examples"])
        assert service.audit.tail(1)[0]["by"] == "anna"


def test_a_sample_that_waits_long_for_its_label_keeps_its_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_RECENT", 20)
    with open_service(tmp_path, learner={"recent_rows": 100}) as service:
        feed(service, 0, 70)
        cards = service.board.cards()
        assert max(each.id for each in cards) - min(each.id for each in cards) > 40
        assert all(each.predicted >= 0 for each in cards)
        assert len(service.history.recent) < 500, "other samples are dropped"


def test_a_sample_that_nobody_knew_can_be_labelled_after_all(tmp_path: Path) -> None:
    with open_service(tmp_path / "a") as service:
        feed(service, 0, 60)
        ids = [card.id for card in service.board.cards()][:2]
        service.label(ids, [None, None]).result(SECONDS)
        before = service.live.status["labels"]["adaptation"]
        folder = crashed_copy(service, tmp_path / "b")
        service.label(ids[:1], [4], correct=True).result(SECONDS)
        learned = service.live._engine.window.learned.samples()  # type: ignore[union-attr]
        assert learned.labels[learned.ids == ids[0]].tolist() == [4]
        assert service.live.status["labels"]["adaptation"] == before + 1
        assert not set(ids) & {card.id for card in service.board.cards()}
        expected = state_of(service)
    with open_service(folder) as again:
        again.label(ids[:1], [4], correct=True).result(SECONDS)
        assert same(state_of(again), expected)


def test_a_drifted_class_is_shown_by_its_texts_long_after_they_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_RECENT", 20)

    def send(service: Service, number: int) -> None:
        x, y = batch(number)
        texts = [f"text {10 * number + place}" for place in range(10)]
        service.observe(x, y if number < 35 else None, texts=texts).result(SECONDS)

    with open_service(tmp_path / "a", learner={"recent_rows": 100}) as service:
        for number in range(40):
            send(service, number)
        folder = crashed_copy(service, tmp_path / "b")
        for number in range(40, 60):
            send(service, number)
        kept = service.history
        assert len(kept.texts) < 500, "texts of other samples are dropped"
        for line in [each for each in kept.verdicts if each["drifted"]]:
            assert line["texts"]
            found = kept.examples[line["number"]]
            assert found.texts is not None
            for side, samples in zip(found.texts, found[:2], strict=True):
                ids = [int(text.removeprefix("text ")) for text in side]
                np.testing.assert_array_equal(samples, CHANGING.images[ids])
            assert any(int(text.removeprefix("text ")) < 300 for text in found.texts[0])
        expected = state_of(service)
    with open_service(folder) as again:
        for number in range(40, 60):
            send(again, number)
        assert same(state_of(again), expected)


@pytest.mark.parametrize("adaptation", ["amr", "amr-partial"])
def test_the_status_counts_samples_of_earlier_concepts_in_the_buffer(
    tmp_path: Path, adaptation: str
) -> None:
    with open_service(tmp_path, learner={"adaptation": adaptation}) as service:
        feed(service, 0, 60)
        assert service.live.status["buffer_earlier"] == {}
        answer_all(service)
        feed(service, 60, 62)
        engine = service.live._engine
        assert engine is not None
        earlier = service.live.status["buffer_earlier"]
        assert earlier
        for label, count in earlier.items():
            ids = engine.learner.buffer.samples_of(label).ids
            assert count == int((ids < engine.window.current_from[label]).sum())
        if adaptation == "amr":
            assert set(earlier.values()) == {0}, "realignment replaces the whole class"


def test_ask_and_pause_hold_adaptations_and_approval_releases_them(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        feed(service, 0, 40)
        service.submit("pause", by="eva", reason="night").result(SECONDS)
        feed(service, 40, 60)
        held = service.live.held
        assert held
        assert len(service.board) == 0
        with pytest.raises(Conflict, match="paused"):
            service.submit("approve", classes=None).result(SECONDS)
        service.submit("mode", mode="ask").result(SECONDS)
        with pytest.raises(Conflict, match="does not wait"):
            service.submit("approve", classes=[77]).result(SECONDS)
        service.submit("approve", classes=[held[0]], reason="seen").result(SECONDS)
        assert held[0] not in service.live.held
        assert len(service.board) > 0
        assert [each["reason"] for each in service.snapshots.list()] == ["before an adaptation"]
        line = next(each for each in service.audit.tail(10) if each["action"] == "pause")
        assert (line["by"], line["reason"]) == ("eva", "night")
        service.submit("resume").result(SECONDS)
        with pytest.raises(UserError, match="unknown mode"):
            service.submit("mode", mode="x").result(SECONDS)


def test_in_shadow_mode_drift_is_reported_and_the_network_stays(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        feed(service, 0, 40)
        service.submit("mode", mode="shadow", by="eva", reason="trial").result(SECONDS)
        images = CHANGING.images[:20]
        before = service.predict(images)
        feed(service, 40, 60)
        assert (service.predict(images) == before).all()
        assert any(line["drifted"] for line in service.history.verdicts)
        line = service.audit.tail(1)[0]
        assert (line["by"], line["action"], line["reason"]) == ("eva", "mode", "trial")


def test_a_roll_back_predicts_as_then_and_survives_a_crash(tmp_path: Path) -> None:
    with open_service(tmp_path / "a") as service:
        feed(service, 0, 6)
        service.submit("save").result(SECONDS)
        (snapshot,) = service.snapshots.list()
        before = service.predict(batch(9)[0])
        feed(service, 10, 20)
        assert (service.predict(batch(9)[0]) != before).any()
        service.submit("rollback", to=snapshot["number"], reason="worse").result(SECONDS)
        assert (service.predict(batch(9)[0]) == before).all()
        assert service.observe(*batch(9)).result(SECONDS)["ids"][0] == 160
        folder = crashed_copy(service, tmp_path / "copy")
        with open_service(folder) as again:
            assert same(state_of(again), state_of(service))
        with pytest.raises(UserError, match="no snapshot 99; there are 7"):
            service.submit("rollback", to=99).result(SECONDS)


def test_only_the_newest_snapshots_are_kept(tmp_path: Path) -> None:
    with open_service(tmp_path, max_snapshots=3) as service:
        for number in range(5):
            feed(service, number, number + 1)
            service.submit("save").result(SECONDS)
        assert [each["number"] for each in service.snapshots.list()] == [6, 8, 10]
        assert len(list((tmp_path / "snapshots").iterdir())) == 6


@pytest.mark.parametrize("settings", [{"max_snapshots": 2}, {"rate": 0}, {"max_batch": -1}])
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(settings))} must be"):
        ServeSettings(**settings)


def test_the_end_of_a_long_audit_log_is_read_without_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    assert log.tail(5) == []
    for number in range(50):
        log.append("eva", "test", None, number=number, ids=list(range(100)))
    assert [each["number"] for each in log.tail(3)] == [47, 48, 49]
    assert len(log.tail(1)[0]["ids"]) == 50
    monkeypatch.setattr(audit, "MAX_TAIL", 1000)
    assert [each["number"] for each in log.tail(50)] == [47, 48, 49]
    with (tmp_path / "audit.jsonl").open("a") as file:
        file.write('{"time": "a crash')
    again = AuditLog(tmp_path / "audit.jsonl")
    again.append("eva", "test", None, number=50)
    again.append("eva", "test", None, number=51)
    assert again.tail(50)[-1]["number"] == 51


def test_the_log_is_cut_when_the_state_is_saved_by_time(tmp_path: Path) -> None:
    with open_service(tmp_path, save_seconds=0.05, log_bytes=100) as service:
        feed(service, 0, 8)
        assert service._saved > 0
        assert service._log.num_bytes < 8 * 900


def test_a_correction_reaches_the_learner(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        feed(service, 0, 60)
        ids = [card.id for card in service.board.cards()]
        service.label(ids[:1], [0]).result(SECONDS)
        service.label(ids[:1], [4], correct=True).result(SECONDS)
        window = service.live._engine.window  # type: ignore[union-attr]
        learned = window.learned.samples()
        assert learned.labels[learned.ids == ids[0]].tolist() == [4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.observe(np.zeros((9, 8, 8, 1), np.uint8)), "at most 8 samples"),
        (lambda s: s.observe(batch(0, 8)[0], [0]), "a label for each of 8"),
        (lambda s: s.observe(batch(0, 8)[0], texts=["a"]), "a text for each of 8"),
        (lambda s: s.label([99], [0]), "sample 99 has not come yet"),
        (lambda s: s.label([0], [-7]), "labels are 0 or more"),
        (lambda s: s.label([0], [10**6]), "labels are at most"),
        (lambda s: s.probe(batch(0, 8)[0], None), "a label for each"),
        (lambda s: s.submit("nonsense"), "unknown change"),
    ],
)
def test_refusals(tmp_path: Path, call: Any, message: str) -> None:
    with open_service(tmp_path, max_batch=8) as service:
        service.observe(*batch(0, 8)).result(SECONDS)
        with pytest.raises(UserError, match=message):
            call(service).result(SECONDS)


def test_a_probe_is_scored_and_not_learned(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        feed(service, 0, 20)
        before = state_of(service)["parts"]
        x, y = batch(30)
        found = service.probe(x, y).result(SECONDS)
        assert found["correct"] == (service.live.predict(x) == y).sum()
        assert same(state_of(service)["parts"], before)


def test_the_key_of_another_change_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    with open_service(tmp_path) as service:
        service.observe(*batch(0), key="1").result(SECONDS)
        with pytest.raises(Conflict, match="key '1' was that of another change"):
            service.observe(*batch(1), key="1")
    with open_service(tmp_path) as again:
        with pytest.raises(Conflict, match="choose new ones"):
            again.submit("pause", key="1")
        assert again.live.num_samples == 10


def test_what_could_not_be_done_for_the_moment_is_done_with_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_service(tmp_path) as service:
        feed(service, 0, 1)

        def fail() -> None:
            raise RunFailure("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(service.live, "save", fail)
            with pytest.raises(Unavailable, match="no space left"):
                service.submit("save", key="a").result(SECONDS)
        assert service.submit("save", key="a").result(SECONDS)["saved"]


def test_whatever_breaks_a_save_by_time_learning_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_service(tmp_path, save_seconds=1e-3) as service:

        def fail(*_: object) -> None:
            raise RuntimeError("nobody has foreseen this")

        with monkeypatch.context() as patch:
            patch.setattr(service.snapshots, "is_due", fail)
            feed(service, 0, 3)
        assert service.ready
        assert service.live.num_samples == 30
        feed(service, 3, 4)


def test_samples_that_wait_have_a_limit_of_bytes(tmp_path: Path) -> None:
    with open_service(tmp_path, max_waiting_bytes=1000) as service:
        feed(service, 0, 1)
        blocked, entered = threading.Event(), threading.Event()

        def wait(_: object) -> None:
            entered.set()
            blocked.wait(SECONDS)

        service.live.on("observed", wait)
        futures = [service.observe(*batch(1))]
        entered.wait(SECONDS)
        futures.append(service.observe(*batch(2)))  # one may wait, however large
        with pytest.raises(Overloaded):
            service.observe(*batch(3))
        futures.append(service.label([0], [1]))
        blocked.set()
        for each in futures:
            each.result(SECONDS)
        feed(service, 3, 4)


def test_folders_that_are_not_of_a_service_are_refused(tmp_path: Path) -> None:
    with open_service(tmp_path / "a") as service:
        feed(service, 0, 1)
        later = crashed_copy(service, tmp_path / "later")
    with pytest.raises(UserError, match="holds a run or a live learner"):
        open_service(tmp_path / "a" / "learner")
    (tmp_path / "a" / "log" / "app.jsonl").touch()
    with pytest.raises(UserError, match=r"app\.jsonl is no part of a log"):
        open_service(tmp_path / "a")
    # A later version may know other changes: none that was acknowledged is left out.
    log = RequestLog(later / "log", max_bytes=10**6)
    log.append({"kind": "merge", "time": "", "by": "eva", "key": None})
    with open_service(later) as old:
        assert not old.ready
        assert any("of another version of driftwise" in each for each in old.notes)
