"""Kinds of change without labels: novelty goes to the classes that miss samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from driftwise.stats.change_findings import (
    FEWEST,
    OLD_GONE,
    SAME_BELOW,
    Finding,
    Findings,
    Sides,
    class_p_values,
    summed_up,
    waiting_for,
)
from driftwise.stats.class_mix import (
    in_that_mix,
    multinomial,
    other_mix_of_counts,
    shares_in_stream,
)
from driftwise.stats.corruption import repeated
from driftwise.stats.fraction import estimate_shares
from driftwise.stats.kind_names import Kind
from driftwise.stats.multiplicity import holm

_STILL_THERE = 0.65
"""of the usual number of samples of a class: if more are unchanged, what is new is no part of it"""

_KNOWN = 0.5
"""of the samples of a window: no more than the others are of new classes"""


def without_labels(sides: Sides, usual: Tensor) -> Findings:
    """Group samples by predictions, and attribute what is new to the classes that miss samples."""
    broken, why = repeated(sides)
    stream = [Finding(kind="corrupted", evidence=why)] if why else []
    amounts = _unchanged_amounts(sides, ~broken)
    counts, old, novel = amounts.counts, amounts.old, amounts.novel
    expected, error = _group_mix(sides, usual)
    by_class: dict[int, Finding] = {}
    if bool(novel.any()):
        # As many as there would be if some classes had kept theirs; where hardly any has, all miss some.
        scale = (old / expected.clamp(min=1e-9)).quantile(0.6)
        expected = expected * scale.clamp(min=_KNOWN * counts.sum())
        for place, label in enumerate(sides.known.classes):
            kept = float(old[place] / expected[place].clamp(min=1e-9))
            missing = float(expected[place] - old[place])
            if kept >= _STILL_THERE or missing < 2.5 * float(expected[place]) ** 0.5:
                continue
            by_class[label] = _what_replaced(sides, label, kept, novel)
        if not by_class:
            evidence = {"samples": float(novel.sum()), "p_value": amounts.smallest}
            stream.append(Finding(kind="new class", evidence=evidence))
    stream += summed_up(by_class)
    if (
        not stream
        and sides.mix_samples
        and (evidence := other_mix_of_counts(counts, expected, sides.level, error))
    ):
        stream.append(Finding(kind="mix", evidence=evidence))
    return Findings(
        by_class={c: by_class.get(c, as_tested) for c, as_tested in amounts.unchanged.items()},
        stream=tuple(stream) or (Finding(kind="none"),),
        novel=novel,
        quarantined=broken,
    )


class _Amounts(NamedTuple):
    """What the test of each group found; a group is one class's predictions."""

    counts: Tensor
    """samples of each group, (classes,)"""
    old: Tensor
    """unchanged ones among them"""
    novel: Tensor
    """which samples are new, bool (samples,)"""
    smallest: float
    """the least p-value"""
    unchanged: dict[int, Finding]
    """of each class: none, or not testable"""


def _unchanged_amounts(sides: Sides, left: Tensor) -> _Amounts:
    pooled = torch.cat(list(sides.reference.values()))
    places = range(len(sides.known.classes))
    rows = [((sides.places == place) & left).nonzero().squeeze(1) for place in places]
    counts = torch.tensor([len(each) for each in rows], dtype=torch.float64)
    alike = _in_the_stream_s_mix(sides, left)
    before = [pooled[alike & (sides.groups == place)] for place in places]
    pairs = {
        place: (before[place], sides.current[rows[place]])
        for place in places
        if min(len(rows[place]), len(before[place])) >= FEWEST
    }
    p_values = class_p_values(list(pairs.values()), sides.seed)
    threshold = holm(p_values, sides.class_level) if p_values else 0.0
    changed = [place for place, p in zip(pairs, p_values, strict=True) if p <= threshold]
    old, novel = counts.clone(), torch.zeros_like(left)
    for place, found in zip(changed, estimate_shares([pairs[c] for c in changed]), strict=True):
        old[place] *= 1 - found.share
        novel[rows[place][found.evidence > 0.5]] = True
    unchanged = {
        label: Finding(kind="none")
        if place in pairs
        else waiting_for("missing_current", len(rows[place]))
        if len(rows[place]) < FEWEST
        else waiting_for("missing_reference", len(before[place]))
        for place, label in enumerate(sides.known.classes)
    }
    return _Amounts(counts, old, novel, min(p_values, default=1.0), unchanged)


def _in_the_stream_s_mix(sides: Sides, left: Tensor) -> Tensor:
    """Reference samples whose groups have the stream's class mix, bool (reference samples,).

    With other class frequencies a group holds more of another class's samples, and would differ. Where
    the mix is as before all samples stay: with fewer a change would be harder to find.
    """
    alike = sides.groups >= 0
    classes, groups = sides.known.places[alike], sides.groups[alike]
    now = sides.places[left & (sides.places >= 0)]
    num_groups = len(sides.known.classes)
    counts = torch.bincount(now, minlength=num_groups).double()
    before = torch.bincount(groups, minlength=num_groups).double() / max(1, len(groups))
    error = multinomial(before) / max(1, len(groups))
    if not other_mix_of_counts(counts, before, sides.level, error):
        return alike
    came = torch.bincount(classes).tolist()
    shares = shares_in_stream(classes, groups, now, usual=lambda place: came[place])
    alike[alike.clone()] = in_that_mix(classes, groups, shares)
    return alike


def _group_mix(sides: Sides, usual: Tensor) -> tuple[Tensor, Tensor]:
    """How often each class is predicted as a rule, (classes,), and the covariance of that estimate.

    What a class is taken for is known from its reference samples alone.
    """
    taken_for = torch.zeros(len(usual), len(usual), dtype=torch.float64)
    error = torch.zeros_like(taken_for)
    for place, share in enumerate(usual.tolist()):
        groups = sides.groups[(sides.known.places == place) & (sides.groups >= 0)]
        counts = torch.bincount(groups, minlength=len(usual)).double()
        total = counts.sum().clamp(min=1)
        taken_for[place] = counts / total
        error = error + share**2 * multinomial(taken_for[place]) / total
    if 0 < sides.mix_samples < float("inf"):
        error = error + taken_for.T @ multinomial(usual) @ taken_for / sides.mix_samples
    expected = usual @ taken_for
    return expected / expected.sum(), error / expected.sum().square()


def _what_replaced(sides: Sides, label: int, kept: float, novel: Tensor) -> Finding:
    """The kind of change of a class that misses samples, given all samples that are new."""
    evidence = {"fraction_new": 1 - kept}
    now = sides.current[novel]
    earlier = [each for each in sides.archived.get(label, ()) if len(each) >= FEWEST]
    if earlier and len(now) >= FEWEST:
        shares = estimate_shares([(each, now) for each in earlier])
        evidence["fraction_unlike_earlier"] = min(each.share for each in shares)
        if evidence["fraction_unlike_earlier"] < SAME_BELOW:
            return Finding(kind="recurring", evidence=evidence)
    kind: Kind = "drift" if 1 - kept > OLD_GONE else "new mode"
    return Finding(kind=kind, evidence=evidence)
