"""Adaptive Memory Realignment: drifted classes' slots are refilled from the new distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from driftwise.protocols import AdaptationContext, Choose
from driftwise.types import AdaptationResult, Samples, Verdict

Outdated = Callable[[Verdict, Samples, AdaptationContext], Tensor]
"""Which of a drifted class's samples in memory have to go: a mask, bool (samples,)."""


def all_of_them(verdict: Verdict, held: Samples, context: AdaptationContext) -> Tensor:
    """No sample outlives a drift of its class, as published."""
    del verdict, context
    return torch.ones(len(held), dtype=torch.bool)


class Realign:
    """Throws a drifted class's samples out of memory and puts as many fresh ones in their place."""

    def __init__(
        self,
        *,
        outdated: Outdated = all_of_them,
        choice: Callable[[Verdict, AdaptationContext], Choose] | None = None,
    ) -> None:
        """`choice` says which fresh samples are worth a label; None: any of them."""
        self._outdated = outdated
        self._choice = choice

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        """Ask for exactly as many labels as the drifted classes have outdated samples."""
        notes: list[str] = []
        goes = self._outdated_samples(drifted, context, notes)
        wanted = {label: int(mask.sum()) for label, mask in goes.items()}
        shares = context.labels.spread({**wanted})
        refilled: list[Samples] = []
        renewed: list[int] = []
        for verdict in drifted:
            label = verdict.label
            if label not in goes:
                continue
            choose = None if self._choice is None else self._choice(verdict, context)
            fresh = context.labels.ask(label, shares[label], choose=choose)
            if not len(fresh):
                # Dropping without anything to put in would lose the class altogether.
                notes.append(
                    f"class {label}: no fresh samples were granted, its {wanted[label]} old ones stay"
                )
                continue
            # What came lately may be there already, and stay: no sample is to be there twice.
            again = _among(context.memory.samples_of(label), fresh)
            context.memory.drop(label, goes[label] | again)
            context.memory.put(fresh, context.annotate(fresh))
            refilled.append(fresh)
            renewed.append(label)
            if len(fresh) < wanted[label]:
                notes.append(
                    f"class {label}: {len(fresh)} fresh samples were granted for {wanted[label]} slots"
                )
        return AdaptationResult(
            refilled=Samples.concat(refilled) if refilled else None,
            renewed=tuple(renewed),
            notes=tuple(notes),
        )

    def _outdated_samples(
        self, drifted: Sequence[Verdict], context: AdaptationContext, notes: list[str]
    ) -> dict[int, Tensor]:
        """The samples of each class that have to go, where there are any."""
        goes = {}
        for verdict in drifted:
            held = context.memory.samples_of(verdict.label)
            if not len(held):
                notes.append(f"class {verdict.label} has no samples in memory: nothing to realign")
                continue
            mask = self._outdated(verdict, held, context)
            if mask.any():
                goes[verdict.label] = mask
            else:
                notes.append(f"class {verdict.label}: its {len(held)} samples still fit")
        return goes


def _among(samples: Samples, others: Samples) -> Tensor:
    """Which samples are among the others, looking the same, bool (samples,)."""
    looks = 1 + int(torch.cat([samples.concepts, others.concepts]).max())
    keys = (each.ids * looks + each.concepts for each in (samples, others))
    return torch.isin(*keys)
