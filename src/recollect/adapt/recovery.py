"""A short phase of replay right after realignment, before anything new is learned."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from recollect.adapt.current import has_labels
from recollect.adapt.wrapped import load_state_of, state_of
from recollect.shapes import Adaptation, Workbench
from recollect.types import Repair, Rows, Verdict

ROUND = 20
"""steps between two looks at whether the classes have recovered"""


class Recover:
    """Rehearses after a repair until the renewed classes gain nothing more, or steps run out."""

    def __init__(self, inner: Adaptation, *, steps_per_class: int = 100, patience: int = 3) -> None:
        """`patience`: rounds without a better accuracy after which a class counts as recovered."""
        self._inner = inner
        self._steps_per_class = steps_per_class
        self._patience = patience

    def repair(self, drifted: Sequence[Verdict], bench: Workbench) -> Repair:
        """The inner repair, then rehearsal."""
        repair = self._inner.repair(drifted, bench)
        if not repair.renewed:
            return repair
        judges = _judges(repair, bench)
        budget = self._steps_per_class * len(repair.renewed)
        best, idle, steps = _accuracy(judges, bench), 0, 0
        first = best
        while steps < budget and idle < self._patience:
            for _ in range(min(ROUND, budget - steps)):
                bench.rehearse(None)
                steps += 1
            now = _accuracy(judges, bench)
            idle = 0 if now > best else idle + 1
            best = max(best, now)
        note = f"{steps} steps of recovery: from {100 * first:.1f} to {100 * now:.1f} percent"
        return dataclasses.replace(repair, notes=(*repair.notes, note))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return state_of(self._inner)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        load_state_of(self._inner, state)


def _judges(repair: Repair, bench: Workbench) -> Rows:
    """Rows of the renewed classes by which recovery is seen: watched ones, if they have labels."""
    watched = bench.watched()
    if has_labels(watched):
        watched = watched[torch.isin(watched.labels, torch.tensor(repair.renewed))]
        if len(watched):
            return watched
    assert repair.refilled is not None, "a class is renewed by fresh rows"
    return repair.refilled


def _accuracy(rows: Rows, bench: Workbench) -> float:
    return float((bench.encode(rows.images).logits.argmax(dim=1) == rows.labels).float().mean())
