"""Labels that cost nothing: confident guesses at samples that nobody has labelled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from recollect.adapt.current import has_labels
from recollect.adapt.wrapped import load_state_of, state_of
from recollect.shapes import Adaptation, Workbench
from recollect.types import Repair, Rows, Verdict

CONFIDENCES = (0.8, 0.9, 0.95, 0.99)
"""how sure the learner must be, the least demanding that is right often enough"""


class FreeLabels:
    """Trains on unlabelled samples that the mended learner takes for a renewed class.

    The guard: watched rows with labels, which nobody trains on, say how often such guesses are
    right. Where they are wrong too often, or nobody can say, none are used.
    """

    def __init__(self, inner: Adaptation, *, precision: float = 0.9) -> None:
        """`precision`: the share of right guesses that is asked for."""
        self._inner = inner
        self._precision = precision

    def repair(self, drifted: Sequence[Verdict], bench: Workbench) -> Repair:
        """The inner repair, and guessed rows beside it."""
        repair = self._inner.repair(drifted, bench)
        if not repair.renewed:
            return repair
        watched = bench.watched()
        if not has_labels(watched):
            return _noted(repair, "no guessed labels: no labelled rows say how good they would be")
        seen = self._guess(watched, repair.renewed, bench)
        for confidence in CONFIDENCES:
            sure = seen.confidence >= confidence
            right = (seen.rows.labels == watched.labels[seen.positions])[sure]
            if len(right) and float(right.float().mean()) >= self._precision:
                break
        else:
            asked = f"{100 * self._precision:.0f} %"
            return _noted(repair, f"no guessed labels: fewer than {asked} of them would be right")
        guessed = self._guess(bench.labels.unlabelled(), repair.renewed, bench)
        rows = guessed.rows[guessed.confidence >= confidence]
        if not len(rows):
            return _noted(repair, "no guessed labels: nothing looked like the renewed classes")
        extra = rows if repair.extra is None else Rows.concat([repair.extra, rows])
        share = 100 * float(right.float().mean())
        text = f"{len(rows)} guessed labels, {share:.1f} % right among watched rows"
        return _noted(dataclasses.replace(repair, extra=extra), text)

    def _guess(self, rows: Rows, classes: Sequence[int], bench: Workbench) -> _Guesses:
        """Rows that the learner takes for one of the classes."""
        p = bench.encode(rows.images).logits.softmax(dim=1)
        confidence, taken_for = p.max(dim=1)
        (positions,) = torch.isin(taken_for, torch.tensor(classes)).nonzero(as_tuple=True)
        return _Guesses(
            rows=dataclasses.replace(rows, labels=taken_for)[positions],
            confidence=confidence[positions],
            positions=positions,
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return state_of(self._inner)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        load_state_of(self._inner, state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Guesses:
    rows: Rows
    """with the labels they are taken for"""
    confidence: torch.Tensor
    positions: torch.Tensor


def _noted(repair: Repair, text: str) -> Repair:
    return dataclasses.replace(repair, notes=(*repair.notes, text))
