"""From encodings to verdicts: test every class, combine several tests, correct for both.

Nothing here knows where samples come from or what encoded them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from driftwise import rng
from driftwise.detect.two_sample import Comparison, Merge, Panel, Sizes
from driftwise.errors import RunFailure, UserError, unknown_name
from driftwise.stats.alpha_spending import inverse_square
from driftwise.stats.multiplicity import CORRECTIONS
from driftwise.stats.permutation import Evidence
from driftwise.types import Encoding, Verdict

__all__ = ["Comparison", "ComparisonOptions", "Judge"]

MAX_SPLITS = 2_000_000
"""random ones of all classes of a check together: a minute, should every class drift"""

CLEARLY = 1e-3
"""so far below a threshold must held-out samples be able to get: only clear cases reach the least"""

CALIBRATIONS = ("test", "asymptotic", "split")
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
        if self.correction not in CORRECTIONS:
            raise unknown_name("correction", self.correction, CORRECTIONS)
        if self.spending not in SPENDINGS:
            raise unknown_name("spending", self.spending, SPENDINGS)
        if self.calibration not in CALIBRATIONS:
            raise unknown_name("calibration", self.calibration, CALIBRATIONS)
        if self.min_rows < self.fewest_samples:
            raise UserError(
                f"the detector's min_rows must be at least {self.fewest_samples}; got {self.min_rows}"
            )


class Judge:
    """Compares each class's current encodings with its reference by one or several tests.

    The more classes share a level, the finer p-values must be: tests that draw random splits draw
    as many as the strictest threshold asks for, up to `MAX_SPLITS`, but never fewer than their own
    number. Where that is not enough, or too slow, tests on held-out samples take their place.
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
        """`merge` makes one p-value of several comparisons'; a single one needs none.

        `quick_splits`: random ones of all classes of a check together, beyond which tests on held-
        out samples are preferred where they see enough; None: the most that are ever drawn.
        """
        if (merge is None) != (len(comparisons) == 1):
            raise ValueError("several comparisons, and only they, need to be merged")
        self._panel = Panel(
            comparisons=tuple(each.calibrated(options.calibration) for each in comparisons),
            merge=merge,
        )
        self._options = options
        self._correct = CORRECTIONS[options.correction]
        self._seed = seed
        self._quick_splits = quick_splits

    def verdicts(self, task: int, sides: Mapping[int, tuple[Encoding, Encoding]]) -> list[Verdict]:
        """One verdict per class, given distinct samples (reference, current) of each, in that order.

        A class that could not have been flagged, whatever its samples, is not testable.
        """
        level = self._level(task)
        sizes = {label: (len(kept), len(now)) for label, (kept, now) in sides.items()}
        panel, obstacles = self._by_sizes(sizes, level)
        testable = {label: pair for label, pair in sides.items() if label not in obstacles}
        found = {each.name: self._compare(each, testable, task) for each in panel.comparisons}
        evidence = {label: self._merged([of[label] for of in found.values()]) for label in testable}
        threshold = self._correct([each.p_value for each in evidence.values()], level)
        obstacles |= self._unheard(panel, sizes, evidence, threshold)
        return [
            self._verdict(
                task,
                label,
                sizes[label],
                evidence[label] if label not in obstacles else None,
                threshold,
                obstacle=obstacles.get(label),
                by_test={name: of[label].p_value for name, of in found.items() if label in of},
            )
            for label in sides
        ]

    def obstacles(self, task: int, sizes: Mapping[int, Sizes]) -> dict[int, str]:
        """Classes that samples of such sizes cannot be tested by, whatever they show, and why."""
        return self._by_sizes(sizes, self._level(task))[1]

    def _by_sizes(self, sizes: Mapping[int, Sizes], level: float) -> tuple[Panel, dict[int, str]]:
        """What is known before anything is compared: by which tests, and which classes are out."""
        obstacles = self._shortages(sizes)
        enough = {label: both for label, both in sizes.items() if label not in obstacles}
        panel = self._fine_enough(enough, level)
        return panel, obstacles | self._out_of_reach(panel, enough, level)

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
        if self._panel.merge is None:
            return evidence[0]
        p_value = self._panel.merged([each.p_value for each in evidence])
        return Evidence(-math.log10(max(p_value, 1e-300)), p_value)

    def _level(self, task: int) -> float:
        """What the check at a task may spend; the first check comes with the second task."""
        if self._options.spending == "none":
            return self._options.level
        return inverse_square(self._options.level, max(1, task - 1))

    def _fine_enough(self, sizes: Mapping[int, Sizes], level: float) -> Panel:
        """The comparisons, with p-values that go down to half of the strictest threshold."""
        if not sizes or self._options.max_statistic is not None:
            return self._panel
        rivals = len(sizes)
        needed = self._correct([1.0] * rivals, level) / 2
        quick = MAX_SPLITS if self._quick_splits is None else self._quick_splits
        if (panel := self._panel.reaching(needed, max_splits=quick // rivals)) is not None:
            return panel
        held_out = self._panel.on_held_out_samples()
        if all(held_out.smallest_without_one(both) < CLEARLY * needed for both in sizes.values()):
            return held_out
        most = MAX_SPLITS // rivals
        return self._panel.reaching(needed, max_splits=most) or self._panel.refined(most)

    def _shortages(self, sizes: Mapping[int, Sizes]) -> dict[int, str]:
        """Classes with too few samples, and why they cannot be tested."""
        least = self._options.min_rows
        return {
            label: f"fewer than {least} distinct {'reference' if kept < least else 'current'} samples"
            for label, (kept, now) in sizes.items()
            if min(kept, now) < least
        }

    def _out_of_reach(
        self, panel: Panel, sizes: Mapping[int, Sizes], level: float
    ) -> dict[int, str]:
        """Of classes with enough samples, those no p-value of which can be flagged, and why."""
        if self._options.max_statistic is not None:
            return {}
        obstacles = {}
        for both in set(sizes.values()):
            smallest = panel.smallest(both)
            # At best all others have drifted as clearly.
            threshold = self._correct([smallest] * len(sizes), level)
            if smallest > threshold:
                obstacles[both] = _obstacle(panel, both, threshold, len(sizes))
        return {label: obstacles[both] for label, both in sizes.items() if both in obstacles}

    def _unheard(
        self,
        panel: Panel,
        sizes: Mapping[int, Sizes],
        evidence: Mapping[int, Evidence],
        threshold: float,
    ) -> dict[int, str]:
        """Of classes not flagged, those that could not be tested, and why.

        The p-value could not have got below the threshold, or not if one of several tests had seen
        nothing: that one's silence would be all there is to hear.
        """
        if self._options.max_statistic is not None:
            return {}
        return {
            label: _obstacle(panel, sizes[label], threshold, len(evidence))
            for label, each in evidence.items()
            if each.p_value > threshold < panel.smallest_without_one(sizes[label])
        }

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
            p_values=by_test if self._panel.merge else None,
        )


def _obstacle(panel: Panel, sizes: Sizes, threshold: float, rivals: int) -> str:
    if panel.lacks_splits(sizes, threshold):
        return (
            f"too few permutations to reach the level among {rivals}: compare fewer classes, or "
            "raise the detector's level or its permutations"
        )
    kept, now = sizes
    return f"{kept} against {now} distinct samples cannot reach the level among {rivals}"
