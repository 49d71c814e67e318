"""The per-class detector: distinct rows of every class, encoded in one pass, and judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from recollect.detect.encoders import Encodes, LearnerEncoder
from recollect.detect.grouping import KnownLabels, group_of_rows, groups_among
from recollect.detect.judge import Judge
from recollect.detect.reference import FingerprintReference
from recollect.errors import UserError
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
        """One verdict per class, in the order of `classes`.

        Where no labels of monitored rows were paid for, all of them are -1.
        """
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
    labels: KnownLabels = "given"
    """what is known of monitored rows"""
    learner: Callable[[Tensor], Encoding] | None = None
    """the learner's own network, where it may be asked what it makes of rows"""


class TwoSampleDetector:
    """Compares each class's current rows with its reference rows."""

    watches = True

    def __init__(
        self,
        encoder: Encodes,
        judge: Judge,
        *,
        labels: KnownLabels = "given",
        learner: Callable[[Tensor], Encoding] | None = None,
    ) -> None:
        """`learner` says what it takes rows for; a `LearnerEncoder` says so without being asked."""
        self._encoder = encoder
        self._judge = judge
        self._labels = labels
        self._learner = learner

    def check(
        self, task: int, classes: Sequence[int], monitored: Rows, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class; a class with too few distinct rows is not testable."""
        all_kept, all_now = self._sides(classes, monitored.distinct(), reference)
        groups = groups_among(classes, self._labels)
        kept = {group: all_kept.of_group(group) for group in groups}
        now = {group: all_now.of_group(group) for group in groups}
        verdicts = self._judge.verdicts(
            task, {group: (kept[group].encoding, now[group].encoding) for group in groups}
        )
        if self._labels == "unknown":  # what is said of the whole stream is said of every class
            return [replace(verdicts[0], label=label) for label in classes]
        return verdicts

    def _sides(
        self, classes: Sequence[int], current: Rows, reference: Reference
    ) -> tuple[_Side, _Side]:
        """Reference and current rows of all classes, from one pass over both."""
        if not isinstance(reference, FingerprintReference):
            kept = [rows for c in classes if len(rows := reference.rows_of(c).distinct())]
            both = self._look([*kept, current], classes)
            num_kept = sum(map(len, kept))
            return both[:num_kept], both[num_kept:]
        if self._labels == "predicted":
            raise UserError(
                "a fingerprint holds no pictures, so that nobody can predict their labels; use"
                " --reference held-out"
            )
        prints = {c: print_ for c in classes if len(print_ := reference.encoding_of(c))}
        if not prints:
            return self._look([current[:0]], classes), self._look([current], classes)
        labels = torch.cat([torch.full((len(each),), c) for c, each in prints.items()])
        side = _Side(
            encoding=Encoding.concat(list(prints.values())),
            groups=group_of_rows(labels, None, classes, self._labels),
        )
        return side, self._look([current], classes)

    def _look(self, parts: Sequence[Rows], classes: Sequence[int]) -> _Side:
        some = [part for part in parts if len(part)]
        if not some:
            nothing = torch.empty(0, 1)
            encoding = Encoding(logits=nothing, features=nothing)
            return _Side(encoding=encoding, groups=torch.empty(0, dtype=torch.int64))
        rows = Rows.concat(some)
        encoding = self._encoder.encode(rows.images)
        opinions = None
        if isinstance(self._encoder, LearnerEncoder):
            opinions = encoding.logits
        elif self._learner is not None:
            opinions = self._learner(rows.images).logits
        return _Side(
            encoding=encoding,
            groups=group_of_rows(rows.labels, opinions, classes, self._labels),
            opinions=opinions,
        )


@dataclass(frozen=True, kw_only=True)
class _Side:
    """What is made of rows of all classes."""

    encoding: Encoding
    groups: Tensor
    """(rows,): with which other rows they are compared"""
    opinions: Tensor | None = None
    """the learner's logits, where it was asked"""

    def __getitem__(self, index: Tensor | slice) -> _Side:
        return _Side(
            encoding=self.encoding[index],
            groups=self.groups[index],
            opinions=None if self.opinions is None else self.opinions[index],
        )

    def of_group(self, group: int) -> _Side:
        """The rows of one group."""
        return self[self.groups == group]
