"""The comparison table: one row per cell, rendered as text, Markdown and CSV (and on the page)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from driftwise.report.cells import MARK, Setting, Stat, mark, notes_below
from driftwise.report.columns import MARKED, Column, Value, for_people
from driftwise.report.csv_text import csv_text

_LEGEND = (
    "FAA: final average accuracy (%), mean ± sample standard deviation over seeds. "
    "Costs leave evaluation out."
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell, and where it belongs."""

    benchmark: str
    variant: str
    values: tuple[Value, ...]
    """one per column of the table"""
    mark: str = ""
    """stands at what was not adapted"""

    def texts(self, columns: Sequence[Column]) -> list[str]:
        """As a person reads the values."""
        return [
            column.text(value) + (self.mark if column.key in MARKED else "")
            for column, value in zip(columns, self.values, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns and rows; how they look is for the renderings to say."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """what the marks mean"""


def table_of(settings: Sequence[Setting], columns: Sequence[Column] | None = None) -> Table:
    """One row per cell, setting by setting; None: what of the comparison says something."""
    if columns is None:
        columns = for_people([cell for setting in settings for cell in setting.cells])
    rows = [
        Row(
            benchmark=setting.first.benchmark,
            variant=setting.variant,
            values=tuple(column.value(cell) for column in columns),
            mark=mark(cell),
        )
        for setting in settings
        for cell in setting.cells
    ]
    return Table(columns=tuple(columns), rows=tuple(rows), notes=_notes(settings))


def _notes(settings: Sequence[Setting]) -> tuple[str, ...]:
    """What the marks mean, setting by setting if there are several."""
    if len(settings) == 1:
        return tuple(filter(None, [settings[0].not_adapted]))
    named = [
        (f"{setting.title}: {label}", cell)
        for setting in settings
        for label, cell in zip(setting.labels, setting.cells, strict=True)
    ]
    return tuple(filter(None, [notes_below(named)]))


def as_text(table: Table, *, width: int = 120) -> str:
    """Aligned plain text of at most `width` columns, one block per benchmark and variant.

    What all rows of a block share (say, the method) is said once above it. Columns that still do
    not fit go below, with the cell's names repeated.
    """
    blocks = []
    for (benchmark, variant), members in groupby(
        table.rows, key=lambda row: (row.benchmark, row.variant)
    ):
        rows = list(members)
        shared, kept = _lift_shared(table.columns, rows)
        heading = [benchmark, *([variant] if variant else []), *shared]
        blocks.append(_wrap(heading, width))
        blocks.extend(_aligned(part, width) for part in _parts(table.columns, kept, rows, width))
    blocks += [textwrap.fill(line, width) for line in (*table.notes, _LEGEND)]
    return "\n\n".join(blocks) + "\n"


def _lift_shared(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[list[str], list[int]]:
    """Names that are the same in every row, as words, and the indices of the other columns."""
    shared, kept = [], []
    for index, column in enumerate(columns):
        values = {row.values[index] for row in rows if column.names_the_cell}
        if column.names_the_cell and len(values) == 1 and column.key != "adaptation":
            value = values.pop()
            if value is not None or not column.where_known:
                shared.append(f"{column.title} {column.text(value)}")
        else:
            kept.append(index)
    return shared, kept


def _wrap(parts: Sequence[str], width: int) -> str:
    lines = [parts[0][:width]]
    for part in parts[1:]:
        longer = f"{lines[-1]} · {part}"
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part[:width])
    return "\n".join(lines)


Lines = list[list[str]]
"""Text cells of a block, column by column, two heading lines first."""


def _parts(
    columns: Sequence[Column], kept: Sequence[int], rows: Sequence[Row], width: int
) -> list[Lines]:
    """The columns dealt out to as few blocks as fit the width."""
    texts = list(zip(*(row.texts(columns) for row in rows), strict=True))
    cells = {index: _column_cells(columns[index], texts[index], rows, index) for index in kept}
    names = [cells[index] for index in kept if columns[index].names_the_cell]
    parts: list[Lines] = [list(names)]
    for index in kept:
        if columns[index].names_the_cell:
            continue
        if len(parts[-1]) > len(names) and _width_of([*parts[-1], cells[index]]) > width:
            parts.append(list(names))
        parts[-1].append(cells[index])
    return parts


def _column_cells(
    column: Column, shown: Sequence[str], rows: Sequence[Row], index: int
) -> list[str]:
    texts = list(shown)
    if any(text.endswith(MARK) for text in texts):
        texts = [text if text.endswith(MARK) else f"{text} " for text in texts]
    tail = max((len(text.partition(" ± ")[2]) for text in texts), default=0)
    if tail and column.spread:
        # Means stand under means, also where one row has no spread.
        texts = [text if " ± " in text else text + " " * (tail + 3) for text in texts]
    lines = [*column.heading, *texts]
    size = max(map(len, lines))
    if any(isinstance(row.values[index], str) for row in rows):
        return [line.ljust(size) for line in lines]
    return [line.rjust(size) for line in lines]


def _width_of(part: Lines) -> int:
    return sum(len(cells[0]) + 1 for cells in part) - 1


def _aligned(part: Lines, width: int) -> str:
    gap = "  " if _width_of(part) + len(part) - 1 <= width else " "
    lines = [gap.join(cells).rstrip() for cells in zip(*part, strict=True)]
    rule = gap.join("-" * len(cells[0]) for cells in part)
    return "\n".join([*([lines[0]] if lines[0] else []), lines[1], rule, *lines[2:]])


def as_markdown(table: Table) -> str:
    """A GitHub table with the benchmark in front."""
    titles = ["benchmark", *(column.title for column in table.columns)]
    numeric = [not column.names_the_cell for column in table.columns]
    lines = [titles, ["---", *("---:" if right else "---" for right in numeric)]]
    for row in table.rows:
        place = f"{row.benchmark} ({row.variant})" if row.variant else row.benchmark
        lines.append([place, *row.texts(table.columns)])
    grid = "".join(f"| {' | '.join(map(_escape_markdown, line))} |\n" for line in lines)
    return grid + "".join(f"\n{_escape_markdown(note)}\n" for note in table.notes)


def _escape_markdown(text: str) -> str:
    for letter in "\\|<>*_`":
        text = text.replace(letter, f"\\{letter}")
    return text


def as_csv(table: Table) -> str:
    """Full precision; every mean has its standard deviation in a column of its own."""
    has_spread = [not column.names_the_cell for column in table.columns]
    head: list[object] = ["benchmark", "variant"]
    for column, spread in zip(table.columns, has_spread, strict=True):
        head += [column.key, f"{column.key}_sd"] if spread else [column.key]
    lines = [head]
    for row in table.rows:
        line: list[object] = [row.benchmark, row.variant]
        for value, spread in zip(row.values, has_spread, strict=True):
            if spread:
                line += [value.mean, value.sd] if isinstance(value, Stat) else [None, None]
            else:
                line.append(value)
        lines.append(line)
    return csv_text(lines)
