"""Recurring concepts: samples of a concept that returns are restored from an archive."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from driftwise.adapt.base import FEWEST, Adaptation, Wrapper, current_samples
from driftwise.protocols import AdaptationContext
from driftwise.types import AdaptationResult, Samples, Verdict


class RecurringConcepts(Wrapper):
    """Archives the samples that a realignment replaces; restores them when their concept returns."""

    def __init__(self, inner: Adaptation, *, concepts: int = 3, same_below: float = 0.4) -> None:
        """What is archived, and when it is restored.

        Args:
            inner: what adapts classes whose concept is new.
            concepts: earlier concepts kept of each class, the newest ones.
            same_below: a concept has returned if a smaller fraction of the class's current samples
                has drifted from it.
        """
        super().__init__(inner)
        self._concepts = concepts
        self._same_below = same_below
        self._archive: dict[int, list[Samples]] = {}

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Restore returned concepts, let `inner` adapt the other classes, archive what goes."""
        before = {verdict.label: context.buffer.samples_of(verdict.label) for verdict in drifted}
        restored: dict[int, Samples] = {}
        unknown: list[Verdict] = []
        for verdict in drifted:
            samples = self._take_returned(verdict.label, len(before[verdict.label]), context)
            if samples is None:
                unknown.append(verdict)
                continue
            context.buffer.drop(verdict.label)
            context.buffer.put(samples, context.annotate(samples))
            restored[verdict.label] = samples
        result = self._inner.adapt(unknown, context)
        for label in (*restored, *result.renewed):
            self._keep(label, before[label])
        if not restored:
            return result
        parts = [*restored.values(), *([] if result.refilled is None else [result.refilled])]
        notes = [
            f"class {label}: an earlier concept has returned, {len(samples)} samples restored "
            "without labels"
            for label, samples in restored.items()
        ]
        return dataclasses.replace(
            result,
            refilled=Samples.concat(parts),
            renewed=(*restored, *result.renewed),
            notes=(*notes, *result.notes),
        )

    def _take_returned(self, label: int, slots: int, context: AdaptationContext) -> Samples | None:
        """Take the samples of the concept that has returned, `slots` at most, from the archive."""
        archived = self._archive.get(label, [])
        now = current_samples(label, context) if archived and slots else None
        if now is None or len(now) < FEWEST:
            return None
        current = context.encode(now.images).features
        fractions = [
            context.compare(context.encode(samples.images).features, current).share
            for samples in archived
        ]
        nearest = min(range(len(archived)), key=fractions.__getitem__)
        if fractions[nearest] >= self._same_below:
            return None
        return archived.pop(nearest)[:slots]

    def _keep(self, label: int, samples: Samples) -> None:
        if len(samples) >= FEWEST:
            archived = self._archive.setdefault(label, [])
            archived.append(samples)
            del archived[: -self._concepts]

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        archive = {
            str(label): [dict(vars(samples)) for samples in archived]
            for label, archived in self._archive.items()
        }
        return {"archive": archive, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._archive = {
            int(label): [Samples.restored(samples) for samples in archived]
            for label, archived in state["archive"].items()
        }
        super().load_state_dict(state)
