"""The per-class detector: encode once, score, test every class, correct for their number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from recollect import rng
from recollect.detect.corrections import CORRECTIONS
from recollect.detect.encoders import Encodes
from recollect.detect.evidence import Evidence, Pair
from recollect.detect.spending import inverse_square
from recollect.errors import RunFailure, UserError, unknown_name
from recollect.shapes import HasRows
from recollect.types import Encoding, Rows, Verdict


class Detector(Protocol):
    """Anything that gives a verdict on every class it is asked about."""

    watches: bool
    """whether it reads the monitored rows (and their labels must be booked)"""

    def check(
        self, task: int, classes: Sequence[int], monitored: Rows, reference: HasRows
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


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """What can be chosen about a two-sample detector."""

    level: float = 0.05
    """promised rate of false alarms of a check"""
    correction: Literal["holm", "bonferroni", "benjamini-hochberg", "none"] = "holm"
    """how the level is shared among the classes of a check"""
    spending: Literal["none", "inverse-square"] = "none"
    """how the level is shared among the checks of a stream: none promises it for each check alone,
    inverse-square once for all of them together"""
    min_rows: int = 5
    """a class with fewer distinct rows on either side is not testable"""
    max_statistic: float | None = None
    """flag where the statistic exceeds this, whatever the p-value; None: go by the p-value"""

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise UserError(f"the detector's level must lie between 0 and 1; got {self.level}")
        if self.correction not in CORRECTIONS:
            raise unknown_name("correction", self.correction, CORRECTIONS)
        if self.min_rows < 2:
            raise UserError(f"the detector's min_rows must be at least 2; got {self.min_rows}")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One way of comparing two samples: what is looked at, and by which test."""

    name: str
    measure: Callable[[Encoding], Tensor]
    """what is compared: (rows,) scores or (rows, d) features"""
    test: Callable[[Sequence[Pair], torch.Generator], list[Evidence]]
    """reference and current measures of each class, and what permutations are drawn from"""
    smallest_p_value: Callable[[int, int], float]
    """by rows on both sides: no test of such sizes gets below it"""


Merge = Callable[[Sequence[float]], float]
"""The p-values of one class by several tests -> one p-value."""


class TwoSampleDetector:
    """Compares each class's current rows with its reference rows by one or several tests."""

    watches = True

    def __init__(
        self,
        encoder: Encodes,
        comparisons: Sequence[Comparison],
        *,
        options: ComparisonOptions,
        merge: Merge | None = None,
        seed: int = 0,
    ) -> None:
        """`merge` makes one p-value of several comparisons'; a single one needs none."""
        if (merge is None) != (len(comparisons) == 1):
            raise ValueError("several comparisons, and only they, need to be merged")
        self._encoder = encoder
        self._comparisons = tuple(comparisons)
        self._options = options
        self._merge = merge
        self._seed = seed

    def check(
        self, task: int, classes: Sequence[int], monitored: Rows, reference: HasRows
    ) -> list[Verdict]:
        """One verdict per class; a class with too few distinct rows is not testable."""
        current = monitored.distinct()
        sides = {c: (reference.rows_of(c).distinct(), current.of_class(c)) for c in classes}
        level = self._level(task)
        sizes = {c: (len(kept), len(now)) for c, (kept, now) in sides.items()}
        obstacles = self._obstacles(sizes, level)
        testable = [c for c in classes if c not in obstacles]
        encoded = self._encode(sides, testable)
        found = {
            each.name: dict(zip(testable, self._compare(each, encoded, task), strict=True))
            for each in self._comparisons
        }
        evidence = {
            c: self._merged([found[each.name][c] for each in self._comparisons]) for c in testable
        }
        correct = CORRECTIONS[self._options.correction]
        threshold = correct([e.p_value for e in evidence.values()], level)
        return [
            self._verdict(
                task,
                c,
                sides[c],
                evidence.get(c),
                threshold,
                obstacle=obstacles.get(c),
                by_test={name: of[c].p_value for name, of in found.items() if c in of},
            )
            for c in classes
        ]

    def _compare(
        self, comparison: Comparison, encoded: Sequence[tuple[Encoding, Encoding]], task: int
    ) -> list[Evidence]:
        """The evidence on each class."""
        if not encoded:
            return []
        pairs = [(comparison.measure(kept), comparison.measure(now)) for kept, now in encoded]
        if not all(side.isfinite().all() for pair in pairs for side in pair):
            raise RunFailure("scores are not finite: the encoder has diverged; lower its rate")
        # A generator of the check's own: how many draws earlier checks took makes no difference.
        draw = rng.fork(self._seed, "permutations", comparison.name, task)
        return comparison.test(pairs, draw)

    def _merged(self, evidence: Sequence[Evidence]) -> Evidence:
        if self._merge is None:
            return evidence[0]
        p_value = self._merge([each.p_value for each in evidence])
        return Evidence(-math.log10(max(p_value, 1e-300)), p_value)

    def _level(self, task: int) -> float:
        """What the check at a task may spend; the first check comes with the second task."""
        if self._options.spending == "none":
            return self._options.level
        return inverse_square(self._options.level, max(1, task - 1))

    def _obstacles(self, sizes: dict[int, tuple[int, int]], level: float) -> dict[int, str]:
        """Why classes cannot be tested, given how many reference and current rows they have."""
        least = self._options.min_rows
        obstacles = {}
        for label, (kept, now) in sizes.items():
            if min(kept, now) < least:
                few = "reference" if kept < least else "current"
                obstacles[label] = f"fewer than {least} distinct {few} rows"
        if self._options.max_statistic is not None:
            return obstacles
        # Where not even two samples without any overlap could be told apart, silence says nothing.
        rivals = len(sizes) - len(obstacles) if self._options.correction != "none" else 1
        for label, (kept, now) in sizes.items():
            if label not in obstacles and self._smallest_p_value(kept, now) > level / rivals:
                obstacles[label] = (
                    f"{kept} against {now} distinct rows cannot reach the level among {rivals}"
                )
        return obstacles

    def _smallest_p_value(self, kept: int, now: int) -> float:
        """No verdict on so many rows has a smaller one."""
        smallest = [each.smallest_p_value(kept, now) for each in self._comparisons]
        return smallest[0] if self._merge is None else self._merge(smallest)

    def _encode(
        self, sides: dict[int, tuple[Rows, Rows]], testable: Sequence[int]
    ) -> list[tuple[Encoding, Encoding]]:
        """Reference and current rows of each testable class, encoded in one pass."""
        if not testable:
            return []
        rows = [side for c in testable for side in sides[c]]
        encoding = self._encoder.encode(Rows.concat(rows).images)
        ends = list(itertools.accumulate(len(side) for side in rows))
        parts = [encoding[end - len(side) : end] for side, end in zip(rows, ends, strict=True)]
        return list(zip(parts[::2], parts[1::2], strict=True))

    def _verdict(
        self,
        task: int,
        label: int,
        sides: tuple[Rows, Rows],
        evidence: Evidence | None,
        threshold: float,
        *,
        obstacle: str | None,
        by_test: Mapping[str, float],
    ) -> Verdict:
        num_reference, num_current = (len(side) for side in sides)
        if evidence is None:
            return Verdict(
                task=task,
                label=label,
                drifted=None,
                num_reference=num_reference,
                num_current=num_current,
                reason=obstacle,
            )
        bound = self._options.max_statistic
        return Verdict(
            task=task,
            label=label,
            drifted=evidence.p_value <= threshold if bound is None else evidence.statistic > bound,
            score=evidence.statistic,
            p_value=evidence.p_value,
            threshold=threshold if bound is None else bound,
            num_reference=num_reference,
            num_current=num_current,
            p_values=by_test if self._merge else None,
        )
