"""The verdicts of a run that report more than that nothing has changed, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from driftwise.report.events import Outcome, outcomes_of
from driftwise.report.run import Run, Verdict
from driftwise.report.table import MISSING, Head, Item, Table

MAX_VERDICTS = 100
"""Verdicts of a run that a page shows; `result.json` has them all."""
FEWEST_VERDICTS = 5
"""Verdicts for which a table is worth its heading; fewer are counted."""


@dataclass(frozen=True, kw_only=True)
class Fact(Head):
    """A column of the table, shown where it is known of some verdict."""

    read: Callable[[Verdict], str]
    """empty: not known"""


def _number(value: float | None, form: str = ".2g") -> str:
    return "" if value is None else format(value, form)


NAMES = (
    Head(title="task", meaning="The check comes before the task is learned.", is_name=True),
    Head(title="class", meaning="The class that was checked.", is_name=True),
    Head(title="verdict", meaning="The detector's verdict, compared with the truth.", is_name=True),
)
FACTS = (
    Fact(title="score", meaning="The test statistic.", read=lambda v: _number(v.score)),
    Fact(
        title="p-value",
        meaning="How often two samples of one distribution would differ as much.",
        read=lambda v: _number(v.p_value),
    ),
    Fact(
        title="p by test",
        meaning="Before the evidence of several tests was merged.",
        read=lambda v: ", ".join(f"{name} {value:.2g}" for name, value in v.p_values),
    ),
    Fact(
        title="threshold",
        meaning="Drifted exactly where the p-value is at most this (or the score above it, where"
        " max_statistic is set).",
        read=lambda v: _number(v.threshold),
    ),
    Fact(
        title="harm, counted",
        meaning="Points of accuracy lost on the class, counted by labels of monitored samples, with"
        " the standard error.",
        read=lambda v: v.harm_words,
    ),
    Fact(
        title="harm, estimated",
        meaning="The same, estimated without labels.",
        read=lambda v: _number(v.harm_unlabelled, ".1f"),
    ),
    Fact(
        title="fraction drifted",
        meaning="At least this fraction of the current samples has drifted, with its standard error.",
        read=lambda v: v.share_words,
    ),
    Fact(
        title="samples drifted",
        meaning="Current samples that more likely than not have drifted.",
        read=lambda v: "" if v.share is None else f"{v.num_moved} of {v.num_current}",
    ),
)


def verdict_table(run: Run, most: int = MAX_VERDICTS) -> Table | None:
    """The verdicts on classes that drifted, were flagged or could not be tested; None: no such.

    Where fewer than FEWEST_VERDICTS may be shown, they are counted and the table has no rows.
    """
    outcomes = zip(run.verdicts, outcomes_of(run), strict=True)
    found = [(verdict, outcome) for verdict, outcome in outcomes if outcome is not Outcome.QUIET]
    if not found:
        return None
    if most < FEWEST_VERDICTS:
        counts = Counter(outcome for _, outcome in found)
        words = ", ".join(f"{number} {kind.value}" for kind, number in counts.items())
        return Table(heads=(), rows=(), about=[f"{words}; all verdicts are in result.json."])
    shown = found[:most]
    left_out = len(found) - len(shown)
    more = f"; {left_out} more are in result.json" if left_out else ""
    facts = [fact for fact in FACTS if any(fact.read(verdict) for verdict, _ in shown)]
    return Table(
        title="Verdicts",
        about=[
            f"Verdicts on classes that drifted, were flagged or could not be tested{more}. Of "
            f"{len(run.verdicts)} verdicts in all, {len(run.verdicts) - len(found)} found an "
            "unchanged class unchanged."
        ],
        heads=[*NAMES, *facts],
        rows=[
            [
                Item(str(verdict.task), verdict.task),
                Item(name := run.class_names[verdict.label], name),
                Item(text := _judged(verdict, outcome), text, outcome.name.lower()),
                *(Item(fact.read(verdict) or MISSING) for fact in facts),
            ]
            for verdict, outcome in shown
        ],
    )


def _judged(verdict: Verdict, outcome: Outcome) -> str:
    words = f"{outcome.value}, spared" if verdict.spared else outcome.value
    return f"{words}: {verdict.reason}" if verdict.reason else words
