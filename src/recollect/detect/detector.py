"""The per-class detector: encode once, score, test every class, correct for their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from recollect.detect.corrections import CORRECTIONS
from recollect.detect.encoders import Encoder
from recollect.detect.ks import Evidence, kolmogorov_smirnov
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

    encoder: Callable[[], Encoder]
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
        encoder: Encoder,
        *,
        score: Callable[[Tensor], Tensor],
        test: Callable[[Sequence[tuple[Tensor, Tensor]]], list[Evidence]],
        options: ComparisonOptions,
    ) -> None:
        self._encoder = encoder
        self._score = score
        self._test = test
        self._options = options

    def check(
        self, task: int, classes: Sequence[int], monitored: Rows, reference: HasRows
    ) -> list[Verdict]:
        """One verdict per class; a class with too few distinct rows is not testable."""
        current = monitored.distinct()
        sides = {c: (reference.rows_of(c).distinct(), current.of_class(c)) for c in classes}
        testable = [c for c in classes if min(map(len, sides[c])) >= self._options.min_rows]
        evidence = dict(zip(testable, self._test(self._scores(sides, testable)), strict=True))
        correct = CORRECTIONS[self._options.correction]
        threshold = correct([e.p_value for e in evidence.values()], self._options.level)
        return [self._verdict(task, c, sides[c], evidence.get(c), threshold) for c in classes]

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
        self,
        task: int,
        label: int,
        sides: tuple[Rows, Rows],
        evidence: Evidence | None,
        threshold: float,
    ) -> Verdict:
        num_reference, num_current = map(len, sides)
        if evidence is None:
            few = "reference" if num_reference < self._options.min_rows else "current"
            return Verdict(
                task=task,
                label=label,
                drifted=None,
                num_reference=num_reference,
                num_current=num_current,
                reason=f"fewer than {self._options.min_rows} distinct {few} rows",
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
        )


def ks_on_entropy(setting: Setting, options: ComparisonOptions) -> TwoSampleDetector:
    """The paper's detector: Kolmogorov-Smirnov on predictive entropy."""
    return TwoSampleDetector(
        setting.encoder(), score=entropy, test=kolmogorov_smirnov, options=options
    )
