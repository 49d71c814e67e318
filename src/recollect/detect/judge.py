"""From encodings to verdicts: test every class, merge what several tests say, correct for both.

Nothing here knows where rows come from or what encoded them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from recollect import rng
from recollect.detect.corrections import CORRECTIONS
from recollect.detect.evidence import Evidence, Pair
from recollect.detect.spending import inverse_square
from recollect.errors import RunFailure, UserError, unknown_name
from recollect.types import Encoding, Verdict

CALIBRATIONS = ("test", "split")
SPENDINGS = ("none", "inverse-square")


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
    calibration: Literal["test", "split"] = "test"
    """what a p-value is measured against: the test's own null distribution, or the reference split
    against itself"""
    max_statistic: float | None = None
    """flag where the statistic exceeds this, whatever the p-value; None: go by the p-value"""

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise UserError(f"the detector's level must lie between 0 and 1; got {self.level}")
        if self.correction not in CORRECTIONS:
            raise unknown_name("correction", self.correction, CORRECTIONS)
        if self.spending not in SPENDINGS:
            raise unknown_name("spending", self.spending, SPENDINGS)
        if self.calibration not in CALIBRATIONS:
            raise unknown_name("calibration", self.calibration, CALIBRATIONS)
        if self.min_rows < 2:
            raise UserError(f"the detector's min_rows must be at least 2; got {self.min_rows}")


Test = Callable[[Sequence[Pair], torch.Generator], list[Evidence]]
"""Reference and current measures of each class, and what splits are drawn from -> evidence."""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A test, and how far its p-values reach."""

    test: Test
    smallest_p_value: Callable[[int, int], float]
    """by rows on both sides: no test of such sizes gets below it"""


@dataclass(frozen=True, kw_only=True)
class Comparison(Calibrated):
    """One way of comparing two samples: what is looked at, and by which test."""

    name: str
    measure: Callable[[Encoding], Tensor]
    """what is compared: (rows,) scores or (rows, d) features"""
    by_splits: Calibrated | None = None
    """the same statistic, measured against the reference split against itself; None: no such"""

    def calibrated(self, calibration: str) -> Comparison:
        """The comparison whose p-values are measured against what the options say."""
        if calibration == "test":
            return self
        if self.by_splits is None:
            raise UserError(f"the test {self.name} has no calibration by splits; use test")
        test, smallest = self.by_splits.test, self.by_splits.smallest_p_value
        return replace(self, test=test, smallest_p_value=smallest)


Merge = Callable[[Sequence[float]], float]
"""The p-values of one class by several tests -> one p-value."""


class Judge:
    """Compares each class's current encodings with its reference by one or several tests."""

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        options: ComparisonOptions,
        *,
        merge: Merge | None = None,
        seed: int = 0,
    ) -> None:
        """`merge` makes one p-value of several comparisons'; a single one needs none."""
        if (merge is None) != (len(comparisons) == 1):
            raise ValueError("several comparisons, and only they, need to be merged")
        self._comparisons = tuple(each.calibrated(options.calibration) for each in comparisons)
        self._options = options
        self._merge = merge
        self._seed = seed

    def verdicts(self, task: int, sides: Mapping[int, tuple[Encoding, Encoding]]) -> list[Verdict]:
        """One verdict per class, given distinct rows (reference, current) of each, in that order.

        A class with too few rows on either side is not testable.
        """
        level = self._level(task)
        sizes = {label: (len(kept), len(now)) for label, (kept, now) in sides.items()}
        obstacles = self._obstacles(sizes, level)
        testable = {label: pair for label, pair in sides.items() if label not in obstacles}
        found = {each.name: self._compare(each, testable, task) for each in self._comparisons}
        evidence = {label: self._merged([of[label] for of in found.values()]) for label in testable}
        correct = CORRECTIONS[self._options.correction]
        threshold = correct([each.p_value for each in evidence.values()], level)
        return [
            self._verdict(
                task,
                label,
                sizes[label],
                evidence.get(label),
                threshold,
                obstacle=obstacles.get(label),
                by_test={name: of[label].p_value for name, of in found.items() if label in of},
            )
            for label in sides
        ]

    def _compare(
        self,
        comparison: Comparison,
        sides: Mapping[int, tuple[Encoding, Encoding]],
        task: int,
    ) -> dict[int, Evidence]:
        """The evidence on each class."""
        if not sides:
            return {}
        measure = comparison.measure
        pairs = [(measure(kept), measure(now)) for kept, now in sides.values()]
        if not all(side.isfinite().all() for pair in pairs for side in pair):
            raise RunFailure("scores are not finite: the encoder has diverged; lower its rate")
        # A generator of the check's own: how many draws earlier checks took makes no difference.
        draw = rng.fork(self._seed, "permutations", comparison.name, task)
        return dict(zip(sides, comparison.test(pairs, draw), strict=True))

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

    def _verdict(
        self,
        task: int,
        label: int,
        sizes: tuple[int, int],
        evidence: Evidence | None,
        threshold: float,
        *,
        obstacle: str | None,
        by_test: Mapping[str, float],
    ) -> Verdict:
        num_reference, num_current = sizes
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
