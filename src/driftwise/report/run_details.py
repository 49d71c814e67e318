"""What the page tells of a single run: its verdicts, what it noted, and its configuration."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from driftwise.report.cells import Cell
from driftwise.report.columns import MISSING
from driftwise.report.events import Outcome, outcomes_of
from driftwise.report.read import few
from driftwise.report.run import Run, Verdict, clean

MAX_VERDICTS, MAX_NOTES = 100, 50
"""Verdicts and notes that are told of a run; `result.json` has them all."""
PAGE_VERDICTS, PAGE_NOTES = 5000, 5000
"""The same, of all runs of a page together: each tells as many as the others."""
FEWEST_VERDICTS = 5
"""Verdicts for which a table is worth its heading; fewer are counted."""
UNFOLDED = 100
"""Runs whose names are seen at once."""
MAX_RUNS = 5000
"""Runs that a page tells of one by one."""
LONGEST_CONFIG = 20_000
"""Letters of a configuration that are shown."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A column of the table of verdicts."""

    name: str
    meaning: str
    tell: Callable[[Verdict], str]
    """empty: not known"""


def tell_runs(cells: Sequence[Cell]) -> str:
    """A block of HTML for each run, folded up.

    What the runs of a cell share is told of the first.
    """
    runs = [(run, cell.first) for cell in cells for run in cell.runs]
    shown = runs[:MAX_RUNS]
    num_verdicts = min(MAX_VERDICTS, PAGE_VERDICTS // len(shown))
    num_notes = min(MAX_NOTES, PAGE_NOTES // len(shown))
    told = [
        tell_run(run, as_of=first, num_verdicts=num_verdicts, num_notes=num_notes)
        for run, first in shown
    ]
    if len(told) > UNFOLDED:
        more = f"<summary>{len(told) - UNFOLDED:,} more runs</summary>"
        told[UNFOLDED:] = [f"<details>{more}", *told[UNFOLDED:], "</details>"]
    if len(shown) < len(runs):
        told.append(f'<p class="note">{len(runs) - len(shown):,} more runs are not listed.</p>')
    return "\n".join(told)


def tell_run(
    run: Run,
    *,
    as_of: Run | None = None,
    num_verdicts: int = MAX_VERDICTS,
    num_notes: int = MAX_NOTES,
) -> str:
    """One block of HTML, folded up; as of another run, only where its configuration differs."""
    faa = "unknown" if run.faa is None else f"{run.faa:.1f}"
    name = f"{run.method}, {run.adaptation}, {run.detector}, seed {run.seed}: FAA {faa}"
    if run.not_adapted:
        name += f", {run.not_adapted}"
    notes = "".join(
        f"<li>{escape(note)}</li>" for note in few([*run.warnings, *run.notes], num_notes)
    )
    return (
        f"<details><summary>{escape(name)} <small>({escape(clean(run.folder))})</small></summary>"
        + (f'<ul class="facts">{notes}</ul>' if notes else "")
        + _verdicts(run, num_verdicts)
        + (_config(run) if as_of is None or run is as_of else _differences(run, as_of))
        + "</details>"
    )


def _config(run: Run) -> str:
    versions = ", ".join(f"{key} {value}" for key, value in sorted(run.versions.items()))
    config = json.dumps(run.config, indent=2, sort_keys=True, ensure_ascii=False)
    if len(config) > LONGEST_CONFIG:
        config = f"{config[:LONGEST_CONFIG]}\n… the rest is in result.json"
    return f"<p>{escape(versions)}</p><pre>{escape(config)}</pre>"


def _differences(run: Run, first: Run) -> str:
    """Runs of a cell differ in few settings, and there may be thousands of them."""
    pairs = [(run.config, first.config), (run.versions, first.versions)]
    differ = [
        f"{clean(key)} {clean(mine.get(key))}"
        for mine, theirs in pairs
        for key in sorted({*mine, *theirs})
        if mine.get(key) != theirs.get(key)
    ]
    words = f"As seed {first.seed}, but for: {', '.join(differ) or 'nothing'}."
    return f"<p>{escape(words[:LONGEST_CONFIG])}</p>"


def _verdicts(run: Run, most: int) -> str:
    """A table of the verdicts that say more than that nothing has changed; empty: there is none."""
    told = [
        (verdict, outcome)
        for verdict, outcome in zip(run.verdicts, outcomes_of(run), strict=True)
        if outcome is not Outcome.QUIET
    ]
    if not told:
        return ""
    if most < FEWEST_VERDICTS:
        counts = Counter(outcome for _, outcome in told)
        words = ", ".join(f"{number} {kind.value}" for kind, number in counts.items())
        return f'<p class="note">{words}; all verdicts are in result.json.</p>'
    facts = [fact for fact in FACTS if any(fact.tell(verdict) for verdict, _ in told)]
    head = "".join(
        f'<th scope="col" class="name" title="{escape(meaning)}">{escape(name)}</th>'
        for name, meaning in _NAMES
    ) + "".join(
        f'<th scope="col" title="{escape(fact.meaning)}">{escape(fact.name)}</th>' for fact in facts
    )
    body = "\n".join(_row(run, *each, facts) for each in told[:most])
    left_out = len(told) - most
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
