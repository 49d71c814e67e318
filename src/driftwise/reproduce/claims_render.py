"""The table of claims as text, Markdown, CSV and HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, fields
from string import Template

from driftwise.report import sheet
from driftwise.report.csv_text import csv_text
from driftwise.report.markup import common_style, template, text
from driftwise.report.sheet import Head, Item, Sheet
from driftwise.reproduce import published
from driftwise.reproduce.claims import Claim
from driftwise.reproduce.intervals import NOT_MEASURED

TITLE = "The paper's claims"
RULE = (
    "A claim holds if the whole 95 % interval is on its side of the threshold, does not hold if "
    "the whole interval is on the other, and is undecided otherwise, or if nothing varies. Only "
    "runs of one scale and equal settings are laid beside each other, paired by place and seed; "
    "the interval is Student's over cells, each a mean over seeds (over seeds where there is one "
    "cell)."
)
SOURCE = f"Published numbers: {published.SOURCE}."


def as_text(found: Sequence[Claim], *, width: int = sheet.WIDTH) -> str:
    """One paragraph per claim, in at most `width` columns."""
    blocks = [TITLE, textwrap.fill(RULE, width)]
    for number, claim in enumerate(found, 1):
        lines = [
            textwrap.fill(f"{number}. {claim.text}", width, subsequent_indent="   "),
            *(
                textwrap.fill(f"   {name:<11}{said}", width, subsequent_indent=" " * 14)
                for name, said in (
                    ("holds if", claim.rule),
                    ("published", f"{claim.holds_published.upper()}: {claim.published}"),
                    ("here", _here(claim)),
                )
            ),
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, textwrap.fill(SOURCE, width)]) + "\n"


def _here(claim: Claim) -> str:
    missing = claim.holds == NOT_MEASURED
    return claim.measured if missing else f"{claim.holds.upper()}: {claim.measured}"


def as_markdown(found: Sequence[Claim]) -> str:
    """One row per claim."""
    return sheet.as_markdown(_sheet(found))


def as_html(found: Sequence[Claim]) -> str:
    """A page that asks nobody for anything: one row per claim."""
    rows = "\n".join(_row(number, claim) for number, claim in enumerate(found, 1))
    heads = "".join(f'<th scope="col">{title}</th>' for title in ("claim", "published", "here"))
    return Template(template("claims.html")).substitute(
        style=common_style(),
        title=text(TITLE),
        rule=text(RULE),
        source=text(SOURCE),
        heads=heads,
        rows=rows,
    )


def _row(number: int, claim: Claim) -> str:
    cells = (
        (f"{number}. {claim.text}", f"holds if {claim.rule}"),
        (claim.holds_published.upper(), claim.published),
        (claim.holds.upper(), claim.measured),
    )
    return (
        "<tr>"
        + "".join(f"<td><strong>{text(a)}</strong><p>{text(b)}</p></td>" for a, b in cells)
        + "</tr>"
    )


def as_csv(found: Sequence[Claim]) -> str:
    """One line per claim, a column for each field."""
    names = [field.name for field in fields(Claim)]
    return csv_text([names, *(list(asdict(claim).values()) for claim in found)])


def _sheet(found: Sequence[Claim]) -> Sheet:
    titles = ("claim", "holds if", "published", "the paper's tables", "here", "measured here")
    return Sheet(
        title=TITLE,
        about=(RULE,),
        heads=tuple(Head(title=title, is_name=True) for title in titles),
        rows=tuple(
            tuple(
                Item(text=said, key=said)
                for said in (
                    *(claim.text, claim.rule, claim.holds_published, claim.published),
                    *(claim.holds, claim.measured),
                )
            )
            for claim in found
        ),
        notes=(SOURCE,),
    )
