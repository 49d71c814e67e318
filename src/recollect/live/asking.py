"""Labels from outside: a callback that may fail, block or answer later, within a budget."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from recollect.errors import UserError
from recollect.evaluate import Ledger
from recollect.experiment.own_network import first_line
from recollect.live.intake import UNKNOWN, labels_from
from recollect.live.window import Late, Window
from recollect.shapes import Choose
from recollect.shares import share_out
from recollect.types import Rows

FEWEST = 10
"""fresh rows, below which a class waits for more: its old rows would go for next to nothing"""


CLOSED = "the keeper has been closed; go on with Keeper.load, or make a new one"

MOST_ANSWERS = 100_000
"""labels that may wait to be taken up"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """Rows that somebody is asked to label: rows that look like a class that has drifted."""

    label: int
    """the class that has drifted"""
    ids: np.ndarray
    """int64 (rows,): by which labels that come later are told, see `Keeper.answer`"""
    images: np.ndarray
    """as they came, (rows, ...)"""
    predicted: np.ndarray
    """int64 (rows,): what the learner takes them for"""

    def __len__(self) -> int:
        return len(self.ids)


def request_for(rows: Rows, label: int) -> Request:
    """Rows that the learner takes for a class."""
    return Request(
        label=label,
        ids=rows.ids.numpy().copy(),
        images=rows.images.numpy().copy(),
        predicted=np.full(len(rows), label),
    )


Callback = Callable[[Request], Any]
"""Gives a label per row (None where nobody knows), a mapping of ids to labels (those left out may
come later), or None: all of them may."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Labels by row number."""

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


class Asker:
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
                raise UserError(f"row {strangers[0]!r} was not asked for")
            ids = torch.tensor(list(said), dtype=torch.int64)
            said = list(said.values())
        labels = labels_from(said, len(ids), max_label=self._max_label())
        return Answer(ids=ids, labels=labels)


def _failed(request: Request) -> Answer:
    """No labels for these rows."""
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


class Tell(Protocol):
    """Is told what happens while labels are asked for."""

    def __call__(self, kind: str, **details: Any) -> None:
        """An event."""
        ...


class LiveLabels:
    """A label source for one repair: recent labelled rows first, which cost nothing, then the
    callback."""

    def __init__(
        self,
        window: Window,
        ledger: Ledger,
        *,
        asker: Asker | None,
        predict: Callable[[Tensor], Tensor],
        tell: Tell,
        onset: Callable[[int], int | None] = lambda _: None,
        now: int = 0,
    ) -> None:
        """`asker` None: nobody is asked. `onset`: the row with which a class has begun to drift.

        `now`: the row from which on all that comes shows how classes look at present.
        """
        self._window = window
        self._ledger = ledger
        self._asker = asker
        self._predict = predict
        self._tell = tell
        self._onset = onset
        self._now = now
        self._wanted: dict[int, int | None] = {}
        self._given: list[Rows] = []
        self.unmet: set[int] = set()
        """classes for which there were no rows, or too few"""

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Rows:
        """Up to `count` fresh rows of a class (None: all there are); none rather than a few."""
        free = self._fresh(label)
        if count is not None and len(free) >= count:
            given, rows = free[:0], _newest(free, count, choose)
        else:
            given = self._ask(label, None if count is None else count - len(free), choose)
            rows = Rows.concat([free, given.of_class(label)])
        self._given.append(given[given.labels != label])
        # A budget that does for a share of what is wanted makes a few rows no more than a few.
        wanted = self._wanted.get(label, count)
        if len(rows) < (FEWEST if wanted is None else max(1, min(wanted, FEWEST))):
            self.unmet.add(label)
            self._given.append(given.of_class(label))
            return rows[:0]
        self.unmet.discard(label)
        return rows

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """As many as are wanted, or what has labels and a share of what the budget still has."""
        self._wanted = dict(wanted)
        if self._asker is None or self._ledger.label_budget is None:
            return dict(wanted)
        free = {label: len(self._fresh(label)) for label in wanted}
        paid = {}
        for label, count in wanted.items():
            there = len(self._unasked(label))
            paid[label] = there if count is None else min(there, max(0, count - free[label]))
        total = sum(paid.values())
        granted = self._allowance(total)
        if granted == total:
            return dict(wanted)
        shares = share_out(paid, granted)
        return {
            label: shares[label] + (free[label] if count is None else min(count, free[label]))
            for label, count in wanted.items()
        }

    def unlabelled(self) -> Rows:
        """What has come since the rows that are checked began to; labels are -1."""
        rows = self._window.unlabelled.rows()
        return rows[(rows.ids >= self._now) & ~self._window.guessed.refers_to(rows.ids)]

    def _fresh(self, label: int) -> Rows:
        """Labelled rows of a class that show it as it looks now, as far as that is known."""
        if (row := self._onset(label)) is not None:
            self._window.checked([label], row)
        return self._window.fresh(label)

    def to_learn(self) -> list[Rows]:
        """Rows with labels that were given, of which the repair had no use."""
        return [rows for rows in self._given if len(rows)]

    def _ask(self, label: int, count: int | None, choose: Choose | None) -> Rows:
        """Rows that look like the class, with the labels that the callback gives them."""
        if self._asker is None or count == 0:
            return self._window.unlabelled.rows()[:0]
        pool = self._unasked(label)
        wanted = self._allowance(len(pool) if count is None else min(count, len(pool)))
        if not wanted:
            return pool[:0]
        rows = _newest(pool, wanted, choose)
        request = request_for(rows, label)
        # Requests that are no longer kept may still be answered: they are spent.
        self._ledger.book_labels("adaptation", self._window.ask_for(rows))
        self._tell("asked", rows=len(rows), label=label)
        try:
            answer = self._asker.ask(request)
        except UserError as error:
            self._window.take_back(rows.ids)
            self._tell("trouble", label=label, text=f"class {label}: {error}")
            return rows[:0]
        if answer is None:
            self._tell("pending", rows=len(rows), label=label, text=_pending(label, len(rows)))
            return rows[:0]
        known = answer.labels != UNKNOWN
        late = self._window.answered(answer.ids[known], answer.labels[known])
        self._ledger.book_labels("adaptation", late.asked)
        # What nobody knows need not be asked for again; what was not spoken of may still come.
        self._window.asked.remove(answer.ids[~known])
        told = {} if late.asked == len(answer.ids) else {"text": _fewer(label, answer)}
        self._tell("answered", given=late.asked, late=0, label=label, **told)
        if open_still := len(rows) - len(answer.ids):
            self._tell("pending", rows=open_still, label=label, text=_pending(label, open_still))
        return late.learn

    def _unasked(self, label: int) -> Rows:
        """Rows that look like the class, and nobody has been asked to label."""
        pool = self._window.unasked(label)
        return pool[self._predict(pool.images) == label]

    def _allowance(self, wanted: int) -> int:
        """How many of so many labels the budget still has, those that may yet come left out."""
        granted = self._ledger.allowance(wanted)
        if self._ledger.label_budget is not None:
            spent = self._ledger.labels["adaptation"] + len(self._window.asked)
            granted = min(granted, max(0, self._ledger.label_budget - spent))
        return granted


def _fewer(label: int, answer: Answer) -> str:
    known = int((answer.labels != UNKNOWN).sum())
    return f"class {label}: {known} of {len(answer.ids)} labels that were asked for came"


def _pending(label: int, rows: int) -> str:
    return f"class {label}: {rows} labels were asked for and may still come"


def _newest(rows: Rows, count: int, choose: Choose | None) -> Rows:
    """So many of the rows, in the order in which they came: the last ones, or what is chosen.

    Whoever takes any of them has the newest to begin with: they show best how a class looks now.
    """
    if choose is None:
        return rows[len(rows) - count :]
    newest_first = rows[torch.arange(len(rows)).flip(0)]
    chosen = newest_first[choose(newest_first.images, count)]
    return chosen[chosen.ids.argsort()]


def take_up(answers: list[Answer], window: Window, ledger: Ledger) -> list[Late]:
    """What has become of late answers, one after the other."""
    taken = []
    for answer in answers:
        if answer.failed:
            window.take_back(answer.ids)
            continue
        known = answer.labels != UNKNOWN
        late = window.answered(answer.ids[known], answer.labels[known])
        window.asked.remove(answer.ids[~known])
        ledger.book_labels("adaptation", late.asked)
        ledger.book_labels("stream", late.unasked)
        taken.append(late)
    return taken
