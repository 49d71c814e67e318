"""The samples that wait for labels: who is shown which, and in which order."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftwise.serve.history import History
from driftwise.serve.settings import ServeSettings
from driftwise.types import Samples

MAX_SKIPPED = 2000
"""samples that a labeller has skipped and is shown last"""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A sample to label."""

    id: int
    predicted: int
    """the class that was predicted when it came; -1: not known any more"""
    confidence: float
    value: tuple[float, ...]
    """cards with smaller values come first"""
    sample: np.ndarray
    text: str | None = None


class Board:
    """Cards by id, and leases: a card that one labeller sees is shown to no other."""

    def __init__(self, settings: ServeSettings) -> None:
        self._seconds = settings.lease_seconds
        self._lock = threading.Lock()
        self._cards: dict[int, Card] = {}
        self._leases: dict[int, tuple[str, float]] = {}
        self._taken: set[int] = set()
        """answered, but not applied by the learner yet"""
        self._skipped: dict[str, list[int]] = {}
        self._shown: tuple[object, ...] = ()
        """what the cards were made of"""

    def update(self, requested: Samples, history: History, waiting: Sequence[int]) -> None:
        """Show what is requested now; classes that wait for labels with the greatest harm first."""
        made_of = (tuple(requested.ids.tolist()), tuple(waiting), history.num_verdicts)
        if made_of == self._shown:
            return
        self._shown = made_of
        harm = {}
        for line in history.verdicts:
            if line["drifted"]:
                known = [line[name] for name in ("harm", "harm_unlabelled", "share")]
                harm[line["label"]] = next((each for each in known if each is not None), 0.0)
        cards = {}
        for place, number in enumerate(requested.ids.tolist()):
            predicted, confidence = history.recent.get(number, (-1, 0.0))
            value = (
                float(predicted not in waiting),
                -harm.get(predicted, 0.0),
                float(predicted),
                confidence,
                -float(number),
            )
            cards[number] = Card(
                id=number,
                predicted=predicted,
                confidence=confidence,
                value=value,
                sample=requested.images[place].numpy(),
                text=history.texts.get(number),
            )
        with self._lock:
            self._taken &= cards.keys()
            self._cards = cards
            self._leases = {key: each for key, each in self._leases.items() if key in cards}

    def __len__(self) -> int:
        with self._lock:
            return len(self._cards.keys() - self._taken)

    def counts(self) -> dict[int, int]:
        """Open cards by predicted class."""
        counts: dict[int, int] = {}
        for card in self.cards():
            counts[card.predicted] = counts.get(card.predicted, 0) + 1
        return counts

    def cards(self) -> list[Card]:
        """All open cards, the most valuable first."""
        with self._lock:
            left = [card for number, card in self._cards.items() if number not in self._taken]
        return sorted(left, key=lambda card: card.value)

    def card(self, number: int) -> Card | None:
        """An open or answered card by id."""
        with self._lock:
            return self._cards.get(number)

    def lease(self, labeller: str, count: int, held: Sequence[int] = ()) -> list[Card]:
        """The most valuable cards that nobody else sees, for some time.

        Cards that the labeller has already (`held`) come first and do not count; those of them that
        were answered, or that another one has got meanwhile, are missing.
        """
        now, cards = time.monotonic(), self.cards()
        with self._lock:
            skipped = self._skipped.get(labeller, [])
            kept = {number: place for place, number in enumerate(held)}

            def rank(card: Card) -> tuple[Any, ...]:
                return (kept.get(card.id, len(kept)), card.id in skipped, card.value)

            mine: list[Card] = []
            left = count
            for card in sorted(cards, key=rank):
                holder, until = self._leases.get(card.id, (labeller, now))
                if (holder != labeller and until > now) or (card.id not in kept and not left):
                    continue
                left -= card.id not in kept
                self._leases[card.id] = (labeller, now + self._seconds)
                mine.append(card)
        return mine

    def skip(self, labeller: str, number: int) -> None:
        """Show a card to this labeller last, and to others again."""
        with self._lock:
            if number not in self._cards:
                return
            skipped = self._skipped.setdefault(labeller, [])
            skipped.append(number)
            del skipped[:-MAX_SKIPPED]
            if self._leases.get(number, ("",))[0] == labeller:
                del self._leases[number]
            if len(self._skipped) > MAX_SKIPPED:
                self._skipped.pop(next(iter(self._skipped)))

    def take(self, ids: Sequence[int]) -> list[int]:
        """These are being answered: nobody is shown them any more; those that were open."""
        with self._lock:
            taken = [each for each in ids if each in self._cards and each not in self._taken]
            self._taken |= set(taken)
        return taken

    def put_back(self, ids: Sequence[int]) -> None:
        """Their answers could not be taken."""
        with self._lock:
            self._taken -= set(ids)

    def summary(self) -> dict[str, Any]:
        """How many cards are open and leased."""
        now = time.monotonic()
        with self._lock:
            leased = sum(until > now for _, until in self._leases.values())
            return {"open": len(self._cards.keys() - self._taken), "leased": leased}
