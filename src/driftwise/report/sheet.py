"""A grid of short texts with a heading and notes, as plain text, Markdown, LaTeX and HTML."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from driftwise.report.columns import MISSING

WIDTH = 120


@dataclass(frozen=True, kw_only=True)
class Head:
    """The heading of one column."""

    title: str
    group: str = ""
    """stands once above neighbouring columns that share it"""
    meaning: str = ""
    """one line for a person who wonders"""
    is_name: bool = False
    """aligned left, sorted as a word, and repeated where a table is broken into parts"""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One entry."""

    text: str
    key: str | float | None = None
    """what it is sorted by; None: last"""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What is rendered."""

    title: str
    about: tuple[str, ...]
    """lines that stand between title and grid"""
    heads: tuple[Head, ...]
    rows: tuple[tuple[Item, ...], ...]
    breaks: frozenset[int] = frozenset()
    """rows before which a line is drawn"""
    notes: tuple[str, ...] = ()
    """lines that stand below the grid"""


def as_text(sheet: Sheet, *, width: int = WIDTH) -> str:
    """Plain text of at most `width` columns; what does not fit beside stands below."""
    texts = [[row[column].text for row in sheet.rows] for column in range(len(sheet.heads))]
    sizes = [
        max(map(len, [head.title, *column])) if column else len(head.title)
        for head, column in zip(sheet.heads, texts, strict=True)
    ]
    parts = [_part(sheet, texts, sizes, columns) for columns in _deal(sheet.heads, sizes, width)]
    above, below = (
        [textwrap.fill(line, width, subsequent_indent="  ") for line in lines]
        for lines in ((sheet.title, *sheet.about), sheet.notes)
    )
    return (
        "\n\n".join(
            "\n".join(block) for block in (above, *([part] for part in parts), below) if block
        ).rstrip()
        + "\n"
    )


def _deal(heads: Sequence[Head], sizes: Sequence[int], width: int) -> list[list[int]]:
    """Columns dealt out to as few parts as fit, names in each, groups kept together."""
    names = [index for index, head in enumerate(heads) if head.is_name]
    parts = [list(names)]
    others = [index for index, head in enumerate(heads) if not head.is_name]
    for _, members in groupby(others, key=lambda index: heads[index].group or index):
        group = list(members)
        wider = sum(sizes[index] + 2 for index in [*parts[-1], *group]) - 2
        if len(parts[-1]) > len(names) and wider > width:
            parts.append(list(names))
        parts[-1] += group
    return parts


def _part(
    sheet: Sheet, texts: Sequence[Sequence[str]], sizes: Sequence[int], columns: Sequence[int]
) -> str:
    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(sizes[column]) if sheet.heads[column].is_name else cell.rjust(sizes[column])
            for column, cell in zip(columns, cells, strict=True)
        ]
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * sizes[column] for column in columns)
    lines = [line([sheet.heads[column].title for column in columns]), rule]
    groups = _groups([sheet.heads[column].group for column in columns])
    if any(name for name, _ in groups):
        above, places = "", iter(columns)
        for name, count in groups:
            size = sum(sizes[next(places)] + 2 for _ in range(count))
            above += name.center(size - 2)[: size - 2] + "  "
        lines.insert(0, above.rstrip())
    for index in range(len(sheet.rows)):
        if index in sheet.breaks:
            lines.append("")
        lines.append(line([texts[column][index] for column in columns]))
    return "\n".join(lines)


def _groups(names: Sequence[str]) -> list[tuple[str, int]]:
    """Neighbours that share a name, with how many they are."""
    return [(name, len(list(members))) for name, members in groupby(names)]


def as_markdown(sheet: Sheet) -> str:
    """GitHub's tables; title and notes are paragraphs and a list."""
    heads = [" ".join(filter(None, (head.group, head.title))) for head in sheet.heads]
    lines = [heads, ["---" if head.is_name else "---:" for head in sheet.heads]]
    lines += [[_one_spaced(item.text) for item in row] for row in sheet.rows]
    grid = [f"| {' | '.join(map(escape_markdown, line))} |" for line in lines]
    title, *about = map(escape_markdown, (sheet.title, *sheet.about))
    notes = [f"- {escape_markdown(note)}" for note in sheet.notes]
    blocks = [f"**{title}**", *about, "\n".join(grid), *(["\n".join(notes)] if notes else [])]
    return "\n\n".join(blocks) + "\n"


def _one_spaced(text: str) -> str:
    """Without the blanks that align plain text."""
    return " ".join(text.split())


def as_latex(sheet: Sheet) -> str:
    r"""A `table` for a document that uses the package booktabs."""
    heads, groups = sheet.heads, _groups([head.group for head in sheet.heads])
    spanned, rules, first = [], [], 1
    for name, count in groups:
        spanned.append(rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(name)}}}")
        if name:
            rules.append(rf"\cmidrule(lr){{{first}-{first + count - 1}}}")
        first += count
    lines = [
        r"\begin{table}",
        r"\centering\scriptsize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{escape_latex('. '.join((sheet.title, *sheet.about)))}}}",
        rf"\begin{{tabular}}{{{''.join('l' if head.is_name else 'r' for head in heads)}}}",
        r"\toprule",
    ]
    if rules:
        lines += [" & ".join(spanned) + r" \\", " ".join(rules)]
    lines += [_latex_row([head.title for head in heads]), r"\midrule"]
    for index, row in enumerate(sheet.rows):
        lines += [r"\addlinespace"] if index in sheet.breaks else []
        lines.append(_latex_row([_one_spaced(item.text) for item in row]))
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    lines += [rf"{escape_latex(note)}\par" for note in sheet.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    # An empty group before a bracket: `\\ [` would read it as a length.
    return " & ".join(map(escape_latex, cells)).replace("[", "{[}").replace("]", "{]}") + r" \\"


def as_html(sheet: Sheet) -> str:
    """A fragment for a page: a table that `page.html` knows how to sort, and its notes."""
    head = "".join(
        f'<th scope="col"{_class(head)}><button type="button" title="{escape(head.meaning)}">'
        f"{escape(' '.join(filter(None, (head.group, head.title))))}</button></th>"
        for head in sheet.heads
    )
    rows = "\n".join(
        "<tr>" + "".join(map(_html_cell, sheet.heads, row)) + "</tr>" for row in sheet.rows
    )
    about = "".join(f'<p class="note">{escape(line)}</p>' for line in sheet.about)
    notes = "".join(f"<li>{escape(note)}</li>" for note in sheet.notes)
    return (
        f"<h3>{escape(sheet.title)}</h3>{about}\n"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(sheet.title)}">'
        f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>\n{rows}\n'
        "</tbody></table></div>\n" + (f'<ul class="note">{notes}</ul>\n' if notes else "")
    )


def _class(head: Head, extra: str = "") -> str:
    names = " ".join(filter(None, ("name" if head.is_name else "", extra)))
    return f' class="{names}"' if names else ""


def _html_cell(head: Head, item: Item) -> str:
    long = "long" if len(item.text) > 24 else ""
    key = "" if item.key is None else escape(str(item.key))
    return f'<td{_class(head, long)} data-sort="{key}">{escape(item.text)}</td>'


_MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\|<>*_`[]#"})


def escape_markdown(text: str) -> str:
    """A text that Markdown shows as it is.

    >>> escape_markdown("a|b*")
    'a\\\\|b\\\\*'
    """
    return text.translate(_MARKDOWN)


_LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        '"': "''",
        "±": r"$\pm$",
        "·": r"$\cdot$",
        MISSING: "--",
        "…": r"\dots{}",
    }
)


def escape_latex(text: str) -> str:
    r"""A text that LaTeX shows as it is.

    >>> escape_latex("50 % of a_b")
    '50 \\% of a\\_b'
    """
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", text.translate(_LATEX))
