"""Labels that are requested, come late, or fail: requests, answers, and what adaptations get."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from driftwise.config.learners import first_line
from driftwise.errors import UserError
from driftwise.live.concurrency import PREDICTIONS_FIRST
from driftwise.live.input_reader import UNKNOWN, labels_from
from driftwise.live.window import LateLabels, Window
from driftwise.metrics import Ledger
from driftwise.protocols import Choose, split_budget
from driftwise.types import Samples

CLOSED = "the live learner has been closed; go on with LiveLearner.load, or make a new one"
MAX_ANSWERS = 100_000
"""labels that may wait for the next `observe`"""
MIN_FRESH = 10
"""with fewer fresh samples a class waits for more: it would lose its old ones for almost nothing"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """Samples to label: the learner predicts a class for them that has drifted."""

    label: int
    """the class that has drifted"""
    ids: np.ndarray
    """int64 (samples,): identify samples whose labels come later, see `LiveLearner.answer`"""
    images: np.ndarray = field(repr=False)
    """as they came, (samples, ...)"""
    predicted: np.ndarray
    """int64 (samples,): the predicted classes"""

    def __len__(self) -> int:
        return len(self.ids)

    @staticmethod
    def of(samples: Samples, label: int) -> Request:
        """Samples for which the learner predicts a class."""
        return Request(
            label=label,
            ids=samples.ids.numpy().copy(),
            images=samples.images.numpy().copy(),
            predicted=np.full(len(samples), label),
        )


LabelCallback = Callable[[Request], Any]
"""Returns a label per sample (None: unknown), a mapping of ids to labels (those left out may come
later), or None: all of them may come later."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Labels by sample id."""

    ids: Tensor
    """int64 (labels,)"""
    labels: Tensor
    """int64 (labels,)"""
    failed: bool = False
    """whether the callback failed: the labels may be requested again"""
    corrects: bool = False
    """whether labels replace earlier ones that were wrong"""

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Ids and labels."""
        return self.ids, self.labels


class Inbox:
    """Answers that wait for the next `observe`, in their order; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._failures: list[str] = []
        self._is_closed = False

    def add(self, answer: Answer) -> None:
        """Append an answer; UserError if too many wait."""
        with self._lock:
            if self._is_closed:
                raise UserError(CLOSED)
            if sum(len(each.ids) for each in self._answers) + len(answer.ids) > MAX_ANSWERS:
                raise UserError(
                    f"{MAX_ANSWERS} labels wait for the next batch: call observe before giving more"
                )
            self._answers.append(answer)

    def add_failure(self, message: str) -> None:
        """Report that a late answer could not be used."""
        with self._lock:
            self._failures.append(message)

    def empty(self) -> tuple[list[Answer], list[str]]:
        """Remove and return all answers and failures."""
        with self._lock:
            taken = self._answers, self._failures
            self._answers, self._failures = [], []
        return taken

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Accept nothing from here on, unless what is done in here fails."""
        with self._lock:
            self._is_closed = True
        try:
            yield
        except BaseException:
            with self._lock:
                self._is_closed = False
            raise

    def reset_in_fork(self) -> None:
        """Release a lock that a thread of the parent process may hold."""
        self._lock = threading.Lock()

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        with self._lock:
            return {"answers": [dict(vars(answer)) for answer in self._answers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        with self._lock:
            self._answers = [Answer(**answer) for answer in state["answers"]]


class LabelRequester:
    """Calls the label callback in a thread, one request at a time, and waits for a limited time."""

    def __init__(
        self,
        callback: LabelCallback,
        inbox: Inbox,
        *,
        seconds: float,
        max_label: Callable[[], int],
    ) -> None:
        """`max_label` gives the largest label that can be used now."""
        self._callback = callback
        self._inbox = inbox
        self._seconds = seconds
        self._max_label = max_label
        self._busy = threading.Lock()
        self._waited_for: int | None = None

    @property
    def waits_for_caller(self) -> bool:
        """Whether the calling thread is the callback's, and is being waited for."""
        return self._waited_for == threading.get_ident()

    def ask(self, request: Request) -> Answer | None:
        """The callback's labels; None: they may come later. UserError: it failed."""
        if not self._busy.acquire(blocking=False):
            raise UserError("the label callback is still at work on an earlier request")
        answer: Future[Answer | None] = Future()
        # A daemon: the process need not wait for a callback that blocks.
        threading.Thread(target=self._run, args=(request, answer), daemon=True).start()
        try:
            with PREDICTIONS_FIRST.waiting():
                return answer.result(self._seconds)
        except TimeoutError:
            answer.add_done_callback(lambda done: self._deliver(request, done))
            return None
        finally:
            self._waited_for = None

    def _run(self, request: Request, answer: Future[Answer | None]) -> None:
        self._waited_for = threading.get_ident()
        given, failure = None, None
        try:
            given = self._checked(request, self._callback(request))
        except UserError as error:
            failure = f"the label callback returned unusable labels: {error}"
        except BaseException as error:  # a user's code may raise anything
            failure = f"the label callback failed: {first_line(error)}"
        self._busy.release()
        if failure is None:
            answer.set_result(given)
        else:
            answer.set_exception(UserError(failure))

    def _deliver(self, request: Request, done: Future[Answer | None]) -> None:
        """Put a late answer into the inbox."""
        if failure := done.exception():
            self._inbox.add_failure(str(failure))
            ids = torch.from_numpy(request.ids)
            answer: Answer | None = Answer(
                ids=ids, labels=torch.full_like(ids, UNKNOWN), failed=True
            )
        else:
            answer = done.result()
        if answer is None:
            return
        try:
            self._inbox.add(answer)
        except UserError as error:
            warnings.warn(f"{len(answer.ids)} labels came too late: {error}", stacklevel=1)

    def _checked(self, request: Request, labels: Any) -> Answer | None:
        if labels is None:
            return None
        ids = torch.from_numpy(request.ids)
        if isinstance(labels, Mapping):
            known = set(request.ids.tolist())
            if unknown := [key for key in labels if key not in known]:
                raise UserError(f"sample {unknown[0]!r} was not asked for")
            ids = torch.tensor(list(labels), dtype=torch.int64)
            labels = list(labels.values())
        return Answer(ids=ids, labels=labels_from(labels, len(ids), max_label=self._max_label()))


class Emit(Protocol):
    """Receives events."""

    def __call__(self, kind: str, **details: Any) -> None:
        """Report an event."""
        ...


class LiveLabels:
    """The label source of one adaptation: recent labelled samples are free, requests are booked."""

    def __init__(
        self,
        window: Window,
        ledger: Ledger,
        *,
        requester: LabelRequester | None,
        predict: Callable[[Tensor], Tensor],
        emit: Emit,
        onset: Callable[[int], int | None] = lambda _: None,
        current_from: int = 0,
    ) -> None:
        """`requester` None: no labels are requested.

        `onset(label)`: the id of the sample with which a class began to drift. `current_from`: the
        id from which on samples show the current concepts.
        """
        self._window = window
        self._ledger = ledger
        self._requester = requester
        self._predict = predict
        self._emit = emit
        self._onset = onset
        self._current_from = current_from
        self._wanted: dict[int, int | None] = {}
        self._unused: list[Samples] = []
        self._delivered = torch.empty(0, dtype=torch.int64)
        self.unmet: set[int] = set()
        """classes for which there were no samples, or too few"""

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        """Up to `count` fresh samples of a class (None: all); none rather than fewer than 10.

        No sample is given twice.
        """
        free = self._fresh(label)
        if count is not None and len(free) >= count:
            given, samples = free[:0], _choose(free, count, choose)
        else:
            given = self._request(
                label, None if count is None else self._missing(label, count), choose
            )
            samples = Samples.concat([free, given.of_class(label)])
        self._unused.append(given[given.labels != label])
        # Compared with what was wanted: a budget may have reduced `count` to a few samples.
        wanted = self._wanted.get(label, count)
        if len(samples) < (MIN_FRESH if wanted is None else max(1, min(wanted, MIN_FRESH))):
            self.unmet.add(label)
            self._unused.append(given.of_class(label))
            return samples[:0]
        self.unmet.discard(label)
        self._delivered = torch.cat([self._delivered, samples.ids])
        return samples

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """The wanted numbers, or the free samples and a share of the remaining budget."""
        self._wanted = dict(wanted)
        if self._requester is None or self._ledger.label_budget is None:
            return dict(wanted)
        free = {label: len(self._fresh(label)) for label in wanted}
        paid = {label: len(self._requestable(label)) for label in wanted}
        for label, count in wanted.items():
            if count is not None:
                paid[label] = min(paid[label], self._missing(label, count))
        total = sum(paid.values())
        granted = self._allowance(total)
        if granted == total:
            return dict(wanted)
        shares = split_budget(paid, granted)
        return {
            label: shares[label] + (free[label] if count is None else min(count, free[label]))
            for label, count in wanted.items()
        }

    def unlabelled(self) -> Samples:
        """Unlabelled samples of the current concepts; labels are -1."""
        return self._window.unlabelled_since(self._current_from)

    def unused(self) -> list[Samples]:
        """Samples with requested labels that the adaptation has not used."""
        return [samples for samples in self._unused if len(samples)]

    def _fresh(self, label: int) -> Samples:
        """Labelled samples of the current concept of a class that were not given yet."""
        if (onset := self._onset(label)) is not None:
            self._window.unchanged_until([label], onset)
        samples = self._window.fresh(label)
        return samples[~torch.isin(samples.ids, self._delivered)]

    def _requestable(self, label: int) -> Samples:
        """Samples predicted as the class whose labels were not requested."""
        return self._predicted(self._window.unlabelled_since(self._window.since(label)), label)

    def _missing(self, label: int, count: int) -> int:
        """How many of `count` samples of a class are neither labelled nor asked for."""
        pending = self._predicted(self._window.pending_since(self._window.since(label)), label)
        return max(0, count - len(self._fresh(label)) - len(pending))

    def _predicted(self, samples: Samples, label: int) -> Samples:
        return samples[self._predict(samples.images) == label]

    def _request(self, label: int, count: int | None, choose: Choose | None) -> Samples:
        """Samples predicted as the class, with the labels that the callback gives them."""
        if self._requester is None or count == 0:
            return self._window.unlabelled.samples()[:0]
        pool = self._requestable(label)
        wanted = self._allowance(len(pool) if count is None else min(count, len(pool)))
        if not wanted:
            return pool[:0]
        samples = _choose(pool, wanted, choose)
        # Requests that are dropped may still be answered: their labels count as spent.
        self._ledger.book_labels("adaptation", self._window.request(samples))
        self._emit("asked", rows=len(samples), label=label)
        try:
            answer = self._requester.ask(Request.of(samples, label))
        except UserError as error:
            self._window.cancel_request(samples.ids)
            self._emit("trouble", label=label, text=f"class {label}: {error}")
            return samples[:0]
        learn, came = samples[:0], 0
        if answer is not None:
            late = apply_answer(answer, self._window, self._ledger)
            learn, came = late.learn, len(answer.ids)
            details = {}
            if late.requested != came:
                known = int((answer.labels != UNKNOWN).sum())
                text = f"class {label}: {known} of {came} labels that were asked for came"
                details = {"text": text}
            self._emit("answered", given=late.requested, late=0, label=label, **details)
        if pending := len(samples) - came:
            text = f"class {label}: {pending} labels were asked for and may still come"
            self._emit("pending", rows=pending, label=label, text=text)
        return learn

    def _allowance(self, wanted: int) -> int:
        """How many of the wanted labels the budget still has, open requests deducted."""
        granted = self._ledger.allowance(wanted)
        if self._ledger.label_budget is not None:
            spent = self._ledger.labels["adaptation"] + len(self._window.requested)
            granted = min(granted, max(0, self._ledger.label_budget - spent))
        return granted


def _choose(samples: Samples, count: int, choose: Choose | None) -> Samples:
    """`count` samples in their order: the newest ones, or those that `choose` prefers.

    `choose` gets the newest first: they show the current concept best.
    """
    if choose is None:
        return samples[len(samples) - count :]
    newest_first = samples[torch.arange(len(samples)).flip(0)]
    chosen = newest_first[choose(newest_first.images, count)]
    return chosen[chosen.ids.argsort()]


def apply_answer(answer: Answer, window: Window, ledger: Ledger) -> LateLabels:
    """Use the labels of an answer, and book them."""
    known = answer.labels != UNKNOWN
    late = window.apply_labels(answer.ids[known], answer.labels[known])
    ledger.book_labels("adaptation", late.requested)
    ledger.book_labels("stream", late.unrequested)
    # Labels that nobody knows are not requested again; those left out may still come.
    window.unknown.add(window.requested.remove(answer.ids[~known]))
    return late
