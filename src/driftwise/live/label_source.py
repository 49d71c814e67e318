"""The labels of an adaptation: recent labelled samples first, then requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.live.inputs import UNKNOWN
from driftwise.live.label_requests import Answer, LabelRequester, Request
from driftwise.live.window import LateLabels, Window
from driftwise.metrics import Ledger
from driftwise.protocols import Choose, split_budget
from driftwise.types import Samples

MIN_FRESH = 10
"""with fewer fresh samples a class waits for more: it would lose its old ones for almost nothing"""


class Emit(Protocol):
    """Receives events."""

    def __call__(self, kind: str, **details: Any) -> None:
        """Report an event."""
        ...


class LiveLabels:
    """The label source of one adaptation: labelled samples are free, requests are booked."""

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
            given = self._request(label, None if count is None else count - len(free), choose)
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
        paid = {}
        for label, count in wanted.items():
            available = len(self._requestable(label))
            paid[label] = (
                available if count is None else min(available, max(0, count - free[label]))
            )
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
        samples = self._window.unlabelled.samples()
        is_free = ~self._window.predicted.is_reference(samples.ids)
        return samples[(samples.ids >= self._current_from) & is_free]

    def unused(self) -> list[Samples]:
        """Samples with requested labels that the adaptation has not used."""
        return [samples for samples in self._unused if len(samples)]

    def _fresh(self, label: int) -> Samples:
        """Labelled samples of the current concept of a class that were not given yet."""
        if (onset := self._onset(label)) is not None:
            self._window.unchanged_until([label], onset)
        samples = self._window.fresh(label)
        return samples[~torch.isin(samples.ids, self._delivered)]

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
        if answer is None:
            self._report_pending(label, len(samples))
            return samples[:0]
        late = apply_answer(answer, self._window, self._ledger)
        details = {}
        if late.requested != len(answer.ids):
            known = int((answer.labels != UNKNOWN).sum())
            text = f"class {label}: {known} of {len(answer.ids)} labels that were asked for came"
            details = {"text": text}
        self._emit("answered", given=late.requested, late=0, label=label, **details)
        if pending := len(samples) - len(answer.ids):
            self._report_pending(label, pending)
        return late.learn

    def _report_pending(self, label: int, count: int) -> None:
        text = f"class {label}: {count} labels were asked for and may still come"
        self._emit("pending", rows=count, label=label, text=text)

    def _requestable(self, label: int) -> Samples:
        """Samples predicted as the class whose labels were not requested."""
        pool = self._window.requestable(label)
        return pool[self._predict(pool.images) == label]

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
    window.requested.remove(answer.ids[~known])
    return late
