"""The kinds of change in a comparison of two data sets: of its classes, and of all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import fisher_exact

from driftwise.detect.drift_report import ClassReport
from driftwise.stats.class_mix import other_mix
from driftwise.stats.kinds import Finding
from driftwise.types import Verdict

_LEVEL = 0.005
"""of the tests for copies and for the class mix"""
_REPEATED = 0.05
"""how much larger the fraction of copies is where a sensor is broken"""


def with_kind(report: ClassReport, verdict: Verdict | None) -> ClassReport:
    """The report of a class with the kind of its change; a missing class has none."""
    if verdict is not None and verdict.kind is not None:
        finding = Finding(kind=verdict.kind, evidence=verdict.kind_evidence or {})
    elif report.verdict == "new":
        finding = Finding(kind="new class", evidence={"samples": float(report.num_current)})
    else:
        return report
    if copied := _copied([report]):
        finding = Finding(kind="corrupted", evidence=copied)
    return replace(report, kind=finding.kind, kind_evidence=finding.evidence, action=finding.action)


def found_in_all(classes: Sequence[ClassReport], verdicts: Mapping[str, Verdict]) -> Finding:
    """The most urgent kind of change in all samples together."""
    if copied := _copied(classes):
        return Finding(kind="corrupted", evidence=copied)
    first = next((each for each in verdicts.values() if each.stream_kind), None)
    stream = Finding(kind="not testable")
    if first is not None and first.stream_kind is not None:
        stream = Finding(kind=first.stream_kind, evidence=first.stream_evidence or {})
    fresh = [each.num_current for each in classes if each.verdict == "new"]
    if fresh and stream.kind != "corrupted":
        return Finding(kind="new class", evidence={"samples": float(sum(fresh))})
    if stream.kind == "none":
        usual = {n: float(each.num_reference) for n, each in enumerate(classes)}
        counts = {n: float(each.num_current) for n, each in enumerate(classes)}
        mixed = other_mix(counts, usual, known_from=sum(usual.values()), level=_LEVEL)
        if mixed:
            return Finding(kind="mix", evidence=mixed)
        if all(each.kind == "not testable" for each in verdicts.values()):
            return Finding(kind="not testable")
    return stream


def _copied(classes: Sequence[ClassReport]) -> dict[str, float]:
    """The evidence that readings repeat more often than in the reference; empty: there is none."""
    copies = [sum(each.num_copies_reference for each in classes)]
    copies.append(sum(each.num_copies_current for each in classes))
    counts = [sum(each.num_reference for each in classes)]
    counts.append(sum(each.num_current for each in classes))
    # A few copies are no broken sensor.
    if not all(counts) or copies[1] / counts[1] < copies[0] / counts[0] + _REPEATED:
        return {}
    table = [[copies[side], counts[side] - copies[side]] for side in (1, 0)]
    if float(fisher_exact(np.array(table), alternative="greater").pvalue) > _LEVEL:
        return {}
    return {"repeated_fraction": copies[1] / counts[1]}
