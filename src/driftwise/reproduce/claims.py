"""What the paper claims, what its own tables show about it, and what was measured here.

A claim is a mean difference, or factor, that is at least a threshold. It holds if the whole 95 %
interval is at or above the threshold, does not hold if the whole interval is below, and is
undecided otherwise. Cells are averaged over seeds, and the interval is Student's over cells (over
seeds where there is one cell).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from driftwise.report.markup import render
from driftwise.report.sweeps import Sweep
from driftwise.report.table import WIDTH, Head, Item, Table, csv_text
from driftwise.reproduce import findings, published
from driftwise.reproduce.evidence import (
    NOT_MEASURED,
    Done,
    Evidence,
    Pool,
    evidence_of,
    pools,
    published_evidence,
)
from driftwise.reproduce.findings import FACTOR, HALF, HIGHEST, MARGIN, NEARLY_ALL, Finding

Test = Callable[[Evidence], Finding | None]
NO_NUMBERS = "no numbers"


class Claim(NamedTuple):
    """One claim beside the numbers."""

    key: str
    text: str
    rule: str
    """when it counts as holding"""
    published: str
    """what the paper's own numbers show"""
    holds_published: str
    """holds, does not hold, undecided or no numbers"""
    measured: str
    holds: str
    """holds, does not hold, undecided or not measured"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A claim, which runs it is about, and how they decide it."""

    key: str
    text: str
    rule: str
    test: Test
    tables: tuple[str, ...] = ()
    """published tables that the same test decides"""
    published: str = "not in the tables"
    """what else the paper has about it"""
    wanted: Callable[[Done], bool] = Done.varies_only
    varied: tuple[str, ...] = ()
    """config keys that the question itself is about"""


QUESTIONS = (
    Question(
        key="matches-relearning",
        text="Realignment (amr) ends as accurate as full relearning (fr).",
        rule=f"amr - fr is at least -{MARGIN:g} points",
        test=findings.matches_relearning,
        tables=published.MAIN,
    ),
    Question(
        key="fewer-labels",
        text="It asks for orders of magnitude fewer labels than full relearning.",
        rule=f"fr asks for at least {FACTOR:g} times as many, with every buffer size",
        test=partial(findings.factor, measure="labels"),
    ),
    Question(
        key="less-compute",
        text="It costs orders of magnitude less compute than full relearning.",
        rule=f"fr takes at least {FACTOR:g} times the FLOPs of training, detection and "
        "adaptation, with every buffer size",
        test=partial(findings.factor, measure="flops"),
    ),
    Question(
        key="larger-buffers-hurt",
        text="Without adaptation, drift does more harm where the buffer is larger.",
        rule="what vanilla loses by drift grows from the smallest to the largest buffer by at "
        f"least {MARGIN:g} point",
        test=findings.larger_buffers_hurt,
        tables=published.MAIN,
    ),
    Question(
        key="stable-classes-kept",
        text="Classes that did not drift keep their accuracy.",
        rule=f"on classes that never drifted, amr - vanilla is at least -{MARGIN:g} points",
        test=findings.stable_classes_kept,
    ),
    Question(
        key="500-rows",
        text="A buffer of 500 samples is enough for CIFAR-100 but not for Tiny-ImageNet.",
        rule=f"with 500 samples, amr - vanilla is at least {MARGIN:g} point on cifar100-cd, and "
        "less on tinyimagenet-cd",
        test=findings.small_buffers_suffice,
        tables=published.MAIN,
    ),
    Question(
        key="any-backbone",
        text="The backbone does not matter: realignment keeps up with full relearning on each.",
        rule=f"over at least two backbones, amr - fr is at least -{MARGIN:g} points, and on the "
        "average of each backbone too",
        test=findings.any_backbone,
        tables=("backbones",),
    ),
    Question(
        key="natural-drift",
        text="On natural drift a test of uncertainty (ks) finds half of the drifts, one of "
        "features (mmd) nearly all.",
        rule=f"on each benchmark with natural drift, ks finds less than {HALF:.0%}, mmd at least "
        f"{NEARLY_ALL:.0%} of the drifted classes",
        test=findings.natural_drifts,
        published="in words alone: about 50 %, and nearly all",
        wanted=findings.is_natural,
        varied=("detector", "options.detector"),
    ),
    Question(
        key="harmless-transforms",
        text="Some transforms do nothing (defocus blur, shot noise), others harm (Gaussian noise, "
        "rotation, permutation).",
        rule=f"at severity {HIGHEST} vanilla loses less than {MARGIN:g} point to the former and "
        "at least that much to the latter",
        test=findings.transforms,
        published="shown in a figure, without numbers",
        wanted=findings.is_of_transforms,
        varied=("transform", "severity"),
    ),
    Question(
        key="own-concepts",
        text="Realignment does not depend on a concept that all drifted classes share: it keeps up "
        "with full relearning where every class drifts by its own.",
        rule=f"amr - fr is lower than with a shared concept by at most {MARGIN:g} point",
        test=findings.own_concepts,
        published="without such a control",
        wanted=findings.is_of_own_concepts,
        varied=("concept_per_class",),
    ),
    Question(
        key="detector-errors",
        text="Drift that a detector misses costs accuracy; its false alarms cost labels alone.",
        rule=f"of a detector whose errors are injected, amr loses more than {MARGIN:g} point as "
        "its true-positive rate falls from 1 to 0, and at most that much as its false-positive "
        "rate rises from 0 to 1",
        test=findings.detector_errors,
        published="in words alone",
        wanted=findings.is_of_detector_errors,
        varied=("options.detector.tpr", "options.detector.fpr"),
    ),
)


def claims(sweeps: Sequence[Sweep]) -> list[Claim]:
    """Every claim, each by the most informative runs.

    The paper's benchmarks come before others, then larger scales before smaller ones.
    """
    known: dict[tuple[object, ...], list[tuple[Pool, Evidence]]] = {}
    found = []
    for question in QUESTIONS:
        which = (question.wanted, question.varied)
        if which not in known:
            chosen = pools(sweeps, *which)
            known[which] = [(pool, evidence_of(pool.done, pool.origin)) for pool in chosen]
        measured = _best((pool, question.test(evidence)) for pool, evidence in known[which])
        printed = _published(question)
        found.append(Claim(question.key, question.text, question.rule, *printed, *measured))
    return found


def _published(question: Question) -> Finding:
    if question.key == "fewer-labels":
        return findings.labels_by_protocol()
    finding = question.test(published_evidence(*question.tables)) if question.tables else None
    return finding or Finding(question.published, NO_NUMBERS)


def _best(answers: Iterable[tuple[Pool, Finding | None]]) -> Finding:
    """The first answer with numbers in it, and which other pools have some."""
    found = [(pool, finding) for pool, finding in answers if finding is not None]
    if not found:
        return Finding("not measured here", NOT_MEASURED)
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
    return Finding(text + ", ".join(others), finding.verdict)


TITLE = "The paper's claims"
RULE = (
    "A claim holds if the whole 95 % interval is on its side of the threshold, does not hold if "
    "the whole interval is on the other, and is undecided otherwise, or if nothing varies. Only "
    "runs of one scale and equal settings are compared, paired by place and seed; the interval is "
    "Student's over cells, each a mean over seeds (over seeds where there is one cell)."
)
SOURCE = f"Published numbers: {published.SOURCE}."
COLUMNS = {
    "claim": "text",
    "holds if": "rule",
    "published": "holds_published",
    "the paper's tables": "published",
    "here": "holds",
    "measured here": "measured",
}
"""Title and field of Claim, for Markdown."""


def forms_of(found: Sequence[Claim]) -> dict[str, str]:
    """The claims by the ending of their file: txt, md, csv and html."""
    table = Table(
        title=TITLE,
        about=(RULE,),
        heads=[Head(title=title, is_name=True) for title in COLUMNS],
        rows=[[Item(getattr(claim, field)) for field in COLUMNS.values()] for claim in found],
        notes=(SOURCE,),
    )
    return {
        "txt": _text(found),
        "md": table.markdown(),
        "csv": csv_text([Claim._fields, *found]),
        "html": render("claims.html", title=TITLE, rule=RULE, source=SOURCE, claims=found),
    }


def _text(found: Sequence[Claim]) -> str:
    """One paragraph per claim."""
    blocks = [TITLE, textwrap.fill(RULE, WIDTH)]
    for number, claim in enumerate(found, 1):
        here = "" if claim.holds == NOT_MEASURED else f"{claim.holds.upper()}: "
        lines = [textwrap.fill(f"{number}. {claim.text}", WIDTH, subsequent_indent="   ")]
        for name, words in (
            ("holds if", claim.rule),
            ("published", f"{claim.holds_published.upper()}: {claim.published}"),
            ("here", f"{here}{claim.measured}"),
        ):
            line = f"   {name:<11}{words}"
            lines.append(textwrap.fill(line, WIDTH, subsequent_indent=" " * 14))
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, textwrap.fill(SOURCE, WIDTH)]) + "\n"
