"""Where a repair in a live stream gets its labels: samples that had one, then whoever can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.label_budget import split_budget
from driftwise.live.inputs import UNKNOWN
from driftwise.live.label_requests import Answer, LabelRequester, request_for
from driftwise.live.window import Late, Window
from driftwise.metrics import Ledger
from driftwise.protocols import Choose
from driftwise.types import Samples

FEWEST_FRESH = 10
"""fresh samples, below which a class waits for more: its old samples would go for next to nothing"""


class Tell(Protocol):
    """Is told what happens while labels are asked for."""

    def __call__(self, kind: str, **details: Any) -> None:
        """An event."""
        ...


class LiveLabels:
    """A label source for one repair: recent labelled samples first, which cost nothing, then the
    callback."""

    def __init__(
        self,
        window: Window,
        ledger: Ledger,
        *,
        requester: LabelRequester | None,
        predict: Callable[[Tensor], Tensor],
        tell: Tell,
        onset: Callable[[int], int | None] = lambda _: None,
        now: int = 0,
    ) -> None:
        """`asker` None: nobody is asked. `onset`: the sample with which a class has begun to drift.

        `now`: the sample from which on all that comes shows how classes look at present.
        """
        self._window = window
        self._ledger = ledger
        self._requester = requester
        self._predict = predict
        self._tell = tell
        self._onset = onset
        self._now = now
        self._wanted: dict[int, int | None] = {}
        self._given: list[Samples] = []
        self._delivered = torch.empty(0, dtype=torch.int64)
        self.unmet: set[int] = set()
        """classes for which there were no samples, or too few"""

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        """Up to `count` fresh samples of a class (None: all there are); none rather than a few.

        No sample is given twice.
        """
        free = self._fresh(label)
        if count is not None and len(free) >= count:
            given, samples = free[:0], _newest(free, count, choose)
        else:
            given = self._ask(label, None if count is None else count - len(free), choose)
            samples = Samples.concat([free, given.of_class(label)])
        self._given.append(given[given.labels != label])
        # A budget that does for a share of what is wanted makes a few samples no more than a few.
        wanted = self._wanted.get(label, count)
        if len(samples) < (FEWEST_FRESH if wanted is None else max(1, min(wanted, FEWEST_FRESH))):
            self.unmet.add(label)
            self._given.append(given.of_class(label))
            return samples[:0]
        self.unmet.discard(label)
        self._delivered = torch.cat([self._delivered, samples.ids])
        return samples

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """As many as are wanted, or what has labels and a share of what the budget still has."""
        self._wanted = dict(wanted)
        if self._requester is None or self._ledger.label_budget is None:
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
        shares = split_budget(paid, granted)
        return {
            label: shares[label] + (free[label] if count is None else min(count, free[label]))
            for label, count in wanted.items()
        }

    def unlabelled(self) -> Samples:
        """What has come since the samples that are checked began to; labels are -1."""
        samples = self._window.unlabelled.samples()
        return samples[(samples.ids >= self._now) & ~self._window.guessed.refers_to(samples.ids)]

    def _fresh(self, label: int) -> Samples:
        """Labelled samples of a class that show it as it looks now, as far as that is known."""
        if (sample := self._onset(label)) is not None:
            self._window.unchanged_until([label], sample)
        samples = self._window.fresh(label)
        return samples[~torch.isin(samples.ids, self._delivered)]

    def to_learn(self) -> list[Samples]:
        """Samples with labels that were given, of which the repair had no use."""
        return [samples for samples in self._given if len(samples)]

    def _ask(self, label: int, count: int | None, choose: Choose | None) -> Samples:
        """Samples that look like the class, with the labels that the callback gives them."""
        if self._requester is None or count == 0:
            return self._window.unlabelled.samples()[:0]
        pool = self._unasked(label)
        wanted = self._allowance(len(pool) if count is None else min(count, len(pool)))
        if not wanted:
            return pool[:0]
        samples = _newest(pool, wanted, choose)
        request = request_for(samples, label)
        # Requests that are no longer kept may still be answered: they are spent.
        self._ledger.book_labels("adaptation", self._window.ask_for(samples))
        self._tell("asked", rows=len(samples), label=label)
        try:
            answer = self._requester.ask(request)
        except UserError as error:
            self._window.take_back(samples.ids)
            self._tell("trouble", label=label, text=f"class {label}: {error}")
            return samples[:0]
        if answer is None:
            self._tell(
                "pending", rows=len(samples), label=label, text=_pending(label, len(samples))
            )
            return samples[:0]
        known = answer.labels != UNKNOWN
        late = self._window.answered(answer.ids[known], answer.labels[known])
        self._ledger.book_labels("adaptation", late.asked)
        # What nobody knows need not be asked for again; what was not spoken of may still come.
        self._window.asked.remove(answer.ids[~known])
        told = {} if late.asked == len(answer.ids) else {"text": _fewer(label, answer)}
        self._tell("answered", given=late.asked, late=0, label=label, **told)
        if open_still := len(samples) - len(answer.ids):
            self._tell("pending", rows=open_still, label=label, text=_pending(label, open_still))
        return late.learn

    def _unasked(self, label: int) -> Samples:
        """Samples that look like the class, and nobody has been asked to label."""
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


def _pending(label: int, samples: int) -> str:
    return f"class {label}: {samples} labels were asked for and may still come"


def _newest(samples: Samples, count: int, choose: Choose | None) -> Samples:
    """So many of the samples, in the order in which they came: the last ones, or what is chosen.

    Whoever takes any of them has the newest to begin with: they show best how a class looks now.
    """
    if choose is None:
        return samples[len(samples) - count :]
    newest_first = samples[torch.arange(len(samples)).flip(0)]
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
