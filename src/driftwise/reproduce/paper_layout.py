"""The two layouts of a paper's table: like the paper, and one row per cell."""

from __future__ import annotations

from collections.abc import Sequence

from driftwise.report.cells import Stat, mark
from driftwise.report.columns import MEANINGS, compact
from driftwise.report.table import MISSING, Head, Item, Table
from driftwise.reproduce import published
from driftwise.reproduce.paper_table import (
    STANDARD,
    PaperTable,
    TableCell,
    Value,
    drifts_in_words,
)

NOT_RUN = "not run"


def like_the_paper(table: PaperTable, *, decimals: int) -> Table:
    """Two lines to a row, the measured and the published; drifts side by side."""
    heads = [Head(title=_title(key), is_name=True) for key in table.keys]
    for count in table.drifts:
        group = "" if count is None else drifts_in_words(count)
        heads.append(Head(title="FAA ± sd (F)", group=group))
        heads += [Head(title="diff", group=group)] if table.has_published else []
    rows: list[list[Item]] = []
    breaks: set[int] = set()
    above: tuple[Value, ...] | None = None
    for row in table.rows:
        *blocks, last = map(_text, row.names)
        if row.names[:-1] == above:
            blocks = [""] * len(blocks)
        elif above is not None:
            breaks.add(len(rows))
        above = row.names[:-1]
        measured = [Item(name) for name in (*blocks, last)]
        known = [Item(name) for name in (*("" for _ in blocks), "  paper")]
        for cell in row.cells:
            measured.append(Item(_measured(cell, decimals)))
            known.append(Item(_published(cell, decimals)))
            if table.has_published:
                measured.append(Item(_difference(cell, decimals)))
                known.append(Item(""))
        rows += [measured, known] if table.has_published else [measured]
    return Table(
        title=table.title,
        about=table.about,
        heads=heads,
        rows=rows,
        breaks=breaks,
        notes=table.notes,
    )


def _measured(cell: TableCell | None, decimals: int) -> str:
    if cell is None:
        return MISSING
    if cell.faa is None:
        return NOT_RUN
    seeds = f" [{cell.num_seeds}]" if cell.num_seeds < cell.seeds_asked else ""
    forgetting = None if cell.forgetting is None else cell.forgetting.mean
    return _numbers(cell.faa.mean, cell.faa.sd, forgetting, decimals) + mark(cell.measured) + seeds


def _published(cell: TableCell | None, decimals: int) -> str:
    if cell is None:
        return ""
    known = cell.published
    return _numbers(known.faa, known.faa_std, known.forgetting, decimals) if known else MISSING


def _numbers(mean: float, sd: float | None, forgetting: float | None, decimals: int) -> str:
    spread = "" if sd is None else f" ± {sd:.{decimals}f}"
    lost = "" if forgetting is None else f" ({forgetting:.{decimals}f})"
    return f"{mean:.{decimals}f}{spread}{lost}"


def _difference(cell: TableCell | None, decimals: int) -> str:
    if cell is None or cell.difference is None:
        return ""
    return f"{cell.difference:+.{decimals}f}"


_BUFFER = "Samples that the replay buffer can hold, as in the paper."
_MEASURES = {
    "buffer_size_here": ("samples here", "Samples that the buffer really held."),
    "seeds": ("seeds", "Runs that are done, one per seed."),
    "seeds_asked": None,
    "faa": ("FAA", "Final average accuracy in percent, with the deviation over seeds."),
    "forgetting": ("forgetting", "How far a task fell from its best accuracy, in points."),
    "labels_adaptation": ("labels asked", MEANINGS["labels_adaptation"]),
    "published_benchmark": None,
    "published_faa": ("published FAA", "With the deviation over three runs."),
    "published_forgetting": ("published forgetting", "In points."),
    "difference": ("difference", "FAA here minus published, in points."),
    "published_source": None,
    "not_adapted": ("not adapted", MEANINGS["not_adapted"]),
}
"""Key in CSV; title and meaning on a page, None: in CSV alone."""
_WITH_SD = ("faa", "forgetting", "labels_adaptation", "published_faa")


def cell_by_cell(table: PaperTable) -> Table:
    """One row per cell: for a page, and with more columns and nothing rounded for CSV."""
    cells = list(table.cells)
    origin = {
        "sweep": table.sweep.name,
        "scale": table.sweep.scale,
        "scale_note": table.sweep.scale_note,
    }
    places = [key for key in STANDARD if any(key in cell.place for cell in cells)]
    places += [key for key in (*table.shared, *table.keys) if key not in STANDARD]
    words = {key for cell in cells for key in cell.place if isinstance(cell.place[key], str)}
    heads = [Head(title=key, only_csv=True) for key in origin]
    heads += [
        Head(
            title=_title(key),
            key=key,
            meaning=_BUFFER if key == "buffer_size" else MEANINGS.get(key, ""),
            is_name=key in words,
            only_csv=key not in (*table.keys, "num_drifts"),
        )
        for key in places
    ]
    for key, shown in _MEASURES.items():
        empty = key == "not_adapted" and not any(cell.not_adapted for cell in cells)
        title, meaning = shown or (key, "")
        heads.append(
            Head(
                title=title,
                key=key,
                meaning=meaning,
                has_sd=key in _WITH_SD,
                only_csv=shown is None or empty,
            )
        )
    return Table(
        title=table.title,
        about=table.about,
        heads=heads,
        rows=[
            [
                *(_item(value) for value in origin.values()),
                *(_item(cell.place.get(key)) for key in places),
                *_values(cell),
            ]
            for cell in cells
        ],
        notes=table.notes,
    )


def _values(cell: TableCell) -> Sequence[Item]:
    """One item per entry of _MEASURES."""
    known = cell.published
    stat = Stat(mean=known.faa, sd=known.faa_std, count=published.NUM_RUNS) if known else None
    seeds = f"{cell.num_seeds} of {cell.seeds_asked}" if cell.num_seeds else NOT_RUN
    labels = MISSING if cell.labels is None else compact(cell.labels.mean)
    return (
        _item(cell.buffer_size),
        Item(seeds, cell.num_seeds),
        _item(cell.seeds_asked),
        Item(_mean(cell.faa) + mark(cell.measured), cell.faa),
        Item(_mean(cell.forgetting, with_sd=False), cell.forgetting),
        Item(labels, cell.labels),
        _item(known.benchmark if known else None),
        Item(_mean(stat), stat),
        Item(f"{known.forgetting:.2f}", known.forgetting) if known else _item(None),
        Item(_difference(cell, 2) or MISSING, cell.difference),
        _item(published.SOURCE if known else None),
        _item(cell.not_adapted or None),
    )


def _mean(stat: Stat | None, *, with_sd: bool = True) -> str:
    if stat is None:
        return MISSING
    spread = f" ± {stat.sd:.2f}" if with_sd and stat.sd is not None else ""
    return f"{stat.mean:.2f}{spread}"


def _item(value: Value) -> Item:
    return Item(_text(value), value)


def _text(value: Value) -> str:
    if value is None:
        return MISSING
    return f"{value:g}" if isinstance(value, float) else str(value)


def _title(key: str) -> str:
    return {"buffer_size": "buffer", "num_drifts": "drifts"}.get(key, key.replace("_", " "))
