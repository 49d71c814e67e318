"""What one call of `observe` saw and did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftwise.types import Verdict


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """What came in, what was predicted, what drifted, and what was done about it."""

    step: int
    """the number of the call, counted from 1"""
    ids: np.ndarray
    """int64 (samples,): by which labels that come later are told, see `Keeper.answer`"""
    predicted: np.ndarray
    """int64 (samples,): the classes, before anything was learned of the batch; -1: the sample was
    refused, or there was no class to predict yet"""
    labelled: int
    """samples that came with a label"""
    correct: int
    """of those, the ones that were predicted right"""
    loss: float | None
    """mean over the gradient steps; None: none was made"""
    refused: tuple[int, ...]
    """positions of samples with values that are not finite, or too large: they were left out"""
    quarantined: tuple[int, ...]
    """positions of samples far outside what has been seen: they were predicted and left alone"""
    new_classes: tuple[int, ...]
    """classes that had never been seen"""
    verdicts: tuple[Verdict, ...]
    """of the checks that were due"""
    adapted: tuple[int, ...]
    """classes that were met with fresh samples"""
    waiting: tuple[int, ...]
    """classes that have drifted, and there are no labels to realign them with"""
    notes: tuple[str, ...]
    """what a person should be told"""

    @property
    def drifted(self) -> tuple[int, ...]:
        """Classes that were found drifted just now."""
        return tuple(sorted({verdict.label for verdict in self.verdicts if verdict.drifted}))

    @property
    def accuracy(self) -> float | None:
        """Share of right predictions among samples that came with a label; None: none did."""
        return self.correct / self.labelled if self.labelled else None
