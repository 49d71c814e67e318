"""One description of a table, and its forms: terminal text, CSV, Markdown, LaTeX and HTML."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from driftwise.report.cells import MARK, Stat
from driftwise.report.markup import Markup, escape, printable, render

WIDTH = 120
MISSING = "–"
LONG = 24
"""Letters from which an entry on a page is broken into lines."""

Value = str | int | float | Stat | None


@dataclass(frozen=True, kw_only=True)
class Head:
    """The heading of one column."""

    title: str
    group: str = ""
    """stands once above neighbouring columns that share it"""
    meaning: str = ""
    """one line of explanation, shown on hover"""
    is_name: bool = False
    """the column names the row; it is repeated where a table is broken into parts"""
    key: str = ""
    """name in CSV; empty: the title"""
    has_sd: bool = False
    """values are Stats, whose standard deviation has a CSV column of its own"""
    only_csv: bool = False

    @property
    def whole(self) -> str:
        """Group and title in one line."""
        return " ".join(filter(None, (self.group, self.title)))


class Item(NamedTuple):
    """One entry of a table."""

    text: str
    value: Value = None
    """what CSV holds and a page sorts by; None: not known"""
    kind: str = ""
    """CSS class"""
    shade: float | None = None
    """strength of the background on a page, 0 to 1; None: none"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Headings, rows of items, and the sentences around them."""

    heads: Sequence[Head]
    rows: Sequence[Sequence[Item]]
    title: str = ""
    about: Sequence[str] = ()
    """lines between title and grid"""
    breaks: Collection[int] = ()
    """rows before which a line is left free"""
    notes: Sequence[str] = ()
    """lines below the grid"""
    folded: Collection[int] = ()
    """rows that a page hides until they are asked for"""
    folded_words: str = ""
    """what those rows are"""

    @property
    def columns(self) -> list[int]:
        """Indices of the columns that people see."""
        return [index for index, head in enumerate(self.heads) if not head.only_csv]

    @cached_property
    def left(self) -> frozenset[int]:
        """Indices of the columns of words, which are aligned left and sorted as words."""
        found = set()
        for column, items in zip(self.columns, zip(*self._shown_rows(), strict=True), strict=False):
            values = {type(item.value) for item in items}
            if str in values or (self.heads[column].is_name and values == {type(None)}):
                found.add(column)
        return frozenset(found)

    def text(self, width: int = WIDTH) -> str:
        """Plain text of at most `width` columns; columns that do not fit stand below."""
        columns = {column: self._padded(column) for column in self.columns}
        blocks = [_filled((self.title, *self.about), width)]
        blocks += [self._part(part, columns, width) for part in self._parts(columns, width)]
        blocks.append(_filled(self.notes, width))
        return "\n\n".join(filter(None, blocks)).rstrip() + "\n"

    def _padded(self, column: int) -> list[str]:
        """The title and the texts of a column, all of one width."""
        left = column in self.left
        texts = [row[column].text for row in self.rows]
        lines = [self.heads[column].title, *(texts if left else _means_aligned(texts))]
        size = max(map(len, lines))
        return [line.ljust(size) if left else line.rjust(size) for line in lines]

    def _parts(self, columns: dict[int, list[str]], width: int) -> list[list[int]]:
        """Columns dealt out to as few parts as fit: names in each, groups kept together."""
        names = [column for column in columns if self.heads[column].is_name]
        others = [column for column in columns if not self.heads[column].is_name]
        if _width([columns[c] for c in columns], gap=1) <= width:
            return [names + others]
        parts = [list(names)]
        for _, members in groupby(others, key=lambda column: self.heads[column].group or column):
            group = list(members)
            wider = _width([columns[column] for column in [*parts[-1], *group]], gap=2)
            if len(parts[-1]) > len(names) and wider > width:
                parts.append(list(names))
            parts[-1] += group
        return parts

    def _part(self, part: list[int], columns: dict[int, list[str]], width: int) -> str:
        padded = [columns[column] for column in part]
        gap = "  " if _width(padded, gap=2) <= width else " "
        titles, *rows = [gap.join(line).rstrip() for line in zip(*padded, strict=True)]
        lines = [titles, gap.join("-" * len(cells[0]) for cells in padded)]
        above, start = "", 0
        for name, count in _runs(self.heads[column].group for column in part):
            size = _width(padded[start : start + count], gap=len(gap))
            above += name.center(size)[:size] + gap
            start += count
        if above.strip():
            lines.insert(0, above.rstrip())
        for index, row in enumerate(rows):
            lines += ["", row] if index in self.breaks else [row]
        return "\n".join(lines)

    def csv(self) -> str:
        """Nothing rounded; the standard deviation of a mean in a column of its own."""
        lines: list[list[object]] = [[] for _ in range(1 + len(self.rows))]
        for column, head in enumerate(self.heads):
            name, values = head.key or head.title, [row[column].value for row in self.rows]
            parts = {name: [v.mean if isinstance(v, Stat) else v for v in values]}
            if head.has_sd:
                parts[f"{name}_sd"] = [v.sd if isinstance(v, Stat) else None for v in values]
            for title, cells in parts.items():
                for line, cell in zip(lines, [title, *cells], strict=True):
                    line.append(cell)
        return csv_text(lines)

    def markdown(self) -> str:
        """A table as GitHub reads it; title and lines about it above, notes as a list below."""
        heads = [self.heads[column] for column in self.columns]
        lines = [[head.whole for head in heads]]
        lines.append(["---" if head.is_name else "---:" for head in heads])
        lines += [[" ".join(item.text.split()) for item in row] for row in self._shown_rows()]
        grid = "\n".join(f"| {' | '.join(map(escape_markdown, line))} |" for line in lines)
        title = f"**{escape_markdown(self.title)}**" if self.title else ""
        notes = "\n".join(f"- {escape_markdown(note)}" for note in self.notes)
        blocks = [title, *map(escape_markdown, self.about), grid, notes]
        return "\n\n".join(filter(None, blocks)) + "\n"

    def latex(self) -> str:
        """A `table` environment for a document that uses the package booktabs."""
        heads = [self.heads[column] for column in self.columns]
        spanned, rules, first = [], [], 1
        for name, count in _runs(head.group for head in heads):
            spanned.append(rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(name)}}}")
            rules += [rf"\cmidrule(lr){{{first}-{first + count - 1}}}"] if name else []
            first += count
        lines = [
            r"\begin{table}",
            r"\centering\scriptsize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{escape_latex('. '.join((self.title, *self.about)))}}}",
            rf"\begin{{tabular}}{{{''.join('l' if head.is_name else 'r' for head in heads)}}}",
            r"\toprule",
            *([" & ".join(spanned) + r" \\", " ".join(rules)] if rules else []),
            _latex_row(head.title for head in heads),
            r"\midrule",
        ]
        for index, row in enumerate(self._shown_rows()):
            lines += [r"\addlinespace"] if index in self.breaks else []
            lines.append(_latex_row(" ".join(item.text.split()) for item in row))
        lines += [r"\bottomrule", r"\end{tabular}", ""]
        lines += [rf"{escape_latex(note)}\par" for note in self.notes]
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    def _shown_rows(self) -> Iterable[Sequence[Item]]:
        """Of each row, what people see."""
        columns = self.columns
        if len(columns) == len(self.heads):
            return self.rows
        return [[row[column] for column in columns] for row in self.rows]

    def html(self) -> Markup:
        """A fragment for a page: title, sortable grid, notes."""
        shown = [row for place, row in enumerate(self.rows) if place not in self.folded]
        hidden = [row for place, row in enumerate(self.rows) if place in self.folded]
        return render(
            "fragment.html", table=replace(self, rows=shown), folded=replace(self, rows=hidden)
        )

    def html_heads(self) -> list[tuple[Head, str]]:
        """The headings that people see, each with its CSS class."""
        return [(self.heads[c], "name" if c in self.left else "") for c in self.columns]

    def html_body(self, *, row_heads: bool, sortable: bool, labelled: bool = False) -> Markup:
        """The rows, whose first cell may name them; no template, for the sake of many cells.

        `labelled`: each entry carries its heading, for screens too narrow for columns.
        """
        heads = [escape(printable(self.heads[column].whole)) for column in self.columns]
        labels = [f' data-label="{head}"' if labelled else "" for head in heads]
        names = ["name" if column in self.left else "" for column in self.columns]
        rows = self._shown_rows()
        texts = iter(_escaped([item.text for row in rows for item in row]))
        lines = []
        for row in rows:
            cells = []
            for name, label, (text, value, kind, shade) in zip(names, labels, row, strict=True):
                kinds = f"{name} {kind}" if name and kind else name or kind
                if len(text) > LONG:
                    kinds = f"{kinds} long".lstrip()
                attributes = f' class="{kinds}"' if kinds else ""
                if sortable:
                    key = value.mean if isinstance(value, Stat) else value
                    attributes += f' data-sort="{"" if key is None else escape(printable(key))}"'
                attributes += label
                if shade:
                    attributes += f' style="--share:{shade}"'
                cells.append(f"<td{attributes}>{next(texts)}</td>")
            if row_heads:
                cells[0] = f'<th scope="row"{cells[0][3:-5]}</th>'
            lines.append(f"<tr>{''.join(cells)}</tr>\n")
        return Markup("".join(lines))


def _escaped(texts: list[str]) -> list[str]:
    """Each text as HTML shows it; in one step, because a step per cell takes longer than all else."""
    joined = "\n".join(texts)
    if joined.count("\n") >= len(texts) or not joined.replace("\n", "").isprintable():
        return [str(escape(printable(text))) for text in texts]
    return str(escape(joined)).split("\n")


def _filled(lines: Iterable[str], width: int) -> str:
    return "\n".join(textwrap.fill(line, width, subsequent_indent="  ") for line in lines if line)


def _width(columns: Sequence[Sequence[str]], gap: int) -> int:
    return sum(len(column[0]) + gap for column in columns) - gap


def _runs(names: Iterable[str]) -> list[tuple[str, int]]:
    """Neighbours that share a name, with how many they are."""
    return [(name, len(list(members))) for name, members in groupby(names)]


_NUMBER_PARTS = re.compile(
    rf"(-?[\d.]+)( ± [\d.]+)?( \(-?[\d.]+\))?((?:{re.escape(MARK)})?(?: \[\d+\])?)"
)


def _means_aligned(texts: Sequence[str]) -> list[str]:
    """Means below means, and deviations below deviations.

    >>> _means_aligned(["90.0 ± 2.8", "7.5", "71.5 ± 10.0*"])
    ['90.0 ± 2.8  ', '7.5        ', '71.5 ± 10.0*']
    """
    matches = [_NUMBER_PARTS.fullmatch(text) for text in texts]
    split = [match.groups("") if match else None for match in matches]
    known = [parts for parts in split if parts]
    sizes = [max((len(parts[place]) for parts in known), default=0) for place in range(4)]
    return [
        text
        if parts is None
        else parts[0]
        + parts[1].ljust(sizes[1])
        + parts[2].rjust(sizes[2])
        + parts[3].ljust(sizes[3])
        for text, parts in zip(texts, split, strict=True)
    ]


_SIGNS = "=+\\-@\u2212\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20"
"""What begins a formula, the full-width and small forms included."""

# A cell begins at its start, and after what a spreadsheet of another country takes for a separator.
# Spaces and quotes before a formula do not stop every spreadsheet.
_FORMULA = re.compile(
    f"(?:^|(?<=[;\t\n]))(?=[\\s\"'`\u2018\u2019\u201c\u201d]*[{_SIGNS}])|^(?=[\t\n])"
)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    """Lines of cells as CSV; None is an empty cell, numbers are written in full.

    A text that a spreadsheet could run as a formula gets an apostrophe in front of it.

    >>> csv_text([["=1+1", -1.5, None, "a-b"]])
    "'=1+1,-1.5,,a-b\\n"
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for line in lines:
        writer.writerow([_csv_cell(cell) if isinstance(cell, str) else cell for cell in line])
    return file.getvalue()


def _csv_cell(cell: str) -> str:
    # The writer puts quotes around a line feed only; a bare carriage return would end the line.
    return cell if _NUMBER.fullmatch(cell) else _FORMULA.sub("'", cell.replace("\r", "\n"))


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


def _latex_row(cells: Iterable[str]) -> str:
    # An empty group around brackets: `\\ [` would read one as a length.
    return " & ".join(map(escape_latex, cells)).replace("[", "{[}").replace("]", "{]}") + r" \\"
