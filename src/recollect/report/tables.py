"""The comparison table: one row per cell, rendered as text, Markdown and CSV (and on the page)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from recollect.report.cells import Cell, Setting, Stat
from recollect.report.run import Run

Value = str | int | Stat | None
MISSING = "–"


@dataclass(frozen=True, kw_only=True)
class Column:
    """What one column says about a cell."""

    key: str
    """its name in CSV"""
    heading: tuple[str, str]
    """two short lines; the first may be empty"""
    meaning: str
    """one line for a person who wonders"""
    value: Callable[[Cell], Value]
    show: Callable[[float], str] = str
    """how a number is printed"""
    spread: bool = False
    """whether the standard deviation is printed beside the mean"""
    names_the_cell: bool = False

    @property
    def title(self) -> str:
        """The heading in one line."""
        return " ".join(part for part in self.heading if part)

    def text(self, value: Value) -> str:
        """A value as a person reads it."""
        if value is None:
            return MISSING
        if not isinstance(value, Stat):
            return str(value)
        if self.spread and value.sd is not None:
            return f"{self.show(value.mean)} ± {self.show(value.sd)}"
        return self.show(value.mean)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell, and where it belongs."""

    benchmark: str
    variant: str
    values: tuple[Value, ...]
    """one per column of the table"""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns and rows; how they look is for the renderings to say."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def compact(value: float) -> str:
    """Three digits or all that stand before the point, so that costs of any size stay readable.

    >>> [compact(x) for x in (0, 0.0123, 7.26, 48.33, 40.0, 1234.6)]
    ['0', '0.012', '7.3', '48.3', '40', '1235']
    """
    if value == round(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def _one_decimal(value: float) -> str:
    return f"{value:.1f}"


def _two_decimals(value: float) -> str:
    return f"{value:.2f}"


def _over_seeds(read: Callable[[Run], float | None]) -> Callable[[Cell], Value]:
    return lambda cell: cell.stat(read)


def _gigaflops(run: Run) -> float | None:
    flops = run.cost(run.flops)
    return None if flops is None else flops / 1e9


COMPARISON = (
    Column(
        key="method",
        heading=("", "method"),
        meaning="How the network learns from the stream and its memory.",
        value=lambda cell: cell.first.method,
        names_the_cell=True,
    ),
    Column(
        key="adaptation",
        heading=("", "adaptation"),
        meaning="What is done about a class that has drifted.",
        value=lambda cell: cell.adaptation,
        names_the_cell=True,
    ),
    Column(
        key="detector",
        heading=("", "detector"),
        meaning="What says that a class has drifted.",
        value=lambda cell: cell.detector,
        names_the_cell=True,
    ),
    Column(
        key="buffer_size",
        heading=("", "buffer"),
        meaning="Rows that the memory can hold.",
        value=lambda cell: cell.first.buffer_size,
        names_the_cell=True,
    ),
    Column(
        key="num_drifts",
        heading=("", "drifts"),
        meaning="Drift events in the stream.",
        value=lambda cell: cell.first.num_drifts,
        names_the_cell=True,
    ),
    Column(
        key="seeds",
        heading=("", "seeds"),
        meaning="Runs behind this row, one per seed.",
        value=lambda cell: len(cell.runs),
        names_the_cell=True,
    ),
    Column(
        key="faa",
        heading=("", "FAA"),
        meaning="Final average accuracy over all tasks in percent, mean ± sample deviation over seeds.",
        value=_over_seeds(lambda run: run.faa),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="forgetting",
        heading=("for-", "getting"),
        meaning="How far a task fell from its best accuracy, in points, averaged over tasks.",
        value=_over_seeds(lambda run: run.forgetting),
        show=_one_decimal,
    ),
    Column(
        key="faa_drifted",
        heading=("FAA", "drifted"),
        meaning="Final accuracy of the classes that drifted, in percent.",
        value=_over_seeds(lambda run: run.faa_drifted),
        show=_one_decimal,
    ),
    Column(
        key="faa_stable",
        heading=("FAA", "stable"),
        meaning="Final accuracy of the classes that never drifted, in percent.",
        value=_over_seeds(lambda run: run.faa_stable),
        show=_one_decimal,
    ),
    Column(
        key="labels_adaptation",
        heading=("labels", "adapt"),
        meaning="Labels that the adaptation asked for.",
        value=_over_seeds(lambda run: run.labels.get("adaptation")),
        show=compact,
    ),
    Column(
        key="labels_monitoring",
        heading=("labels", "watch"),
        meaning="Labels that sorted the monitored rows by class.",
        value=_over_seeds(lambda run: run.labels.get("monitoring")),
        show=compact,
    ),
    Column(
        key="tpr",
        heading=("", "TPR"),
        meaning="Share of the drifted classes that were found at once.",
        value=_over_seeds(lambda run: run.detection.get("tpr")),
        show=_two_decimals,
    ),
    Column(
        key="fpr",
        heading=("", "FPR"),
        meaning="Share of the checks of unchanged classes that raised an alarm.",
        value=_over_seeds(lambda run: run.detection.get("fpr")),
        show=_two_decimals,
    ),
    Column(
        key="delay",
        heading=("", "delay"),
        meaning="Tasks from a drift to its discovery, over the drifts that were found.",
        value=_over_seeds(lambda run: run.detection.get("delay")),
        show=_two_decimals,
    ),
    Column(
        key="seconds",
        heading=("", "seconds"),
        meaning="Wall-clock seconds of training, detection and adaptation.",
        value=_over_seeds(lambda run: run.cost(run.seconds)),
        show=compact,
    ),
    Column(
        key="gflops",
        heading=("", "GFLOPs"),
        meaning="10⁹ floating-point operations of training, detection and adaptation.",
        value=_over_seeds(_gigaflops),
        show=compact,
    ),
)

FURTHER = (
    Column(
        key="faa_til",
        heading=("task-incremental", "FAA"),
        meaning="Final accuracy if the network is told which task a row belongs to, in percent.",
        value=_over_seeds(lambda run: run.faa_til),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="macro_f1",
        heading=("macro", "F1"),
        meaning="F1 averaged over classes after the last task, in percent.",
        value=_over_seeds(lambda run: run.macro_f1),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="forgetting_since_event",
        heading=("forgetting", "since event"),
        meaning="Forgetting that counts a class's accuracy only since its last drift.",
        value=_over_seeds(lambda run: run.forgetting_since_event),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="backward_transfer",
        heading=("backward", "transfer"),
        meaning="What a task gained (or lost) since it was learned, in points.",
        value=_over_seeds(lambda run: run.backward_transfer),
        show=_one_decimal,
        spread=True,
    ),
    Column(
        key="ece",
        heading=("calibration", "error"),
        meaning="Expected gap between confidence and accuracy, a share between 0 and 1.",
        value=_over_seeds(lambda run: run.calibration.ece if run.calibration else None),
        show=lambda value: f"{value:.3f}",
        spread=True,
    ),
    Column(
        key="gradient_steps",
        heading=("gradient", "steps"),
        meaning="Updates of the network; a fair comparison looks at these too.",
        value=_over_seeds(lambda run: run.gradient_steps),
        show=compact,
    ),
)
"""Measures beside the main comparison, for the page and for CSV."""

NAMES = tuple(column for column in COMPARISON if column.names_the_cell)


def table_of(settings: Sequence[Setting], columns: Sequence[Column] = COMPARISON) -> Table:
    """One row per cell, setting by setting."""
    rows = [
        Row(
            benchmark=setting.first.benchmark,
            variant=setting.variant,
            values=tuple(column.value(cell) for column in columns),
        )
        for setting in settings
        for cell in setting.cells
    ]
    return Table(columns=tuple(columns), rows=tuple(rows))


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
    blocks.append(
        "FAA: final average accuracy (%), mean ± sample standard deviation over seeds. "
        "Costs leave evaluation out."
    )
    return "\n\n".join(blocks) + "\n"


def _lift_shared(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[list[str], list[int]]:
    """Names that are the same in every row, as words, and the indices of the other columns."""
    shared, kept = [], []
    for index, column in enumerate(columns):
        values = {row.values[index] for row in rows if column.names_the_cell}
        if column.names_the_cell and len(values) == 1 and column.key != "adaptation":
            shared.append(f"{column.title} {column.text(values.pop())}")
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
    cells = {index: _column_cells(columns[index], index, rows) for index in kept}
    names = [cells[index] for index in kept if columns[index].names_the_cell]
    parts: list[Lines] = [list(names)]
    for index in kept:
        if columns[index].names_the_cell:
            continue
        if len(parts[-1]) > len(names) and _width_of([*parts[-1], cells[index]]) > width:
            parts.append(list(names))
        parts[-1].append(cells[index])
    return parts


def _column_cells(column: Column, index: int, rows: Sequence[Row]) -> list[str]:
    texts = [column.text(row.values[index]) for row in rows]
    tail = max((len(text.partition(" ± ")[2]) for text in texts), default=0)
    if tail and column.spread:
        # Means stand under means, also where one row has no spread.
        texts = [text if " ± " in text else text + " " * (tail + 3) for text in texts]
    lines = [*column.heading, *texts]
    size = max(map(len, lines))
    if isinstance(rows[0].values[index], str):
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
    titles = ["benchmark", *(column.title.replace("- ", "") for column in table.columns)]
    numeric = [not column.names_the_cell for column in table.columns]
    lines = [titles, ["---", *("---:" if right else "---" for right in numeric)]]
    for row in table.rows:
        place = f"{row.benchmark} ({row.variant})" if row.variant else row.benchmark
        texts = [c.text(value) for c, value in zip(table.columns, row.values, strict=True)]
        lines.append([place, *texts])
    return "".join(f"| {' | '.join(map(_escape_markdown, line))} |\n" for line in lines)


def _escape_markdown(text: str) -> str:
    for letter in "\\|<>*_`":
        text = text.replace(letter, f"\\{letter}")
    return text


def as_csv(table: Table) -> str:
    """Full precision; every mean has its standard deviation in a column of its own."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    has_spread = [not column.names_the_cell for column in table.columns]
    head = ["benchmark", "variant"]
    for column, spread in zip(table.columns, has_spread, strict=True):
        head += [column.key, f"{column.key}_sd"] if spread else [column.key]
    writer.writerow(head)
    for row in table.rows:
        line: list[object] = [row.benchmark, row.variant]
        for value, spread in zip(row.values, has_spread, strict=True):
            if spread:
                line += [value.mean, value.sd] if isinstance(value, Stat) else [None, None]
            else:
                line.append(value)
        writer.writerow(line)
    return file.getvalue()
