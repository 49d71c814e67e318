"""Kinds of change without labels: novelty goes to the classes that miss samples."""

from __future__ import annotations

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
)
from driftwise.stats.class_mix import other_mix_of_counts
from driftwise.stats.corruption import repeated
from driftwise.stats.fraction import estimate_shares
from driftwise.stats.kind_names import Kind
from driftwise.stats.multiplicity import holm

_STILL_THERE = 0.65
"""of the usual number of samples of a class: if more are unchanged, what is new is no part of it"""


def without_labels(sides: Sides, usual: Tensor) -> Findings:
    """Group samples by predictions, and attribute what is new to the classes that miss samples."""
    broken, why = repeated(sides)
    stream = [Finding(kind="corrupted", evidence=why)] if why else []
    counts, old, novel, smallest = _unchanged_amounts(sides, ~broken)
    expected = _group_mix(sides, usual)
    by_class: dict[int, Finding] = {}
    if bool(novel.any()):
        # As many as there would be if some classes had kept theirs.
        expected = expected * (old / expected.clamp(min=1e-9)).quantile(0.6)
        for place, label in enumerate(sides.known.classes):
            kept = float(old[place] / expected[place].clamp(min=1e-9))
            missing = float(expected[place] - old[place])
            if kept >= _STILL_THERE or missing < 2.5 * float(expected[place]) ** 0.5:
                continue
            by_class[label] = _what_replaced(sides, label, kept, novel)
        if not by_class:
            evidence = {"samples": float(novel.sum()), "p_value": smallest}
            stream.append(Finding(kind="new class", evidence=evidence))
    stream += summed_up(by_class)
    if not stream and (
        evidence := other_mix_of_counts(counts, expected, sides.level, sides.mix_samples)
    ):
        stream.append(Finding(kind="mix", evidence=evidence))
    return Findings(
        by_class={c: by_class.get(c, Finding(kind="none")) for c in sides.reference},
        stream=tuple(stream) or (Finding(kind="none"),),
        novel=novel,
        quarantined=broken,
    )


def _unchanged_amounts(sides: Sides, left: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """By group: samples, and unchanged ones among them; then which are new; the least p-value."""
    pooled = torch.cat(list(sides.reference.values()))
    places = range(len(sides.known.classes))
    rows = [((sides.places == place) & left).nonzero().squeeze(1) for place in places]
    counts = torch.tensor([len(each) for each in rows], dtype=torch.float64)
    pairs = {
        place: (pooled[sides.groups == place], sides.current[rows[place]])
        for place in places
        if len(rows[place]) >= FEWEST and int((sides.groups == place).sum()) >= FEWEST
    }
    p_values = class_p_values(list(pairs.values()), sides.seed)
    threshold = holm(p_values, sides.class_level) if p_values else 0.0
    changed = [place for place, p in zip(pairs, p_values, strict=True) if p <= threshold]
    old, novel = counts.clone(), torch.zeros_like(left)
    for place, found in zip(changed, estimate_shares([pairs[c] for c in changed]), strict=True):
        old[place] *= 1 - found.share
        novel[rows[place][found.evidence > 0.5]] = True
    return counts, old, novel, min(p_values, default=1.0)


def _group_mix(sides: Sides, usual: Tensor) -> Tensor:
    """How often each class is predicted as a rule, (classes,)."""
    expected = torch.zeros_like(usual)
    for place, share in enumerate(usual.tolist()):
        groups = sides.groups[(sides.known.places == place) & (sides.groups >= 0)]
        counts = torch.bincount(groups, minlength=len(usual)).double()
        expected += share * counts / counts.sum().clamp(min=1)
    return expected / expected.sum()


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
