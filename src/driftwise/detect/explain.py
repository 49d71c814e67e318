"""From "it has drifted" to what has happened: verdicts with the kind of change.

A check that finds no drift costs nothing here, but for a look at the class mix.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from driftwise.detect.base import KnownLabels
from driftwise.stats.class_mix import other_mix
from driftwise.stats.kind_names import Kind
from driftwise.stats.kinds import FEWEST, OLD_GONE, Finding, Findings, Mix, judge
from driftwise.types import Verdict

MAX_SAMPLES = 1_500
"""of either side that a change is explained by; of more, some at regular distances"""
HARMLESS = 2.0
"""points of accuracy: a change that costs less, with its standard error, is harmless"""


def with_kinds(
    verdicts: Sequence[Verdict],
    *,
    reference: Tensor,
    reference_labels: Tensor,
    current: Tensor,
    labels: Tensor,
    known: KnownLabels,
    reference_predictions: Tensor | None = None,
    archived: Mapping[int, Sequence[Tensor]] | None = None,
    mix: Mix = None,
    unit_length: bool = True,
    seed: int = 0,
) -> list[Verdict]:
    """The verdicts of one check, each with its kind of change and that of the stream.

    Args:
        verdicts: of all classes of the check.
        reference: features of all classes, (reference samples, d).
        reference_labels: their classes.
        current: features, (current samples, d).
        labels: of the current samples: their classes, or predictions.
        known: whether labels are given, predicted or neither.
        reference_predictions: of the reference samples, where labels are predicted.
        archived: features of earlier concepts, by class.
        mix: how often each class comes as a rule, see `stats.kinds.judge`.
        unit_length: see `stats.kinds.judge`.
        seed: of permutations.
    """
    drifted = {each.label for each in verdicts if each.drifted}
    if not drifted:
        stream = Finding(kind="none")
        if known == "given" and isinstance(mix, Mapping):
            counts = dict(Counter(labels.tolist()))
            if found := other_mix(counts, mix):
                stream = Finding(kind="mix", evidence=found)
        return [_completed(each, None, stream) for each in verdicts]
    rows, now = _some(reference_labels), torch.arange(len(current))
    if len(now) > MAX_SAMPLES:
        now = torch.linspace(0, len(now) - 1, MAX_SAMPLES).long()
    features = {c: reference[mine] for c, mine in rows.items()}
    predictions = None
    if known == "predicted" and reference_predictions is not None:
        predictions = {c: reference_predictions[mine] for c, mine in rows.items()}
    findings = judge(
        features,
        current[now],
        None if known == "unknown" else labels[now],
        labels_are="given" if known == "given" else "predicted",
        reference_predictions=predictions,
        changed=drifted,
        archived=archived,
        mix=mix,
        unit_length=unit_length,
        seed=seed,
    )
    stream = _stream_finding(findings, verdicts)
    # Where labels are given, samples of other classes change no class.
    kinds: list[Kind] = ["corrupted"] if known == "given" else ["new class", "mix", "corrupted"]
    return [_completed(each, findings, stream, kinds) for each in verdicts]


def _some(labels: Tensor) -> dict[int, Tensor]:
    """The places of each class's samples, in all not many more than `MAX_SAMPLES`."""
    classes = torch.unique(labels).tolist()
    most = max(FEWEST, MAX_SAMPLES // max(1, len(classes)))
    rows = {}
    for c in classes:
        mine = (labels == c).nonzero().squeeze(1)
        rows[c] = mine[torch.linspace(0, len(mine) - 1, min(len(mine), most)).long()]
    return rows


def _stream_finding(found: Findings, verdicts: Sequence[Verdict]) -> Finding:
    """The most urgent change; where a detector found more than the explanation, drift."""
    stream = found.stream[0]
    drifted = [each for each in verdicts if each.drifted]
    leaves_open = not all(_is_compared(found.by_class.get(each.label)) for each in drifted)
    if stream.kind in ("none", "not testable") or (stream.kind == "mix" and leaves_open):
        kinds = [_of_share(each) for each in drifted]
        stream = Finding(
            kind=max(set(kinds), key=kinds.count), evidence={"classes": float(len(kinds))}
        )
    return stream


def _is_compared(finding: Finding | None) -> bool:
    """Whether a class's samples were compared, in the stream's mix: only then a mix explains an alarm."""
    return finding is not None and finding.kind != "not testable"


def _completed(
    verdict: Verdict, found: Findings | None, stream: Finding, explaining: Collection[Kind] = ()
) -> Verdict:
    finding = _finding(verdict, found, stream, explaining)
    return replace(
        verdict,
        kind=finding.kind,
        kind_evidence=_finite(finding.evidence) or None,
        stream_kind=stream.kind,
        stream_evidence=_finite(stream.evidence) or None,
    )


def _finding(
    verdict: Verdict, found: Findings | None, stream: Finding, explaining: Collection[Kind]
) -> Finding:
    """What happened to one class, consistent with the detector's verdict on it.

    `explaining`: kinds of change of the stream that explain a class with no finding of its own.
    """
    if verdict.drifted is None:
        counts = verdict.num_reference, verdict.num_current
        missing = [float(max(0, FEWEST - count)) for count in counts]
        names = ("missing_reference", "missing_current")
        return Finding(kind="not testable", evidence=dict(zip(names, missing, strict=True)))
    finding = None if found is None else found.by_class.get(verdict.label)
    if not verdict.drifted:
        corrupted = finding is not None and finding.kind == "corrupted"
        return finding if corrupted and finding is not None else Finding(kind="none")
    if finding is not None and finding.kind == "corrupted":
        return finding
    if _is_harmless(verdict):
        evidence = {} if verdict.harm is None else {"harm": verdict.harm}
        return Finding(kind="harmless", evidence=evidence)
    if finding is not None and finding.kind not in ("none", "not testable"):
        return finding
    if stream.kind in explaining and (stream.kind != "mix" or _is_compared(finding)):
        return stream
    return Finding(kind=_of_share(verdict), evidence={"fraction_new": verdict.share or 0.0})


def _is_harmless(verdict: Verdict) -> bool:
    if verdict.spared:
        return True
    known = verdict.harm is not None and verdict.harm_error is not None
    return known and (verdict.harm or 0.0) + (verdict.harm_error or 0.0) < HARMLESS


def _of_share(verdict: Verdict) -> Kind:
    """By the fraction that drifted alone."""
    return "new mode" if verdict.share is not None and verdict.share <= OLD_GONE else "drift"


def _finite(evidence: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in evidence.items() if math.isfinite(value)}
