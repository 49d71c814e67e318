"""The per-class detector: encode once, score, test every class, correct for their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from recollect.detect.corrections import CORRECTIONS
from recollect.detect.encoders import GivesLogits
from recollect.detect.ks import Evidence, kolmogorov_smirnov, smallest_p_value
from recollect.detect.scores import entropy
from recollect.errors import RunFailure, UserError, unknown_name
from recollect.shapes import HasRows
from recollect.types import Rows, Verdict


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

    encoder: Callable[[], GivesLogits]
    """makes the encoder; only detectors that look at pictures need one"""
    drifting: Callable[[int], Sequence[int]]
    """the truth, task -> classes that drift there; for the oracle alone"""


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """What can be chosen about a two-sample detector."""

    level: float = 0.05
    """promised rate of false alarms of a check"""
    correction: Literal["holm", "bonferroni", "benjamini-hochberg", "none"] = "holm"
    """how the level is shared among the classes of a check"""
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


class TwoSampleDetector:
    """Compares each class's current rows with its reference rows by a two-sample test."""

    watches = True

    def __init__(
        self,
        encoder: GivesLogits,
        *,
        score: Callable[[Tensor], Tensor],
        test: Callable[[Sequence[tuple[Tensor, Tensor]]], list[Evidence]],
        smallest_p_value: Callable[[int, int], float],
        options: ComparisonOptions,
    ) -> None:
        self._encoder = encoder
        self._score = score
        self._test = test
        self._smallest_p_value = smallest_p_value
        self._options = options

    def check(
        self, task: int, classes: Sequence[int], monitored: Rows, reference: HasRows
    ) -> list[Verdict]:
        """One verdict per class; a class with too few distinct rows is not testable."""
        current = monitored.distinct()
        sides = {c: (reference.rows_of(c).distinct(), current.of_class(c)) for c in classes}
        obstacles = self._obstacles({c: (len(kept), len(now)) for c, (kept, now) in sides.items()})
        testable = [c for c in classes if c not in obstacles]
        evidence = dict(zip(testable, self._test(self._scores(sides, testable)), strict=True))
        correct = CORRECTIONS[self._options.correction]
        threshold = correct([e.p_value for e in evidence.values()], self._options.level)
        return [
            self._verdict(task, c, evidence[c], threshold, sides[c])
            if c in evidence
            else Verdict(
                task=task,
                label=c,
                drifted=None,
                num_reference=len(sides[c][0]),
                num_current=len(sides[c][1]),
                reason=obstacles[c],
            )
            for c in classes
        ]

    def _obstacles(self, sizes: dict[int, tuple[int, int]]) -> dict[int, str]:
        """Why classes cannot be tested, given how many reference and current rows they have."""
        least, level = self._options.min_rows, self._options.level
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

    def _scores(
        self, sides: dict[int, tuple[Rows, Rows]], testable: Sequence[int]
    ) -> list[tuple[Tensor, Tensor]]:
        """Reference and current scores of each testable class, from one encoding pass."""
        if not testable:
            return []
        rows = [side for c in testable for side in sides[c]]
        scores = self._score(self._encoder.logits(Rows.concat(rows).images))
        if not scores.isfinite().all():
            raise RunFailure("scores are not finite: the encoder has diverged; lower its rate")
        parts = torch.split(scores, [len(side) for side in rows])
        return list(zip(parts[::2], parts[1::2], strict=True))

    def _verdict(
        self, task: int, label: int, evidence: Evidence, threshold: float, sides: tuple[Rows, Rows]
    ) -> Verdict:
        bound = self._options.max_statistic
        return Verdict(
            task=task,
            label=label,
            drifted=evidence.p_value <= threshold if bound is None else evidence.statistic > bound,
            score=evidence.statistic,
            p_value=evidence.p_value,
            threshold=threshold if bound is None else bound,
            num_reference=len(sides[0]),
            num_current=len(sides[1]),
        )


def ks_on_entropy(setting: Setting, options: ComparisonOptions) -> TwoSampleDetector:
    """The paper's detector: Kolmogorov-Smirnov on predictive entropy."""
    return TwoSampleDetector(
        setting.encoder(),
        score=entropy,
        test=kolmogorov_smirnov,
        smallest_p_value=smallest_p_value,
        options=options,
    )
