"""What the page tells of a single run: its verdicts, what it noted, and its configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from recollect.report.columns import MISSING
from recollect.report.events import Outcome, outcomes_of
from recollect.report.run import Run, Verdict, clean

MAX_VERDICTS = 100
"""Rows of a table of verdicts; `result.json` has them all."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A column of the table of verdicts."""

    name: str
    meaning: str
    tell: Callable[[Verdict], str]
    """empty: not known"""


def tell_run(run: Run) -> str:
    """One block of HTML, folded up."""
    faa = "unknown" if run.faa is None else f"{run.faa:.1f}"
    name = f"{run.method}, {run.adaptation}, {run.detector}, seed {run.seed}: FAA {faa}"
    if run.not_adapted:
        name += f", {run.not_adapted}"
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*run.warnings, *run.notes))
    versions = ", ".join(f"{key} {clean(value)}" for key, value in sorted(run.versions.items()))
    config = json.dumps(run.config, indent=2, sort_keys=True, ensure_ascii=False)
    return (
        f"<details><summary>{escape(name)} <small>({escape(clean(run.folder))})</small></summary>"
        + (f'<ul class="facts">{notes}</ul>' if notes else "")
        + _verdicts(run)
        + f"<p>{escape(versions)}</p><pre>{escape(config)}</pre></details>"
    )


def _verdicts(run: Run) -> str:
    """A table of the verdicts that say more than that nothing has changed; empty: there is none."""
    told = [
        (verdict, outcome)
        for verdict, outcome in zip(run.verdicts, outcomes_of(run), strict=True)
        if outcome is not Outcome.QUIET
    ]
    if not told:
        return ""
    facts = [fact for fact in FACTS if any(fact.tell(verdict) for verdict, _ in told)]
    head = "".join(
        f'<th scope="col" class="name" title="{escape(meaning)}">{escape(name)}</th>'
        for name, meaning in _NAMES
    ) + "".join(
        f'<th scope="col" title="{escape(fact.meaning)}">{escape(fact.name)}</th>' for fact in facts
    )
    body = "\n".join(_row(run, *each, facts) for each in told[:MAX_VERDICTS])
    left_out = len(told) - MAX_VERDICTS
    more = f"; {left_out} more are in result.json" if left_out > 0 else ""
    num_quiet = len(run.verdicts) - len(told)
    return (
        f'<p class="note">Verdicts on classes that drifted, were flagged or could not be tested'
        f"{more}. Of {len(run.verdicts)} verdicts in all, {num_quiet} found an unchanged class "
        "unchanged.</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Verdicts"><table class="plain">'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _row(run: Run, verdict: Verdict, outcome: Outcome, facts: Sequence[Fact]) -> str:
    said = f"{outcome.value}, spared" if verdict.spared else outcome.value
    words = [str(verdict.task), run.class_names[verdict.label], said]
    if verdict.reason:
        words[-1] += f": {verdict.reason}"
    cells = [f'<td class="name">{escape(word)}</td>' for word in words]
    cells += [f"<td>{escape(fact.tell(verdict) or MISSING)}</td>" for fact in facts]
    return f"<tr>{''.join(cells)}</tr>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


_NAMES = (
    ("task", "The check comes before the task is learned."),
    ("class", "The class that was checked."),
    ("verdict", "What the detector said, in the light of the truth."),
)

FACTS = (
    Fact(name="score", meaning="The test statistic.", tell=lambda v: _number(v.score)),
    Fact(
        name="p-value",
        meaning="How often two samples of one distribution would differ as much.",
        tell=lambda v: _number(v.p_value),
    ),
    Fact(
        name="p by test",
        meaning="Before the evidence of several tests was merged.",
        tell=lambda v: ", ".join(f"{name} {value:.2g}" for name, value in v.p_values),
    ),
    Fact(
        name="threshold",
        meaning="Drifted exactly where the p-value is at most this (or the score above it, where"
        " max_statistic is set).",
        tell=lambda v: _number(v.threshold),
    ),
    Fact(
        name="harm, counted",
        meaning="Points of accuracy lost on the class, counted by labels of watched rows, with"
        " the standard error.",
        tell=lambda v: v.harm_words,
    ),
    Fact(
        name="harm, estimated",
        meaning="The same, estimated without labels.",
        tell=lambda v: "" if v.harm_unlabelled is None else f"{v.harm_unlabelled:.1f}",
    ),
    Fact(
        name="share moved",
        meaning="At least this share of the current rows looks new, with its standard error.",
        tell=lambda v: v.share_words,
    ),
    Fact(
        name="rows moved",
        meaning="Current rows that more likely than not look new.",
        tell=lambda v: "" if v.share is None else f"{v.num_moved} of {v.num_current}",
    ),
)
