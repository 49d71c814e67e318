"""The per-class detector: distinct rows of every class, encoded in one pass, and judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from recollect.detect.encoders import Encodes
from recollect.detect.judge import Judge
from recollect.detect.reference import FingerprintReference
from recollect.shapes import HasRows
from recollect.types import Encoding, Rows, Verdict

Reference = HasRows | FingerprintReference
"""What current rows are compared with: rows, or what a fixed encoder once made of them."""


class Detector(Protocol):
    """Anything that gives a verdict on every class it is asked about."""

    watches: bool
    """whether it reads the monitored rows (and their labels must be booked)"""

    def check(
        self, task: int, classes: Sequence[int], monitored: Rows, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class, in the order of `classes`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a detector is given to work with."""

    encoder: Callable[[], Encodes]
    """makes the encoder; only detectors that look at pictures need one"""
    drifting: Callable[[int], Sequence[int]]
    """the truth, task -> classes that drift there; for the oracle alone"""
    seed: int = 0
    """what tests that draw permutations draw them from"""


class TwoSampleDetector:
    """Compares each class's current rows with its reference rows."""

    watches = True

    def __init__(self, encoder: Encodes, judge: Judge) -> None:
        self._encoder = encoder
        self._judge = judge

    def check(
        self, task: int, classes: Sequence[int], monitored: Rows, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class; a class with too few distinct rows is not testable."""
        current = monitored.distinct()
        now = [current.of_class(c) for c in classes]
        if isinstance(reference, FingerprintReference):
            kept_parts = [reference.encoding_of(c) for c in classes]
            now_parts = self._encode(now)
        else:
            kept = [reference.rows_of(c).distinct() for c in classes]
            parts = self._encode([*kept, *now])
            kept_parts, now_parts = parts[: len(classes)], parts[len(classes) :]
        pairs = zip(kept_parts, now_parts, strict=True)
        return self._judge.verdicts(task, dict(zip(classes, pairs, strict=True)))

    def _encode(self, sides: Sequence[Rows]) -> list[Encoding]:
        """Each set of rows, from one pass over all of them."""
        some = [side for side in sides if len(side)]
        if some:
            encoding = self._encoder.encode(Rows.concat(some).images)
        else:
            encoding = Encoding(logits=torch.empty(0, 1), features=torch.empty(0, 1))
        parts = []
        end = 0
        for side in sides:
            begin, end = end, end + len(side)
            parts.append(encoding[begin:end])
        return parts
