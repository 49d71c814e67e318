"""Recurring concepts: samples of a concept that returns are restored from an archive."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from driftwise.adapt.base import FEWEST, Adaptation, Wrapper, current_samples
from driftwise.protocols import AdaptationContext, KeepsStatistics
from driftwise.types import AdaptationResult, Moments, Samples, Verdict


class RecurringConcepts(Wrapper):
    """Archives the samples that a realignment replaces; restores them when their concept returns.

    >>> import driftwise as dw
    >>> adaptation = dw.adapt.RecurringConcepts(dw.adapt.Realign(), concepts=2)
    """

    def __init__(self, inner: Adaptation, *, concepts: int = 3, same_below: float = 0.4) -> None:
        """What is archived, and when it is restored.

        Args:
            inner: what adapts classes whose concept is new.
            concepts: earlier concepts kept of each class, the newest ones.
            same_below: a concept has returned if a smaller fraction of the class's current samples
                has drifted from it; where the buffer keeps statistics, if their mean is nearer to
                it than this fraction of their distance from the present statistics.
        """
        super().__init__(inner)
        self._concepts = concepts
        self._same_below = same_below
        self._archive: dict[int, list[Samples]] = {}
        self._statistics: dict[int, list[Moments]] = {}

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Restore returned concepts, let `inner` adapt the other classes, archive what goes."""
        if isinstance(context.buffer, KeepsStatistics):
            return self._adapt_statistics(drifted, context.buffer, context)
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
        return _with_restored(result, restored)

    def _adapt_statistics(
        self, drifted: Sequence[Verdict], buffer: KeepsStatistics, context: AdaptationContext
    ) -> AdaptationResult:
        """The same for class statistics, which are archived and restored as they are."""
        before = {verdict.label: buffer.moments_of(verdict.label) for verdict in drifted}
        restored: dict[int, Samples] = {}
        for label, present in before.items():
            archived = self._statistics.get(label, [])
            now = current_samples(label, context)
            if present is None or not archived or len(now) < FEWEST:
                continue
            distances = [buffer.distance(each, now.images) for each in archived]
            nearest = distances.index(min(distances))
            if distances[nearest] < self._same_below * buffer.distance(present, now.images):
                buffer.restore(label, archived.pop(nearest))
                restored[label] = dataclasses.replace(now, labels=now.labels * 0 + label)
        result = self._inner.adapt(
            [each for each in drifted if each.label not in restored], context
        )
        for label in (*restored, *result.renewed):
            if (present := before.get(label)) is not None:
                archived = self._statistics.setdefault(label, [])
                archived.append(present)
                del archived[: -self._concepts]
        return _with_restored(result, restored, "its statistics")

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
        statistics = {
            str(label): [dict(vars(moments)) for moments in archived]
            for label, archived in self._statistics.items()
        }
        own = {"archive": archive} | ({"statistics": statistics} if statistics else {})
        return {**own, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._archive = {
            int(label): [Samples.restored(samples) for samples in archived]
            for label, archived in state["archive"].items()
        }
        self._statistics = {
            int(label): [Moments(**moments) for moments in archived]
            for label, archived in state.get("statistics", {}).items()
        }
        super().load_state_dict(state)


def _with_restored(
    result: AdaptationResult, restored: dict[int, Samples], what: str | None = None
) -> AdaptationResult:
    """The result, with the classes whose earlier concept was restored."""
    if not restored:
        return result
    parts = [*restored.values(), *([] if result.refilled is None else [result.refilled])]
    notes = [
        f"class {label}: an earlier concept has returned, {what or f'{len(samples)} samples'} "
        "restored without labels"
        for label, samples in restored.items()
    ]
    return dataclasses.replace(
        result,
        refilled=Samples.concat(parts),
        renewed=(*restored, *result.renewed),
        notes=(*notes, *result.notes),
    )
