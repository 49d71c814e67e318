"""Gradual drift: act where enough of a class has moved, and do not flap."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from driftwise.adapt.current_samples import current_samples
from driftwise.adapt.partial import FEWEST
from driftwise.adapt.wrapped import load_state_of, state_of
from driftwise.protocols import Adaptation, Workbench
from driftwise.types import Repair, Verdict


class Steady:
    """Passes on a class once a clear share of it has moved, and then until next to none does."""

    def __init__(self, inner: Adaptation, *, begin: float = 0.3, end: float = 0.15) -> None:
        """A class begins to move at the share `begin` and rests again below `end`."""
        self._inner = inner
        self._begin = begin
        self._end = end
        self._moving: set[int] = set()

    def repair(self, drifted: Sequence[Verdict], bench: Workbench) -> Repair:
        """The inner repair of classes that move; the others are told of."""
        # Classes that moved, were tested again, and are not reported any more.
        self._moving -= bench.tested - {verdict.label for verdict in drifted}
        passed: list[Verdict] = []
        notes: list[str] = []
        for verdict in drifted:
            share = _share(verdict, bench)
            enough = self._end if verdict.label in self._moving else self._begin
            if share is not None and share < enough:
                self._moving.discard(verdict.label)
                notes.append(f"class {verdict.label}: {100 * share:.0f} % have moved, left alone")
                continue
            self._moving.add(verdict.label)
            passed.append(dataclasses.replace(verdict, share=share))
        repair = self._inner.repair(passed, bench)
        return dataclasses.replace(repair, notes=(*notes, *repair.notes))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {"moving": sorted(self._moving), "inner": state_of(self._inner)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._moving = set(state["moving"])
        load_state_of(self._inner, state["inner"])


def _share(verdict: Verdict, bench: Workbench) -> float | None:
    """How much of the class has moved: by the detector, or from memory's samples; None: unknown."""
    if verdict.share is not None:
        return verdict.share
    held, now = bench.memory.samples_of(verdict.label), current_samples(verdict.label, bench)
    if min(len(held), len(now)) < FEWEST:
        return None
    kept, current = (bench.encode(samples.images).features for samples in (held, now))
    return bench.compare(kept, current).share
