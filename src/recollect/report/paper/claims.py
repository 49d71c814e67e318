"""What the paper claims, what its own tables say about it, and what was measured here.

A claim is a mean difference, or factor, that is at least a threshold. It holds if the whole 95 %
interval is at or above the threshold, does not hold if the whole interval is below, and is
undecided otherwise. Runs are paired by place and seed; cells are averaged over seeds, and the
interval is Student's over cells (over seeds where there is one cell).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from recollect.report.paper import findings, published
from recollect.report.paper.claim_evidence import (
    Evidence,
    Share,
    by_scale,
    evidence_of,
    published_evidence,
)
from recollect.report.paper.drift_findings import HALF, NEARLY_ALL, natural_drifts, transforms
from recollect.report.paper.findings import FACTOR, MARGIN, Finding
from recollect.report.paper.intervals import NOT_MEASURED
from recollect.report.sweeps import Sweep

NOT_HERE = "not measured here"
NO_NUMBERS = "no numbers"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim beside the numbers."""

    key: str
    text: str
    rule: str
    """when it counts as holding"""
    published: str
    """what the paper's own numbers say"""
    holds_published: str
    """holds, does not hold, undecided or no numbers"""
    measured: str
    holds: str
    """holds, does not hold, undecided or not measured"""


Test = Callable[[Evidence], Finding | None]


def claims(sweeps: Sequence[Sweep], extra: Mapping[str, Share] | None = None) -> list[Claim]:
    """Every claim, each at the largest scale that says something about it.

    `extra` holds shares of natural drifts that a detector found, by the detector's name ("ks",
    "mmd"), where they were measured outside of sweeps.
    """
    scales = [(name, members) for name, members in by_scale(sweeps)]
    evidence = [evidence_of(name, members) for name, members in scales]
    main, backbones = published_evidence(*published.MAIN), published_evidence("backbones")

    def claim(key: str, text: str, rule: str, test: Test, said: Finding | None) -> Claim:
        found = next(filter(None, map(test, evidence)), None)
        return _claim(key, text, rule, said, found)

    return [
        claim(
            "matches-relearning",
            "Realignment (amr) ends as accurate as full relearning (fr).",
            f"amr - fr is at least -{MARGIN:g} points",
            findings.matches_relearning,
            findings.matches_relearning(main),
        ),
        claim(
            "fewer-labels",
            "It asks for orders of magnitude fewer labels than full relearning.",
            f"fr asks for at least {FACTOR:g} times as many, with every buffer size",
            lambda known: findings.factor(known, "labels"),
            findings.labels_by_protocol(),
        ),
        claim(
            "less-compute",
            "It costs orders of magnitude less compute than full relearning.",
            f"fr takes at least {FACTOR:g} times the FLOPs of training, detection and adaptation, "
            "with every buffer size",
            lambda known: findings.factor(known, "flops"),
            None,
        ),
        claim(
            "larger-buffers-hurt",
            "Without adaptation, drift does more harm where the buffer is larger.",
            "what vanilla loses by drift grows from the smallest to the largest buffer by at least "
            f"{MARGIN:g} point",
            findings.larger_buffers_hurt,
            findings.larger_buffers_hurt(main),
        ),
        claim(
            "stable-classes-kept",
            "Classes that did not drift keep their accuracy.",
            f"on classes that never drifted, amr - vanilla is at least -{MARGIN:g} points",
            findings.stable_classes_kept,
            None,
        ),
        claim(
            "500-rows",
            "A buffer of 500 rows is enough for CIFAR-100 but not for Tiny-ImageNet.",
            f"with 500 rows, amr - vanilla is at least {MARGIN:g} point on cifar100-cd, and less "
            "on tinyimagenet-cd",
            findings.small_buffers_suffice,
            findings.small_buffers_suffice(main),
        ),
        claim(
            "any-backbone",
            "The backbone does not matter: realignment keeps up with full relearning on each.",
            f"over at least two backbones, amr - fr is at least -{MARGIN:g} points, and on the "
            "average of each backbone too",
            findings.any_backbone,
            findings.any_backbone(backbones),
        ),
        _claim(
            "natural-drift",
            "On natural drift a test of uncertainty (ks) finds half of the drifts, one of features "
            "(mmd) nearly all.",
            f"ks finds less than {HALF:.0%}, mmd at least {NEARLY_ALL:.0%} of the drifted classes",
            Finding(text="told in words alone: about 50 %, and nearly all", verdict=NO_NUMBERS),
            next(filter(None, (natural_drifts(*scale, extra or {}) for scale in scales)), None)
            or natural_drifts("", [], extra or {}),
        ),
        _claim(
            "harmless-transforms",
            "Some transforms do nothing (defocus blur, shot noise), others harm (Gaussian noise, "
            "rotation, permutation).",
            f"at the highest severity vanilla loses less than {MARGIN:g} point to the former and "
            "at least that much to the latter",
            Finding(text="shown in a figure, without numbers", verdict=NO_NUMBERS),
            next(filter(None, (transforms(*scale) for scale in scales)), None),
        ),
    ]


def _claim(key: str, text: str, rule: str, said: Finding | None, found: Finding | None) -> Claim:
    said = said or Finding(text="the tables do not tell", verdict=NO_NUMBERS)
    found = found or Finding(text=NOT_HERE, verdict=NOT_MEASURED)
    return Claim(
        key=key,
        text=text,
        rule=rule,
        published=said.text,
        holds_published=said.verdict,
        measured=found.text,
        holds=found.verdict,
    )
