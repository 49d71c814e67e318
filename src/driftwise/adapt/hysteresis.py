"""Gradual drift: adapt a class from a clear fraction drifted on, without switching to and fro."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from driftwise.adapt.base import FEWEST, Adaptation, Wrapper, current_samples
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Verdict


class Hysteresis(Wrapper):
    """Passes on a class once a clear fraction of it has drifted, and then until hardly any does.

    >>> import driftwise as dw
    >>> adaptation = dw.adapt.Hysteresis(dw.adapt.Realign(), begin=0.4)
    """

    def __init__(self, inner: Adaptation, *, begin: float = 0.3, end: float = 0.15) -> None:
        """Two thresholds on the fraction drifted.

        Args:
            inner: what adapts the classes that are passed on.
            begin: fraction from which on a class is adapted.
            end: fraction below which a class that was being adapted no longer is.
        """
        super().__init__(inner)
        self._begin = begin
        self._end = end
        self._drifting: set[int] = set()

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Let `inner` adapt the drifting classes; a note names each of the others."""
        # Classes that were drifting, were tested again, and are not reported any more.
        self._drifting -= context.tested - {verdict.label for verdict in drifted}
        passed: list[Verdict] = []
        notes: list[str] = []
        for verdict in drifted:
            label, fraction = verdict.label, _fraction_drifted(verdict, context)
            threshold = self._end if label in self._drifting else self._begin
            if fraction is not None and fraction < threshold:
                self._drifting.discard(label)
                notes.append(f"class {label}: {100 * fraction:.0f} % drifted, not adapted")
                continue
            self._drifting.add(label)
            passed.append(dataclasses.replace(verdict, share=fraction))
        result = self._inner.adapt(passed, context)
        return dataclasses.replace(result, notes=(*notes, *result.notes))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {"moving": sorted(self._drifting), **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._drifting = set(state["moving"])
        super().load_state_dict(state)


def _fraction_drifted(verdict: Verdict, context: AdaptationContext) -> float | None:
    """By the detector, or else by comparison with the buffer; None: too few samples."""
    if verdict.share is not None:
        return verdict.share
    held, now = context.buffer.samples_of(verdict.label), current_samples(verdict.label, context)
    if min(len(held), len(now)) < FEWEST:
        return None
    kept, current = (context.encode(samples.images).features for samples in (held, now))
    return context.compare(kept, current).share
