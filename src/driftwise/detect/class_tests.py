"""From encodings to verdicts: test every class, combine several tests, correct for both.

Nothing here knows where samples come from or what encoded them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from driftwise import rng
from driftwise.detect.two_sample import Comparison, Merge
from driftwise.errors import RunFailure, UserError, unknown_name
from driftwise.stats.multiplicity import CORRECTIONS, inverse_square
from driftwise.stats.permutation import Evidence
from driftwise.types import Encoding, Verdict

MAX_SPLITS = 2_000_000
"""random ones of all classes of a check together: a minute, should every class drift"""

_CLEARLY = 1e-3
"""so far below a threshold must held-out samples be able to get: only clear cases reach the least"""

_ENDLESS = 10**9

Sizes = tuple[int, int]
"""distinct reference samples and current samples of a class"""

Comparisons = tuple[Comparison, ...]
"""the tests of a check, whose p-values become one"""


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """Options of every two-sample detector.

    >>> ComparisonOptions(level=0.01).level
    0.01
    """

    level: float = 0.05
    """promised rate of false alarms of a check"""
    correction: Literal["holm", "bonferroni", "benjamini-hochberg", "none"] = "holm"
    """how the level is shared among the classes of a check"""
    spending: Literal["none", "inverse-square"] = "none"
    """how the level is shared among the checks of a stream: none promises it for each check alone,
    inverse-square once for all of them together"""
    min_rows: int = 5
    """a class with fewer distinct samples on either side is not testable"""
    calibration: Literal["test", "asymptotic", "split"] = "test"
    """what a p-value is measured against: the test's own null distribution; its limit for many
    samples (ks only), as published; or the reference split against itself"""
    max_statistic: float | None = None
    """flag where the statistic exceeds this, whatever the p-value; None: go by the p-value"""
    fewest_samples: ClassVar[int] = 2
    """what the test needs on either side: no `min_rows` may lie below"""

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise UserError(f"the detector's level must lie between 0 and 1; got {self.level}")
        known: dict[str, Sequence[str]] = {
            "correction": tuple(CORRECTIONS),
            "spending": ("none", "inverse-square"),
            "calibration": ("test", "asymptotic", "split"),
        }
        for option, names in known.items():
            if getattr(self, option) not in names:
                raise unknown_name(option, getattr(self, option), names)
        if self.min_rows < self.fewest_samples:
            raise UserError(
                f"the detector's min_rows must be at least {self.fewest_samples}; got {self.min_rows}"
            )


class ClassTests:
    """Compares each class's current encodings with its reference by one or several tests.

    The more classes share a level, the finer p-values must be: tests that draw random splits draw
    as many as the strictest threshold asks for, up to `MAX_SPLITS`, but never fewer than their own
    number. Where that is not enough, or too slow, tests on held-out samples take their place.

    >>> import torch
    >>> from driftwise.detect.two_sample import ks_on
    >>> from driftwise.types import Encoding
    >>> def side(sharpness):  # logits (samples, classes), features (samples, d)
    ...     logits = sharpness * torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    ...     return Encoding(logits=logits, features=logits)
    >>> tests = ClassTests([ks_on("entropy")], ComparisonOptions())
    >>> verdicts = tests.verdicts(2, {0: (side(1), side(1)), 1: (side(1), side(5))})
    >>> [verdict.drifted for verdict in verdicts]
    [False, True]
    """

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        options: ComparisonOptions,
        *,
        merge: Merge | None = None,
        seed: int = 0,
        quick_splits: int | None = None,
    ) -> None:
        """Choose the tests.

        Args:
            comparisons: the tests of each class.
            options: level, correction and calibration.
            merge: makes one p-value of several comparisons'; a single one needs none.
            seed: of the random splits.
            quick_splits: random splits of all classes of a check together, beyond which tests on
                held-out samples are preferred where they detect enough; None: `MAX_SPLITS`.
        """
        if (merge is None) != (len(comparisons) == 1):
            raise ValueError("several comparisons, and only they, need to be merged")
        self._comparisons = tuple(each.calibrated(options.calibration) for each in comparisons)
        self._merge = merge
        self._options = options
        self._correct = CORRECTIONS[options.correction]
        self._seed = seed
        self._quick_splits = MAX_SPLITS if quick_splits is None else quick_splits

    def verdicts(self, task: int, sides: Mapping[int, tuple[Encoding, Encoding]]) -> list[Verdict]:
        """One verdict per class, given distinct samples (reference, current) of each, in that order.

        A class that could not have been flagged, whatever its samples, is not testable.
        """
        level, bound = self._level(task), self._options.max_statistic
        sizes = {label: (len(kept), len(now)) for label, (kept, now) in sides.items()}
        comparisons, reasons = self._plan(sizes, level)
        testable = {label: pair for label, pair in sides.items() if label not in reasons}
        found = {each.name: self._compare(each, testable, task) for each in comparisons}
        evidence = {label: self._merged([of[label] for of in found.values()]) for label in testable}
        threshold = self._correct([each.p_value for each in evidence.values()], level)
        verdicts = []
        for label, both in sizes.items():
            reason = reasons.get(label)
            # Not flagged, and it could not have been if one of several tests had detected nothing:
            # the result of that test would decide.
            if (
                reason is None
                and bound is None
                and evidence[label].p_value > threshold
                and self._smallest(comparisons, both, without_one=True) > threshold
            ):
                reason = self._reason(comparisons, both, threshold, len(evidence))
            verdict = Verdict(
                task=task,
                label=label,
                drifted=None,
                num_reference=both[0],
                num_current=both[1],
                reason=reason,
            )
            if reason is None:
                statistic, p_value = evidence[label]
                verdict = replace(
                    verdict,
                    drifted=p_value <= threshold if bound is None else statistic > bound,
                    score=statistic,
                    p_value=p_value,
                    threshold=threshold if bound is None else bound,
                    p_values={name: of[label].p_value for name, of in found.items()}
                    if self._merge
                    else None,
                )
            verdicts.append(verdict)
        return verdicts

    def obstacles(self, task: int, sizes: Mapping[int, Sizes]) -> dict[int, str]:
        """Classes that samples of such sizes cannot be tested by, whatever they show, and why."""
        return self._plan(sizes, self._level(task))[1]

    def _level(self, task: int) -> float:
        """The level of the check at a task; the first check comes with the second task."""
        if self._options.spending == "none":
            return self._options.level
        return inverse_square(self._options.level, max(1, task - 1))

    def _plan(self, sizes: Mapping[int, Sizes], level: float) -> tuple[Comparisons, dict[int, str]]:
        """From the sizes alone: the tests, and why some classes are not testable."""
        least = self._options.min_rows
        reasons = {
            label: f"fewer than {least} distinct {'reference' if kept < least else 'current'} samples"
            for label, (kept, now) in sizes.items()
            if min(kept, now) < least
        }
        enough = {label: both for label, both in sizes.items() if label not in reasons}
        if not enough or self._options.max_statistic is not None:
            return self._comparisons, reasons
        comparisons = self._fine_enough(set(enough.values()), len(enough), level)
        out_of_reach = {}
        for both in set(enough.values()):
            smallest = self._smallest(comparisons, both)
            # At best all others have drifted as clearly.
            threshold = self._correct([smallest] * len(enough), level)
            if smallest > threshold:
                out_of_reach[both] = self._reason(comparisons, both, threshold, len(enough))
        reasons |= {c: out_of_reach[both] for c, both in enough.items() if both in out_of_reach}
        return comparisons, reasons

    def _fine_enough(self, sizes: set[Sizes], classes: int, level: float) -> Comparisons:
        """The tests, with p-values that go down to half of the strictest threshold."""
        needed = self._correct([1.0] * classes, level) / 2
        if (splits := self._splits_for(needed, self._quick_splits // classes)) is not None:
            return self._refined(self._comparisons, splits)
        held_out = tuple(each.on_held_out_samples() for each in self._comparisons)
        reach = (self._smallest(held_out, both, without_one=True) for both in sizes)
        if all(smallest < _CLEARLY * needed for smallest in reach):
            return held_out
        most = MAX_SPLITS // classes
        splits = self._splits_for(needed, most)
        return self._refined(self._comparisons, most if splits is None else splits)

    def _splits_for(self, p_value: float, most: int) -> int | None:
        """The random splits it takes to reach a p-value, even if one of several tests has no evidence.

        None: more than `most`, and more than the tests draw anyway.
        """
        without_evidence = [] if self._merge is None else [1.0]
        others = len(self._comparisons) - len(without_evidence)
        most = max(most, *(each.test.splits for each in self._comparisons))
        splits = bisect_left(
            range(most + 1),
            True,
            key=lambda count: (
                self._merged_p([*without_evidence, *[1 / (1 + count)] * others]) <= p_value
            ),
        )
        return None if splits > most else splits

    def _refined(self, comparisons: Comparisons, splits: int) -> Comparisons:
        return tuple(each.refined(splits) for each in comparisons)

    def _smallest(
        self, comparisons: Comparisons, sizes: Sizes, *, without_one: bool = False
    ) -> float:
        """The least p-value of samples of such sizes; or that where any one test has no evidence."""
        smallest = [each.test.smallest_p_value(*sizes) for each in comparisons]
        if self._merge is None or not without_one:
            return self._merged_p(smallest)
        places = range(len(smallest))
        return max(self._merge([*smallest[:i], 1.0, *smallest[i + 1 :]]) for i in places)

    def _reason(
        self, comparisons: Comparisons, sizes: Sizes, threshold: float, classes: int
    ) -> str:
        """Why samples of such sizes cannot get below the threshold."""
        unlimited = self._refined(comparisons, _ENDLESS)
        if self._smallest(unlimited, sizes, without_one=True) <= threshold:
            return (
                f"too few permutations to reach the level among {classes}: compare fewer classes, "
                "or raise the detector's level or its permutations"
            )
        kept, now = sizes
        return f"{kept} against {now} distinct samples cannot reach the level among {classes}"

    def _compare(
        self, comparison: Comparison, sides: Mapping[int, tuple[Encoding, Encoding]], task: int
    ) -> dict[int, Evidence]:
        """The evidence on each class."""
        measure = comparison.measure
        pairs = [(measure(kept), measure(now)) for kept, now in sides.values()]
        if not all(side.isfinite().all() for pair in pairs for side in pair):
            raise RunFailure(
                "the encoder gives values that are not finite; if it is the network that learns, it has "
                "diverged: lower its rate; if it is your own, let it give finite ones for every sample"
            )
        # A generator of the check's own: how many draws earlier checks took makes no difference.
        draw = rng.fork(self._seed, "permutations", comparison.name, task)
        return dict(zip(sides, comparison.test.run(pairs, draw), strict=True))

    def _merged(self, evidence: Sequence[Evidence]) -> Evidence:
        if self._merge is None:
            return evidence[0]
        p_value = self._merge([each.p_value for each in evidence])
        return Evidence(-math.log10(max(p_value, 1e-300)), p_value)

    def _merged_p(self, p_values: Sequence[float]) -> float:
        return p_values[0] if self._merge is None else self._merge(p_values)
