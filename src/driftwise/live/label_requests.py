"""Label requests: a callback that may fail, block or answer later."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise.config.learners import first_line
from driftwise.errors import UserError
from driftwise.live.inputs import UNKNOWN, labels_from
from driftwise.live.priority import PREDICTIONS_FIRST
from driftwise.types import Samples

CLOSED = "the live learner has been closed; go on with LiveLearner.load, or make a new one"

MAX_ANSWERS = 100_000
"""labels that may wait for the next `observe`"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """Samples to label: the learner predicts a class for them that has drifted."""

    label: int
    """the class that has drifted"""
    ids: np.ndarray
    """int64 (samples,): identify samples whose labels come later, see `LiveLearner.answer`"""
    images: np.ndarray
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
            answers, self._answers = self._answers, []
            failures, self._failures = self._failures, []
        return answers, failures

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
        call = _Call()
        threading.Thread(target=self._run, args=(request, call), daemon=True).start()
        with PREDICTIONS_FIRST.waiting():
            call.done.wait(self._seconds)
        self._waited_for = None
        with call.lock:
            if not call.done.is_set():
                call.is_late = True
                return None
        if call.failure is not None:
            raise UserError(call.failure)
        return call.answer

    def _run(self, request: Request, call: _Call) -> None:
        self._waited_for = threading.get_ident()
        try:
            answer, failure = self._checked(request, self._callback(request)), None
        except UserError as error:
            answer, failure = None, f"the label callback returned unusable labels: {error}"
        except BaseException as error:  # a user's code may raise anything
            answer, failure = None, f"the label callback failed: {first_line(error)}"
        self._busy.release()
        with call.lock:
            call.answer, call.failure = answer, failure
            call.done.set()
            if call.is_late:
                self._deliver(request, answer, failure)

    def _deliver(self, request: Request, answer: Answer | None, failure: str | None) -> None:
        """Put a late answer into the inbox."""
        if failure is not None:
            self._inbox.add_failure(failure)
            ids = torch.from_numpy(request.ids)
            answer = Answer(ids=ids, labels=torch.full_like(ids, UNKNOWN), failed=True)
        if answer is not None:
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


class _Call:
    """One call of the callback, shared by the thread that makes it and the one that waits."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.is_late = False
        self.answer: Answer | None = None
        self.failure: str | None = None
