"""Concepts that were seen before: one that returns is restored from an archive, without a label."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from driftwise.adapt.current_samples import current_samples
from driftwise.adapt.partial import FEWEST
from driftwise.adapt.wrapped import load_state_of, state_of
from driftwise.protocols import Adaptation, AdaptationContext
from driftwise.types import AdaptationResult, Samples, Verdict


class RecurringConcepts:
    """Keeps the samples that a realignment throws out, and puts them back when their look returns."""

    def __init__(self, inner: Adaptation, *, looks: int = 3, same_below: float = 0.4) -> None:
        """`looks`: how many earlier ones are kept of each class, the newest ones.

        A look returns if less than `same_below` of the class's current samples have moved from it.
        """
        self._inner = inner
        self._looks = looks
        self._same_below = same_below
        self._archive: dict[int, list[Samples]] = {}

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Restore what has returned, leave the rest to the inner repair, and keep what goes."""
        before = {verdict.label: context.memory.samples_of(verdict.label) for verdict in drifted}
        restored: dict[int, Samples] = {}
        strangers: list[Verdict] = []
        for verdict in drifted:
            look = self._returned(verdict.label, len(before[verdict.label]), context)
            if look is None:
                strangers.append(verdict)
                continue
            context.memory.drop(verdict.label)
            context.memory.put(look, context.annotate(look))
            restored[verdict.label] = look
        result = self._inner.adapt(strangers, context)
        for label in (*restored, *result.renewed):
            self._keep(label, before[label])
        if not restored:
            return result
        parts = [*restored.values(), *([] if result.refilled is None else [result.refilled])]
        notes = [
            f"class {label} looks as it did before: {len(samples)} samples restored, no labels asked for"
            for label, samples in restored.items()
        ]
        return dataclasses.replace(
            result,
            refilled=Samples.concat(parts),
            renewed=(*restored, *result.renewed),
            notes=(*notes, *result.notes),
        )

    def _returned(self, label: int, slots: int, context: AdaptationContext) -> Samples | None:
        """The earlier look that the class has taken on again; it leaves the archive."""
        looks = self._archive.get(label, [])
        now = current_samples(label, context) if looks and slots else None
        if now is None or len(now) < FEWEST:
            return None
        current = context.encode(now.images).features
        shares = [
            context.compare(context.encode(look.images).features, current).share for look in looks
        ]
        nearest = min(range(len(looks)), key=shares.__getitem__)
        if shares[nearest] >= self._same_below:
            return None
        return looks.pop(nearest)[:slots]

    def _keep(self, label: int, samples: Samples) -> None:
        if len(samples) >= FEWEST:
            looks = self._archive.setdefault(label, [])
            looks.append(samples)
            del looks[: -self._looks]

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        archive = {
            str(label): [dict(vars(samples)) for samples in looks]
            for label, looks in self._archive.items()
        }
        return {"archive": archive, "inner": state_of(self._inner)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        self._archive = {
            int(label): [Samples.restored(samples) for samples in looks]
            for label, looks in state["archive"].items()
        }
        load_state_of(self._inner, state["inner"])
