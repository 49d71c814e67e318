"""What the paper claims, what its own tables say about it, and what was measured here.

A claim is a mean difference, or factor, that is at least a threshold. It holds if the whole 95 %
interval is at or above the threshold, does not hold if the whole interval is below, and is
undecided otherwise. Only runs of one scale and equal settings are laid beside each other, paired by
place and seed; cells are averaged over seeds, and the interval is Student's over cells (over seeds
where there is one cell).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from driftwise.report.sweeps import Sweep
from driftwise.reproduce import findings, published
from driftwise.reproduce.claim_evidence import Evidence, evidence_of, published_evidence
from driftwise.reproduce.claim_pools import Done, Pool, pools
from driftwise.reproduce.control_findings import (
    detector_errors,
    is_of_detector_errors,
    is_of_own_concepts,
    own_concepts,
)
from driftwise.reproduce.drift_findings import (
    HALF,
    HIGHEST,
    NEARLY_ALL,
    is_natural,
    is_of_transforms,
    natural_drifts,
    transforms,
)
from driftwise.reproduce.findings import FACTOR, MARGIN, Finding
from driftwise.reproduce.intervals import NOT_MEASURED

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


def claims(sweeps: Sequence[Sweep]) -> list[Claim]:
    """Every claim, each by the runs that say most about it.

    The paper's benchmarks come before others, then larger scales before smaller ones.
    """
    tables = [(pool, evidence_of(pool)) for pool in pools(sweeps, Done.varies_only)]
    main, backbones = published_evidence(*published.MAIN), published_evidence("backbones")

    def claim(
        key: str,
        text: str,
        rule: str,
        test: Callable[[Evidence], Finding | None],
        said: Finding | None,
    ) -> Claim:
        return _claim(key, text, rule, said, _best((pool, test(known)) for pool, known in tables))

    def among(
        test: Callable[[Pool], Finding | None], asked: Callable[[Done], bool], *varied: str
    ) -> Finding | None:
        return _best((pool, test(pool)) for pool in pools(sweeps, asked, varied))

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
            "A buffer of 500 samples is enough for CIFAR-100 but not for Tiny-ImageNet.",
            f"with 500 samples, amr - vanilla is at least {MARGIN:g} point on cifar100-cd, and less "
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
            among(natural_drifts, is_natural, "detector", "options.detector"),
        ),
        _claim(
            "harmless-transforms",
            "Some transforms do nothing (defocus blur, shot noise), others harm (Gaussian noise, "
            "rotation, permutation).",
            f"at severity {HIGHEST} vanilla loses less than {MARGIN:g} point to the former and "
            "at least that much to the latter",
            Finding(text="shown in a figure, without numbers", verdict=NO_NUMBERS),
            among(transforms, is_of_transforms, "transform", "severity"),
        ),
        _claim(
            "own-concepts",
            "Realignment does not live on a concept that all drifted classes share: it keeps up "
            "with full relearning where every class drifts by its own.",
            f"amr - fr is lower than with a shared concept by at most {MARGIN:g} point",
            Finding(text="without such a control", verdict=NO_NUMBERS),
            among(own_concepts, is_of_own_concepts, "concept_per_class"),
        ),
        _claim(
            "detector-errors",
            "Drift that a detector misses costs accuracy; its false alarms cost labels alone.",
            f"of a detector whose errors are injected, amr loses more than {MARGIN:g} point as its "
            "true-positive rate falls from 1 to 0, and at most that much as its false-positive "
            "rate rises from 0 to 1",
            Finding(text="told in words alone", verdict=NO_NUMBERS),
            among(
                *(detector_errors, is_of_detector_errors),
                *("options.detector.tpr", "options.detector.fpr"),
            ),
        ),
    ]


def _best(answers: Iterable[tuple[Pool, Finding | None]]) -> Finding | None:
    """The first answer with numbers in it, and what else was there to be asked."""
    found = [(pool, finding) for pool, finding in answers if finding is not None]
    if not found:
        return None
    measured = [each for each in found if each[1].verdict != NOT_MEASURED]
    pool, finding = (measured or found)[0]
    others = [
        f"{', '.join(other.sweeps)} ({', '.join(pool.differs_in(other))})"
        for other, _ in measured
        if other is not pool and other.is_beside(pool)
    ]
    if not others:
        return finding
    text = f"{finding.text}; from {', '.join(pool.sweeps)}, other settings left out: "
    return Finding(text=text + ", ".join(others), verdict=finding.verdict)


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
