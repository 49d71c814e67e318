"""Gradual drift: act where enough of a class has moved, and do not flap."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from driftwise.adapt.current_samples import current_samples
from driftwise.adapt.partial import FEWEST
from driftwise.adapt.wrapped import load_state_of, state_of
from driftwise.protocols import Adaptation, AdaptationContext
from driftwise.types import AdaptationResult, Verdict


class Hysteresis:
    """Passes on a class once a clear share of it has moved, and then until next to none does."""

    def __init__(self, inner: Adaptation, *, begin: float = 0.3, end: float = 0.15) -> None:
        """A class begins to move at the share `begin` and rests again below `end`."""
        self._inner = inner
        self._begin = begin
        self._end = end
        self._moving: set[int] = set()

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """The inner repair of classes that move; the others are told of."""
        # Classes that moved, were tested again, and are not reported any more.
        self._moving -= context.tested - {verdict.label for verdict in drifted}
        passed: list[Verdict] = []
        notes: list[str] = []
        for verdict in drifted:
            share = _share(verdict, context)
            enough = self._end if verdict.label in self._moving else self._begin
            if share is not None and share < enough:
                self._moving.discard(verdict.label)
                notes.append(f"class {verdict.label}: {100 * share:.0f} % have moved, left alone")
                continue
            self._moving.add(verdict.label)
            passed.append(dataclasses.replace(verdict, share=share))
        result = self._inner.adapt(passed, context)
        return dataclasses.replace(result, notes=(*notes, *result.notes))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {"moving": sorted(self._moving), "inner": state_of(self._inner)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._moving = set(state["moving"])
        load_state_of(self._inner, state["inner"])


def _share(verdict: Verdict, context: AdaptationContext) -> float | None:
    """How much of the class has moved: by the detector, or from memory's samples; None: unknown."""
    if verdict.share is not None:
        return verdict.share
    held, now = context.memory.samples_of(verdict.label), current_samples(verdict.label, context)
    if min(len(held), len(now)) < FEWEST:
        return None
    kept, current = (context.encode(samples.images).features for samples in (held, now))
    return context.compare(kept, current).share
