"""A paper's table as text, CSV, Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise.report import sheet
from driftwise.report.cells import Stat, mark
from driftwise.report.columns import MISSING, NOT_ADAPTED, compact
from driftwise.report.csv_text import csv_text
from driftwise.report.sheet import Head, Item, Sheet
from driftwise.reproduce import published
from driftwise.reproduce.table import (
    STANDARD,
    PaperTable,
    Row,
    TableCell,
    Value,
    drifts_in_words,
)

NOT_RUN = "not run"
_TITLES = {"buffer_size": "buffer"}


def as_text(table: PaperTable, *, width: int = sheet.WIDTH) -> str:
    """The paper's layout in plain text of at most `width` columns."""
    return sheet.as_text(_like_the_paper(table, decimals=1), width=width)


def as_markdown(table: PaperTable) -> str:
    """The paper's layout as Markdown."""
    return sheet.as_markdown(_like_the_paper(table, decimals=2))


def as_latex(table: PaperTable) -> str:
    """The paper's layout as a LaTeX table; needs the package booktabs."""
    return sheet.as_latex(_like_the_paper(table, decimals=2))


def as_html(table: PaperTable) -> str:
    """One row per cell, as a fragment whose columns can be sorted."""
    return sheet.as_html(_cell_by_cell(table))


def as_csv(table: PaperTable) -> str:
    """One line per cell, nothing rounded."""
    places = [key for key in STANDARD if any(key in cell.place for cell in table.cells)]
    places += [key for key in (*table.shared, *table.keys) if key not in STANDARD]
    lines: list[list[object]] = [
        [
            *("sweep", "scale", "scale_note", *places, "buffer_size_here", "seeds", "seeds_asked"),
            *("faa", "faa_sd", "forgetting", "forgetting_sd"),
            *("labels_adaptation", "labels_adaptation_sd", "published_benchmark"),
            *("published_faa", "published_faa_sd", "published_forgetting", "difference"),
            *("published_source", "not_adapted"),
        ]
    ]
    origin = (table.sweep.name, table.sweep.scale, table.sweep.scale_note)
    for cell in table.cells:
        known = cell.published
        lines.append(
            [
                *(*origin, *(cell.place.get(key) for key in places), cell.buffer_size),
                *(cell.num_seeds, cell.seeds_asked),
                *(*_numbers(cell.faa), *_numbers(cell.forgetting), *_numbers(cell.labels)),
                *(
                    (known.benchmark, known.faa, known.faa_std, known.forgetting)
                    if known
                    else (None,) * 4
                ),
                *(cell.difference, published.SOURCE if known else None, cell.not_adapted),
            ]
        )
    return csv_text(lines)


def _numbers(stat: Stat | None) -> tuple[float | None, float | None]:
    return (None, None) if stat is None else (stat.mean, stat.sd)


def _like_the_paper(table: PaperTable, *, decimals: int) -> Sheet:
    """Two lines to a row, the measured and the published; drifts side by side."""
    heads = [Head(title=_title(key), is_name=True) for key in table.keys]
    columns: list[list[Item]] = []
    for place, count in enumerate(table.drifts):
        group = "" if count is None else drifts_in_words(count)
        cells = [row.cells[place] for row in table.rows]
        heads.append(Head(title="FAA ± sd (F)", group=group))
        columns.append(_interleaved(table, _ends(cells, decimals)))
        if table.has_published:
            heads.append(Head(title="diff", group=group))
            columns.append(_interleaved(table, [(_difference(c, decimals), "") for c in cells]))
    names, breaks = _names(table)
    return Sheet(
        title=table.title,
        about=table.about,
        heads=tuple(heads),
        rows=tuple((*name, *values) for name, *values in zip(names, *columns, strict=True)),
        breaks=breaks,
        notes=table.notes,
    )


def _names(table: PaperTable) -> tuple[list[tuple[Item, ...]], frozenset[int]]:
    """The names of each line, what is as in the row above left out; where a new block begins."""
    names: list[tuple[Item, ...]] = []
    breaks: set[int] = set()
    above: Row | None = None
    for row in table.rows:
        blocks = row.names[:-1]
        same = above is not None and above.names[:-1] == blocks
        if above is not None and not same:
            breaks.add(len(names))
        texts = [_text(name) for name in row.names]
        shown = ["" for _ in blocks] + texts[-1:] if same else texts
        names.append(tuple(Item(text=text) for text in shown))
        if table.has_published:
            names.append(tuple(Item(text=text) for text in [*("" for _ in blocks), "  paper"]))
        above = row
    return names, frozenset(breaks)


def _interleaved(table: PaperTable, pairs: Sequence[tuple[str, str]]) -> list[Item]:
    """Measured and published one below the other; the measured alone where nothing is published."""
    lines = [pair if table.has_published else pair[:1] for pair in pairs]
    return [Item(text=text) for line in lines for text in line]


def _ends(cells: Sequence[TableCell | None], decimals: int) -> list[tuple[str, str]]:
    """(measured, published) for each cell of a column, means below means."""
    parts = [(_measured(cell, decimals), _published(cell, decimals)) for cell in cells]
    known = [part for pair in parts for part in pair if isinstance(part, tuple)]
    sizes = [max((len(part[index]) for part in known), default=0) for index in range(4)]

    def joined(part: tuple[str, str, str, str] | str) -> str:
        if isinstance(part, str):
            return part
        mean, spread, forgetting, seeds = part
        filled = (mean, spread.ljust(sizes[1]), forgetting.rjust(sizes[2]), seeds.ljust(sizes[3]))
        return "".join(filled)

    return [(joined(measured), joined(known)) for measured, known in parts]


def _measured(cell: TableCell | None, decimals: int) -> tuple[str, str, str, str] | str:
    if cell is None:
        return MISSING
    if cell.faa is None:
        return NOT_RUN
    seeds = f" [{cell.num_seeds}]" if cell.num_seeds < cell.seeds_asked else ""
    seeds = mark(cell.measured) + seeds
    forgetting = None if cell.forgetting is None else cell.forgetting.mean
    return _parts(cell.faa.mean, cell.faa.sd, forgetting, seeds, decimals)


def _published(cell: TableCell | None, decimals: int) -> tuple[str, str, str, str] | str:
    if cell is None:
        return ""
    known = cell.published
    if known is None:
        return MISSING
    return _parts(known.faa, known.faa_std, known.forgetting, "", decimals)


def _parts(
    mean: float, sd: float | None, forgetting: float | None, seeds: str, decimals: int
) -> tuple[str, str, str, str]:
    spread = "" if sd is None else f" ± {sd:.{decimals}f}"
    lost = "" if forgetting is None else f" ({forgetting:.{decimals}f})"
    return f"{mean:.{decimals}f}", spread, lost, seeds


def _difference(cell: TableCell | None, decimals: int) -> str:
    if cell is None or cell.difference is None:
        return ""
    return f"{cell.difference:+.{decimals}f}"


def _cell_by_cell(table: PaperTable) -> Sheet:
    words = {key for cell in table.cells for key in cell.place if isinstance(cell.place[key], str)}
    heads = [
        Head(title=_title(key), meaning=_MEANINGS.get(key, ""), is_name=key in words)
        for key in table.keys
    ]
    heads += [Head(title=title, meaning=meaning) for title, meaning in _COLUMNS.items()]
    why = any(cell.not_adapted for cell in table.cells)
    heads += [Head(title="not adapted", meaning=NOT_ADAPTED.meaning, is_name=True)] if why else []
    return Sheet(
        title=table.title,
        about=table.about,
        heads=tuple(heads),
        rows=tuple(
            (
                *(_item(cell.place.get(key)) for key in table.keys),
                *_values(cell),
                *([_item(cell.not_adapted or None)] if why else []),
            )
            for cell in table.cells
        ),
        notes=table.notes,
    )


_MEANINGS = {
    "buffer_size": "Rows that the memory can hold, as the paper has it.",
    "method": "How the network learns from the stream and its memory.",
    "adaptation": "What is done about a class that has drifted.",
}
_COLUMNS = {
    "drifts": "Drift events in the stream.",
    "rows here": "Rows that the memory really held.",
    "seeds": "Runs that are done, one per seed.",
    "FAA": "Final average accuracy in percent, with the deviation over seeds.",
    "forgetting": "How far a task fell from its best accuracy, in points.",
    "published FAA": "With the deviation over three runs.",
    "published forgetting": "In points.",
    "difference": "FAA here minus published, in points.",
    "labels asked": "Labels that the adaptation asked for.",
}


def _values(cell: TableCell) -> tuple[Item, ...]:
    known = cell.published
    seeds = f"{cell.num_seeds} of {cell.seeds_asked}"
    return (
        _item(cell.place.get("num_drifts")),
        _item(cell.buffer_size),
        Item(text=NOT_RUN if cell.num_seeds == 0 else seeds, key=cell.num_seeds),
        _spread(cell.faa, mark=mark(cell.measured)),
        _spread(cell.forgetting, with_sd=False),
        _spread(Stat(mean=known.faa, sd=known.faa_std, count=3) if known else None),
        _item(known.forgetting if known else None),
        Item(text=_difference(cell, 2) or MISSING, key=cell.difference),
        Item(text=compact(cell.labels.mean), key=cell.labels.mean) if cell.labels else _item(None),
    )


def _spread(stat: Stat | None, *, with_sd: bool = True, mark: str = "") -> Item:
    if stat is None:
        return _item(None)
    spread = f" ± {stat.sd:.2f}" if with_sd and stat.sd is not None else ""
    return Item(text=f"{stat.mean:.2f}{spread}{mark}", key=stat.mean)


def _item(value: Value) -> Item:
    return Item(text=_text(value), key=value)


def _text(value: Value) -> str:
    if value is None:
        return MISSING
    return f"{value:g}" if isinstance(value, float) else str(value)


def _title(key: str) -> str:
    return _TITLES.get(key, key.replace("_", " "))
