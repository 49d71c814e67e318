"""The table of claims as text, Markdown, CSV and HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, fields

from driftwise.report.markup import render
from driftwise.report.table import WIDTH, Head, Item, Table, csv_text
from driftwise.reproduce import published
from driftwise.reproduce.claims import Claim
from driftwise.reproduce.intervals import NOT_MEASURED

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


def as_text(found: Sequence[Claim], *, width: int = WIDTH) -> str:
    """One paragraph per claim, in at most `width` columns."""
    blocks = [TITLE, textwrap.fill(RULE, width)]
    for number, claim in enumerate(found, 1):
        here = "" if claim.holds == NOT_MEASURED else f"{claim.holds.upper()}: "
        lines = [textwrap.fill(f"{number}. {claim.text}", width, subsequent_indent="   ")]
        for name, words in (
            ("holds if", claim.rule),
            ("published", f"{claim.holds_published.upper()}: {claim.published}"),
            ("here", f"{here}{claim.measured}"),
        ):
            line = f"   {name:<11}{words}"
            lines.append(textwrap.fill(line, width, subsequent_indent=" " * 14))
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, textwrap.fill(SOURCE, width)]) + "\n"


def as_markdown(found: Sequence[Claim]) -> str:
    """One row per claim."""
    return Table(
        title=TITLE,
        about=(RULE,),
        heads=[Head(title=title, is_name=True) for title in COLUMNS],
        rows=[[Item(getattr(claim, field)) for field in COLUMNS.values()] for claim in found],
        notes=(SOURCE,),
    ).markdown()


def as_html(found: Sequence[Claim]) -> str:
    """A page that loads nothing from elsewhere: one row per claim."""
    return render("claims.html", title=TITLE, rule=RULE, source=SOURCE, claims=found)


def as_csv(found: Sequence[Claim]) -> str:
    """One line per claim, a column for each field."""
    names = [field.name for field in fields(Claim)]
    return csv_text([names, *(list(asdict(claim).values()) for claim in found)])
