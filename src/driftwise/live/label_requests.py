"""Somebody is asked for labels: a callback that may fail, block or answer later."""

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

from driftwise.config.own_network import first_line
from driftwise.errors import UserError
from driftwise.live.inputs import UNKNOWN, labels_from
from driftwise.live.priority import PREDICTIONS_FIRST
from driftwise.types import Samples

CLOSED = "the live learner has been closed; go on with Keeper.load, or make a new one"

MOST_ANSWERS = 100_000
"""labels that may wait to be taken up"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """Samples that somebody is asked to label: samples that look like a class that has drifted."""

    label: int
    """the class that has drifted"""
    ids: np.ndarray
    """int64 (samples,): by which labels that come later are told, see `Keeper.answer`"""
    images: np.ndarray
    """as they came, (samples, ...)"""
    predicted: np.ndarray
    """int64 (samples,): what the learner takes them for"""

    def __len__(self) -> int:
        return len(self.ids)


def request_for(samples: Samples, label: int) -> Request:
    """Samples that the learner takes for a class."""
    return Request(
        label=label,
        ids=samples.ids.numpy().copy(),
        images=samples.images.numpy().copy(),
        predicted=np.full(len(samples), label),
    )


Callback = Callable[[Request], Any]
"""Gives a label per sample (None where nobody knows), a mapping of ids to labels (those left out may
come later), or None: all of them may."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Labels by sample number."""

    ids: Tensor
    """int64 (labels,)"""
    labels: Tensor
    """int64 (labels,)"""
    failed: bool = False
    """whether whoever was asked was not able to say: somebody else may be"""


class Inbox:
    """Answers that wait to be taken up, in the order in which they came; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._troubles: list[str] = []
        self._is_closed = False

    def add(self, answer: Answer) -> None:
        """Put an answer behind those that wait; UserError where too many do."""
        with self._lock:
            if self._is_closed:
                raise UserError(CLOSED)
            if sum(len(each.ids) for each in self._answers) + len(answer.ids) > MOST_ANSWERS:
                raise UserError(
                    f"{MOST_ANSWERS} labels wait to be taken up: call observe before giving more"
                )
            self._answers.append(answer)

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """From here on nothing is taken in any more, unless what is done in here fails."""
        with self._lock:
            self._is_closed = True
        try:
            yield
        except BaseException:
            with self._lock:
                self._is_closed = False
            raise

    def go_on_in_fork(self) -> None:
        """Be free of threads that are no more."""
        self._lock = threading.Lock()

    def complain(self, trouble: str) -> None:
        """Say what went wrong with an answer."""
        with self._lock:
            self._troubles.append(trouble)

    def empty(self) -> tuple[list[Answer], list[str]]:
        """All that wait, and what went wrong meanwhile."""
        with self._lock:
            answers, self._answers = self._answers, []
            troubles, self._troubles = self._troubles, []
        return answers, troubles

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        with self._lock:
            return {"answers": [dict(vars(answer)) for answer in self._answers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        with self._lock:
            self._answers = [Answer(**answer) for answer in state["answers"]]


class LabelRequester:
    """Calls the label callback, one request at a time, and waits for it so long and no longer."""

    def __init__(
        self, callback: Callback, inbox: Inbox, *, seconds: float, max_label: Callable[[], int]
    ) -> None:
        """`max_label` says what is the largest label that can be used now."""
        self._callback = callback
        self._inbox = inbox
        self._seconds = seconds
        self._max_label = max_label
        self._busy = threading.Lock()
        self._waited_for: int | None = None

    @property
    def waits_for_caller(self) -> bool:
        """Whether the thread that asks this is the callback's, and is being waited for."""
        return self._waited_for == threading.get_ident()

    def ask(self, request: Request) -> Answer | None:
        """The labels it gives; None: it may still give them. UserError: it failed."""
        if not self._busy.acquire(blocking=False):
            raise UserError("the label callback is still at work on an earlier request")
        call = _Call()
        thread = threading.Thread(target=self._work, args=(request, call), daemon=True)
        thread.start()
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

    def _work(self, request: Request, call: _Call) -> None:
        self._waited_for = threading.get_ident()
        try:
            answer, failure = self._read(request, self._callback(request)), None
        except UserError as error:
            answer, failure = None, f"the label callback gave what cannot be used: {error}"
        except BaseException as error:  # anybody's code runs here, and may raise anything
            answer, failure = None, f"the label callback failed: {first_line(error)}"
        self._busy.release()
        with call.lock:
            call.answer, call.failure = answer, failure
            call.done.set()
            if call.is_late and failure is not None:
                self._inbox.complain(failure)
                answer = _failed(request)
            if call.is_late and answer is not None:
                try:
                    self._inbox.add(answer)
                except UserError as error:
                    warnings.warn(f"{len(answer.ids)} labels came too late: {error}", stacklevel=1)

    def _read(self, request: Request, said: Any) -> Answer | None:
        if said is None:
            return None
        ids = torch.from_numpy(request.ids)
        if isinstance(said, Mapping):
            known = set(request.ids.tolist())
            if strangers := [key for key in said if key not in known]:
                raise UserError(f"sample {strangers[0]!r} was not asked for")
            ids = torch.tensor(list(said), dtype=torch.int64)
            said = list(said.values())
        labels = labels_from(said, len(ids), max_label=self._max_label())
        return Answer(ids=ids, labels=labels)


def _failed(request: Request) -> Answer:
    """No labels for these samples."""
    ids = torch.from_numpy(request.ids)
    return Answer(ids=ids, labels=torch.full_like(ids, UNKNOWN), failed=True)


class _Call:
    """One call of the callback, as the thread that makes it and the one that waits share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.is_late = False
        self.answer: Answer | None = None
        self.failure: str | None = None
