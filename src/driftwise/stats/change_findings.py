"""What an explanation of a change works with and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from driftwise import rng
from driftwise.stats.c2st import c2st
from driftwise.stats.combine import cauchy
from driftwise.stats.kind_names import ACTIONS, Kind
from driftwise.stats.mmd import mmd
from driftwise.stats.novelty import KnownClasses, Scored

FEWEST = 20
"""samples of a class, on either side, below which its change is not explained"""
SAME_BELOW = 0.6
"""an archived concept is back where the fraction of samples that differ from it is smaller than this
part of the fraction that differs from the reference"""
OLD_GONE = 0.75
"""of the samples of a class: if more of them are new, the old concept is gone"""
NOVEL = 0.05
"""conformal p-values up to it call a sample novel, an outlier of its class"""
TYPICAL = 0.1
"""p-values from which on a sample is typical of a class"""
NOBODY, WAITING = -1, -2
"""places of samples whose class cannot be compared"""
_SPLITS = 999
"""of the tests of classes"""
_RIDGE = 10.0
"""penalty of their classifier: so strong that 100 samples of 1,280 features separate"""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The kind of a change, with the numbers that show it."""

    kind: Kind
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def action(self) -> str:
        """What to do."""
        return ACTIONS[self.kind]


def waiting_for(which: str, samples: int) -> Finding:
    """The verdict on a class with too few samples on one side: how many are missing."""
    return Finding(kind="not testable", evidence={which: float(FEWEST - samples)})


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """What happened to each class and to the stream."""

    by_class: Mapping[int, Finding]
    stream: tuple[Finding, ...]
    """one for each kind of change, the most urgent first; one of kind none if nothing changed"""
    novel: Tensor
    """bool (samples,): unlike all known classes"""
    quarantined: Tensor
    """bool (samples,): corrupted, or labelled by an annotator who is wrong too often"""

    @property
    def kind(self) -> Kind:
        """The most urgent kind of change."""
        return self.stream[0].kind


@dataclass(frozen=True, kw_only=True, eq=False)
class Sides:
    """Reference and current samples, and how the current ones lie beside the known classes."""

    reference: Mapping[int, Tensor]
    known: KnownClasses
    current: Tensor
    scored: Scored
    places: Tensor
    """of the class of each current sample; -1: none of the known ones"""
    groups: Tensor
    """of the class that each reference sample is taken for, where labels are predictions"""
    archived: Mapping[int, Sequence[Tensor]]
    level: float
    """of each of the tests for corruption, new classes and mix"""
    mix_samples: float
    """from which the usual mix is known; infinite: it is known exactly; 0: not at all"""
    class_level: float
    """of the tests of all classes together"""
    seed: int

    def of_class(self, label: int, left: Tensor) -> Tensor:
        """The current samples of a class that are left."""
        return self.current[(self.places == self.known.classes.index(label)) & left]


def class_p_values(pairs: Sequence[tuple[Tensor, Tensor]], seed: int) -> list[float]:
    """Of each class, by kernel and by classifier, merged."""
    if not pairs:
        return []
    tests = (
        mmd(pairs, permutations=_SPLITS, generator=rng.fork(seed, "kinds", "mmd")),
        c2st(pairs, permutations=_SPLITS, ridge=_RIDGE, generator=rng.fork(seed, "kinds", "c2st")),
    )
    return [
        float(cauchy(np.array([each.p_value for each in by_test])))
        for by_test in zip(*tests, strict=True)
    ]


def summed_up(by_class: Mapping[int, Finding]) -> list[Finding]:
    """One finding for each kind of change that classes underwent, the most frequent first."""
    counts: dict[Kind, int] = {}
    for each in by_class.values():
        if each.kind in ("drift", "new mode", "recurring"):
            counts[each.kind] = counts.get(each.kind, 0) + 1
    ordered = sorted(counts, key=lambda kind: -counts[kind])
    return [Finding(kind=kind, evidence={"classes": float(counts[kind])}) for kind in ordered]
