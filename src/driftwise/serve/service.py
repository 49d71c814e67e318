"""One learner thread that owns the live learner; every change is logged before it is acknowledged."""

from __future__ import annotations

import base64
import contextlib
import json
import queue
import threading
import time
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftwise.config.learners import first_line
from driftwise.errors import RunFailure, UserError
from driftwise.files import writing
from driftwise.live import LiveLearner
from driftwise.live.input_reader import labels_from
from driftwise.runs.store import CHECKPOINT, is_run
from driftwise.serve.audit import AuditLog
from driftwise.serve.board import Board
from driftwise.serve.history import History
from driftwise.serve.request_log import RequestLog
from driftwise.serve.settings import ServeSettings
from driftwise.serve.snapshots import Snapshots

if TYPE_CHECKING:
    from driftwise.serve.shared_snapshot import Publisher

MAX_KEYS = 1000
"""requests whose keys are remembered, so that a repeated one is not applied twice"""
KINDS = (
    *("observe", "label", "probe", "save", "mode", "pause", "resume"),
    *("approve", "dismiss", "rollback"),
)
"""of changes"""
MAX_TEXT = 4000
"""letters of a text that is shown instead of a sample"""

Acknowledgement = dict[str, Any]
"""The answer to the client of a change: its number, and the result."""


class Unavailable(RunFailure):
    """The service cannot take a change now; trying again later may help."""


class Overloaded(Unavailable):
    """Too many changes wait for the learner."""


class Conflict(UserError):
    """A change that does not fit the mode or state of the service."""


class _Keyed(NamedTuple):
    """A change that came with a key."""

    future: Future[Acknowledgement]
    mark: int | None
    """of its content; None: saved by an earlier version"""


class Service:
    """A live learner behind a log: what is acknowledged is never lost, predictions never wait.

    The folder holds `learner` (the live learner's own), `log` (requests since the last saved
    states), `snapshots` and `audit.jsonl`.
    """

    def __init__(
        self,
        folder: Path,
        make: Callable[[Path], LiveLearner],
        load: Callable[[Path], LiveLearner],
        settings: ServeSettings | None = None,
        *,
        skip: Sequence[int] = (),
    ) -> None:
        """Open a folder, new or not, and apply what its log has beyond the saved state.

        Args:
            folder: Where everything is kept.
            make: Makes a new live learner in a folder, with `no_labels_yet` as its callback.
            load: Loads one from a folder.
            settings: Limits and times.
            skip: Numbers of requests in the log that are not applied, because they broke the learner.
        """
        self.settings = settings or ServeSettings()
        self.folder = folder
        if is_run(folder):
            raise UserError(
                f"{folder} holds a run or a live learner, and no service; give a folder of its own, "
                "or the one above"
            )
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.notes: list[str] = []
        """what a person should know about the start"""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            learner = folder / "learner"
            self.live = load(learner) if is_run(learner) else make(learner)
        self.live.save_seconds = None  # a state is saved together with its place in the log
        self.notes += [
            str(each.message) for each in caught if "begins anew" not in str(each.message)
        ]
        self.history = History(lambda: self.live.kept_ids)
        self._gate = threading.Lock()
        """one change at a time is numbered and logged"""
        self._queue: queue.SimpleQueue[tuple[dict[str, Any], Future[Acknowledgement]] | None]
        self._queue = queue.SimpleQueue()
        self._waiting_bytes = 0
        """of samples in the queue"""
        self._keys: OrderedDict[str, _Keyed] = OrderedDict()
        self._paused_mode: str | None = None
        """the mode to resume to; None: not paused"""
        self._applied = 0
        self._saved = 0
        """the last change in the saved state; in the one before it: `_saved_before`"""
        self._saved_before = 0
        self._saved_at = time.monotonic()
        self._stopping = False
        self.is_leaving = False
        """the server is being stopped: streams of events end"""
        self.failure: str | None = None
        """why nothing is learned any more"""
        self.save_failure: str | None = None
        self.publish_failure: str | None = None
        """why prediction workers leave predictions to this process"""
        self.board = Board(self.settings)
        self.audit = AuditLog(folder / "audit.jsonl")
        self.snapshots = Snapshots(folder / "snapshots", most=self.settings.max_snapshots)
        self.live.on("*", self.history.add_event)
        self.view: dict[str, Any] = {}
        """the state of things as of the last change, for readers in any thread"""
        self.on_snapshot: Callable[[LiveLearner], None] = lambda _: None
        """called in the learner's thread after a change, before it is reported as applied"""
        self._is_replaying = True
        try:
            self._restore(skip)
        except BaseException:
            self.live.close(save=False)
            raise
        self._is_replaying = False
        self._publish()
        self._thread = threading.Thread(target=self._work, name="learner", daemon=True)
        self._thread.start()

    # Starting and stopping

    def _restore(self, skip: Sequence[int]) -> None:
        extra = self.live.extra_state
        if extra:
            self.history.load_state_dict(extra["history"])
            self._paused_mode = extra["paused_mode"]
            self._applied = self._saved = extra["applied"]
            for key, acknowledgement, *mark in extra["keys"]:
                self._remember(key, _done(acknowledgement), mark[0] if mark else None)
        self._log = RequestLog(self.folder / "log", max_bytes=self.settings.max_log_bytes)
        if self._log.dropped:
            self.notes.append(
                f"the log ended in {self._log.dropped} bytes of a request that had not been "
                "acknowledged; they were dropped"
            )
        replayed = 0
        for record in self._log.records(self._applied):
            if record["n"] in skip:
                self._applied = record["n"]
                continue
            future: Future[Acknowledgement] = Future()
            payload = {name: each for name, each in record.items() if name not in _OF_RECORDS}
            self._remember(record.get("key"), future, _mark(record["kind"], payload))
            self._finish(record, future)
            if self.failure is not None:
                self.notes.append(
                    f"request {record['n']} of the log breaks the learner ({self.failure}); start "
                    f"with --skip-request {record['n']} to leave it out"
                )
                break
            replayed += 1
        if replayed:
            self.notes.append(f"{replayed} requests of the log were applied again")
        if replayed and self.failure is None:
            with contextlib.suppress(RunFailure):
                self.save("start")

    def close(self) -> None:
        """Finish what was acknowledged, save, release the folder."""
        with self._gate:
            if self._stopping:
                return
            self._stopping = True
            self._queue.put(None)
        self._thread.join()
        if self.failure is None:
            self._store_extra()
        self.live.close()
        if self.failure is None:
            self._saved_before, self._saved = self._saved, self._applied
            with contextlib.suppress(RunFailure):  # a longer log does no harm
                self._log.begin_segment()
                self._log.drop_until(self._saved_before)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ready(self) -> bool:
        """Whether changes are taken."""
        return not self._stopping and self.failure is None

    # Changes

    def submit(
        self, kind: str, *, by: str = "local", key: str | None = None, **payload: Any
    ) -> Future[Acknowledgement]:
        """Log a change; its future is done when the learner has applied it.

        The change is safe as soon as this returns. A repeated `key` gives the first one's outcome,
        and Conflict if it was the key of another change.
        """
        if kind not in KINDS:
            raise UserError(f"unknown change {kind!r}")
        mark = None if key is None else _mark(kind, payload)
        num_bytes = len(payload.get("x", {}).get("data", ""))
        with self._gate:
            if key is not None and (earlier := self._keys.get(key)) is not None:
                if earlier.mark not in (None, mark):
                    raise Conflict(
                        f"the key {key!r:.110} was that of another change; choose new ones"
                    )
                return earlier.future
            if self._stopping:
                raise Unavailable("the service is being stopped; try again later")
            if self.failure is not None:
                raise Unavailable(
                    f"the learner has broken off: {self.failure}; restart the service"
                )
            waiting = self._queue.qsize()
            total = self._waiting_bytes + num_bytes
            if waiting >= self.settings.max_waiting or (
                waiting and total > self.settings.max_waiting_bytes
            ):
                raise Overloaded(f"{waiting} changes wait for the learner; try again shortly")
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            record = {"time": now, "kind": kind, "by": by, "key": key, **payload}
            try:
                number = self._log.append(record)
            except RunFailure as error:
                raise Unavailable(f"the change was not taken: {error}") from error
            future: Future[Acknowledgement] = Future()
            future.set_running_or_notify_cancel()  # a client that hangs up does not cancel it
            self._remember(key, future, mark)
            self._waiting_bytes = total
            self._queue.put(({"n": number, **record}, future))
        if kind not in ("observe", "label", "probe"):
            details = {name: value for name, value in payload.items() if name != "reason"}
            self.audit.append(by, kind, payload.get("reason"), number=number, **details)
        return future

    def observe(
        self,
        x: np.ndarray,
        y: Sequence[int | None] | None = None,
        *,
        texts: Sequence[str] | None = None,
        by: str = "local",
        key: str | None = None,
    ) -> Future[Acknowledgement]:
        """Samples, with labels, without, or partly; texts are shown to people instead of samples."""
        if len(x) > self.settings.max_batch:
            raise UserError(
                f"expected at most {self.settings.max_batch} samples in a request; got {len(x)}"
            )
        labels = labels_from(y, len(x), max_label=2**31).tolist() if y is not None else None
        if texts is not None and len(texts) != len(x):
            raise UserError(f"expected a text for each of {len(x)} samples; got {len(texts)}")
        return self.submit(
            "observe",
            by=by,
            key=key,
            x=packed(x),
            y=labels,
            texts=None if texts is None else [_printable(text) for text in texts],
        )

    def probe(
        self,
        x: np.ndarray,
        y: Sequence[int | None] | None,
        *,
        by: str = "local",
        key: str | None = None,
    ) -> Future[Acknowledgement]:
        """Labelled samples that are scored, and neither learned nor monitored."""
        labels = labels_from(y, len(x), max_label=2**31)
        if not 0 < len(x) <= self.settings.max_batch or bool((labels < 0).any()):
            raise UserError(
                f"a probe needs 1 to {self.settings.max_batch} samples, a label for each"
            )
        return self.submit("probe", by=by, key=key, x=packed(x), y=labels.tolist())

    def label(
        self,
        ids: Sequence[int],
        labels: Sequence[int | None],
        *,
        by: str = "local",
        key: str | None = None,
        correct: bool = False,
    ) -> Future[Acknowledgement]:
        """Late labels by sample id (None: nobody knows); `correct`: they replace wrong ones."""
        known = labels_from(list(labels), len(ids), max_label=2**31).tolist()
        unknown = [each for each in ids if not 0 <= each < self.live.num_samples]
        if unknown:
            raise UserError(f"sample {unknown[0]} has not come yet")
        taken = self.board.take(ids)
        try:
            future = self.submit(
                "label", by=by, key=key, ids=list(ids), labels=known, correct=correct
            )
        except BaseException:
            self.board.put_back(taken)
            raise
        self.audit.append(by, "label", None, ids=list(ids), labels=known, correct=correct)
        return future

    def save(self, reason: str = "request") -> None:
        """Save the state; RunFailure if the disk refuses. In the learner's thread only."""
        self._store_extra()
        try:
            self.live.save()
        except (RunFailure, UserError) as error:
            self.save_failure = str(error)
            raise
        self.save_failure = None
        self._saved_before, self._saved = self._saved, self._applied
        self._saved_at = time.monotonic()
        self._log.begin_segment()
        self._log.drop_until(self._saved_before)
        if reason != "time" or self.snapshots.is_due(self.settings.snapshot_seconds):
            self.snapshots.keep(
                self.folder / "learner" / CHECKPOINT,
                self._applied,
                reason=reason,
                samples=self.live.num_samples,
                accuracy=self.live.accuracy,
            )

    def follow(self, publisher: Publisher) -> None:
        """Publish the newest snapshot now and after each change; before any request is taken."""

        def publish(live: LiveLearner) -> None:
            publisher.publish(live, self._applied)
            if (why := publisher.failure) is not None:
                why = f"prediction workers pass predictions on to the learner's process: {why}"
            self.publish_failure = why

        publish(self.live)
        self.on_snapshot = publish

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Probabilities, (samples, outputs), from the newest snapshot; never waits for learning."""
        return self.live.predict_proba(x)

    # The learner's thread

    def _work(self) -> None:
        while True:
            wait = self._saved_at + self.settings.save_seconds - time.monotonic()
            dirty = self._applied > self._saved and self.failure is None
            try:
                item = self._queue.get(timeout=max(0.01, wait) if dirty else None)
            except queue.Empty:
                self._save_by_time()
                continue
            if item is None:
                return
            with self._gate:
                self._waiting_bytes -= len(item[0].get("x", {}).get("data", ""))
            if self.failure is None:
                self._finish(*item)
            else:
                item[1].set_exception(Unavailable(self.failure))
            grown = self._log.segment_bytes > self.settings.log_bytes
            late = time.monotonic() >= self._saved_at + self.settings.save_seconds
            if self.failure is None and (grown or late):
                self._save_by_time()

    def _save_by_time(self) -> None:
        self._saved_at = time.monotonic()  # also after a failure: it is tried again later
        try:
            self.save("time")
        except Exception as error:  # whatever it is, learning goes on
            self.save_failure = first_line(error)

    def _finish(self, record: dict[str, Any], future: Future[Acknowledgement]) -> None:
        """Apply a change and report it; a failure of the learner itself ends all learning."""
        self.history.time = record["time"]
        outcome: dict[str, Any] = {}
        failed: Exception | None = None
        try:
            outcome = self._apply(record)
            self._applied = record["n"]
        except (UserError, Unavailable) as error:
            self._applied = record["n"]
            self.board.put_back(record.get("ids", ()))
            if isinstance(error, Unavailable):  # sent again, it is tried again
                with self._gate:
                    self._keys.pop(record.get("key") or "", None)
            failed = error
        except BaseException as error:  # the network or a component may raise anything
            self.failure = first_line(error)
            failed = RunFailure(f"the learner has broken off: {self.failure}")
        if not self._is_replaying:
            if self.failure is None:
                self.on_snapshot(self.live)
            self._publish()  # before the future is done: whoever waits for it may look
        if failed is None:
            future.set_result({"number": record["n"], **outcome})
        else:
            future.set_exception(failed)

    def _apply(self, record: dict[str, Any]) -> dict[str, Any]:
        match record["kind"]:
            case "observe":
                return self._observe(record)
            case "label":
                give = self.live.correct if record["correct"] else self.live.answer
                labels = [None if each < 0 else each for each in record["labels"]]
                give(record["ids"], labels)
                self.history.add_answers(
                    record["by"], record["ids"], labels, corrects=record["correct"]
                )
                return self._go_on()
            case "probe":
                return self._probe(record)
            case "save":
                if not self._is_replaying:
                    self._applied = record["n"]
                    try:
                        self.save()
                    except RunFailure as error:
                        raise Unavailable(f"the state could not be saved: {error}") from error
                return {"saved": True}
            case "mode":
                self._paused_mode = None
                return self._set_mode(record["mode"])
            case "pause":
                if self._paused_mode is None and self.live.mode != "shadow":
                    self._paused_mode = self.live.mode
                    self.live.mode = "ask"
                return {"mode": self.live.mode, "paused": self._paused_mode is not None}
            case "resume":
                mode, self._paused_mode = self._paused_mode or self.live.mode, None
                return self._set_mode(mode)
            case "approve":
                if self.live.mode == "shadow" or self._paused_mode is not None:
                    raise Conflict("adaptations are paused; resume, or choose the mode ask or auto")
                held = self._held(record["classes"])
                if not self._is_replaying:
                    with contextlib.suppress(RunFailure):  # to have something to roll back to
                        self.save("before an adaptation")
                self.live.approve(held)
                return self._go_on()
            case "dismiss":
                self.live.dismiss(self._held(record["classes"]))
                return {"held": list(self.live.held)}
            case "rollback":
                self.live.roll_back(self.snapshots.read(record["to"]))
                return {"samples": self.live.num_samples}
        # Not a user's error: an acknowledged change would be left out.
        raise RunFailure(f"a change {record['kind']!r} of another version of driftwise")

    def _observe(self, record: dict[str, Any]) -> dict[str, Any]:
        x = unpacked(record["x"])
        seen = self.live.observe(x, record["y"])
        labels = np.full(len(x), -1) if record["y"] is None else np.array(record["y"])
        self.history.add(seen, labels, record["texts"])
        return {
            "ids": seen.ids.tolist(),
            "predicted": seen.predicted.tolist(),
            "confidence": [round(each, 6) for each in seen.confidence.tolist()],
            "refused": list(seen.refused),
            "quarantined": list(seen.quarantined),
            "new_classes": list(seen.new_classes),
            "drifted": list(seen.drifted),
            "adapted": list(seen.adapted),
            "waiting": list(seen.waiting),
            "held": list(seen.held),
            "notes": list(seen.notes),
        }

    def _go_on(self) -> dict[str, Any]:
        """Use labels and approvals at once: a batch without samples."""
        status = self.live.status
        if status["sample_shape"] is None:
            return {"adapted": [], "waiting": [], "held": []}
        empty = np.zeros((0, *status["sample_shape"]), dtype=status["sample_type"])
        seen = self.live.observe(empty)
        return {
            "adapted": list(seen.adapted),
            "waiting": list(seen.waiting),
            "held": list(seen.held),
        }

    def _probe(self, record: dict[str, Any]) -> dict[str, Any]:
        labels = np.array(record["y"])
        return self.history.add_probe(labels, self.live.predict(unpacked(record["x"])))

    def _set_mode(self, mode: str) -> dict[str, Any]:
        self.live.mode = mode  # type: ignore[assignment]
        return {"mode": self.live.mode, **self._go_on()}

    def _held(self, classes: list[int] | None) -> list[int]:
        held = list(self.live.held) if classes is None else classes
        if missing := [each for each in held if each not in self.live.held]:
            raise Conflict(f"class {missing[0]} does not wait for approval")
        return held

    def _store_extra(self) -> None:
        with self._gate:  # other threads add to them
            keys = list(self._keys.items())
        done = [
            (
                key,
                {name: each for name, each in future.result().items() if name in _REMEMBERED},
                mark,
            )
            for key, (future, mark) in keys
            if future.done() and future.exception() is None
        ]
        self.live.extra_state = {
            "applied": self._applied,
            "paused_mode": self._paused_mode,
            "history": self.history.state_dict(),
            "keys": done,
        }

    def _remember(self, key: str | None, future: Future[Acknowledgement], mark: int | None) -> None:
        if key is not None:
            self._keys[key] = _Keyed(future, mark)
            while len(self._keys) > MAX_KEYS:
                self._keys.popitem(last=False)

    # What others read

    def _publish(self) -> None:
        status = self.live.status if self.failure is None else self.view.get("status", {})
        if self.failure is None:
            self.board.update(self.live.requested, self.history, status["waiting"])
        self.view = {
            "applied": self._applied,
            "status": status,
            "paused": self._paused_mode is not None,
            "accuracy": self.live.accuracy,
            "num_events": self.history.num_events,
            "num_verdicts": self.history.num_verdicts,
            "failure": self.failure,
        }

    @property
    def waiting(self) -> int:
        """Changes that the learner has not applied yet."""
        return self._queue.qsize()


_REMEMBERED = ("number", "ids", "predicted", "adapted", "waiting", "held", "mode")
_OF_RECORDS = ("n", "time", "kind", "by", "key")
"""what a record in the log has beside the payload of its change"""


def _mark(kind: str, payload: Mapping[str, Any]) -> int:
    """Tells changes apart that came with the same key."""
    return zlib.crc32(json.dumps([kind, payload], sort_keys=True).encode())


def _printable(text: str) -> str:
    """A text that can be written as UTF-8: half a character of UTF-16 cannot."""
    return str(text)[:MAX_TEXT].encode(errors="replace").decode()


def no_labels_yet(_: object) -> None:
    """The label callback of a service: labels come later, from people."""


def _done(acknowledgement: Acknowledgement) -> Future[Acknowledgement]:
    future: Future[Acknowledgement] = Future()
    future.set_result(dict(acknowledgement))
    return future


def packed(x: np.ndarray) -> dict[str, Any]:
    """An array as JSON holds it."""
    array = np.ascontiguousarray(x)
    if array.dtype != np.uint8:
        array = array.astype("<f4")
    data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def unpacked(packed: Mapping[str, Any]) -> np.ndarray:
    """The array that `packed` was given."""
    data = base64.b64decode(packed["data"])
    array = np.frombuffer(data, dtype=np.dtype(packed["dtype"])).reshape(packed["shape"])
    return array.copy()
