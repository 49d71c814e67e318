"""The comparison of all cells: as one table, and block by block for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby

from driftwise.report.cells import Setting, notes_below
from driftwise.report.columns import EVERYTHING, Column, for_people
from driftwise.report.table import WIDTH, Head, Item, Table

_LEGEND = (
    "FAA: final average accuracy (%), mean ± sample standard deviation over seeds. "
    "Costs leave evaluation out."
)
_SETTING = Head(
    title="setting", meaning="The benchmark, and how settings of it differ.", is_name=True
)


def comparison(
    settings: Sequence[Setting],
    columns: Sequence[Column] | None = None,
    *,
    title: str = "",
    name_setting: bool | None = None,
) -> Table:
    """One row per cell, for people.

    Args:
        settings: what is compared
        columns: None: those of the main comparison that are known of some cell
        title: of the table
        name_setting: whether a first column names the setting; None: where there are several
    """
    if columns is None:
        columns = for_people([cell for setting in settings for cell in setting.cells])
    places = [_place(setting) for setting in settings]
    named = len(set(places)) > 1 if name_setting is None else name_setting
    return Table(
        title=title,
        heads=[_SETTING, *columns] if named else columns,
        rows=[
            [*([Item(place, place)] if named else []), *(column.item(cell) for column in columns)]
            for setting, place in zip(settings, places, strict=True)
            for cell in setting.cells
        ],
        notes=_notes(settings),
    )


def _place(setting: Setting) -> str:
    return ", ".join(filter(None, (setting.first.benchmark, setting.variant)))


def _notes(settings: Sequence[Setting]) -> list[str]:
    """What the marks mean, with the setting's name if there are several."""
    if len(settings) == 1:
        return list(filter(None, [settings[0].not_adapted]))
    named = [
        (f"{setting.title}: {label}", cell)
        for setting in settings
        for label, cell in zip(setting.labels, setting.cells, strict=True)
    ]
    return list(filter(None, [notes_below(named)]))


def comparison_csv(settings: Sequence[Setting]) -> str:
    """Every column at full precision, the same in every report."""
    places = [Head(title="benchmark"), Head(title="variant")]
    rows = [
        [
            Item("", setting.first.benchmark),
            Item("", setting.variant),
            *(column.item(cell) for column in EVERYTHING),
        ]
        for setting in settings
        for cell in setting.cells
    ]
    return Table(heads=[*places, *EVERYTHING], rows=rows).csv()


def comparison_text(settings: Sequence[Setting], width: int = WIDTH) -> str:
    """Plain text of at most `width` columns, one block per benchmark and variant.

    Names that all rows of a block share, such as the method, stand once above it.
    """
    columns = for_people([cell for setting in settings for cell in setting.cells])
    blocks = []
    for _, members in groupby(settings, key=_place):
        group = list(members)
        cells = [cell for setting in group for cell in setting.cells]
        heading, kept = [group[0].first.benchmark, *filter(None, [group[0].variant])], []
        for column in columns:
            values = {column.value(cell) for cell in cells} if column.is_name else set()
            if len(values) != 1 or column.key == "adaptation":
                kept.append(column)
            elif values != {None} or not column.where_known:
                heading.append(f"{column.title} {column.item(cells[0]).text}")
        rows = [[column.item(cell) for column in kept] for cell in cells]
        blocks += [_joined(heading, width), Table(heads=kept, rows=rows).text(width).rstrip()]
    blocks += [textwrap.fill(line, width) for line in (*_notes(settings), _LEGEND)]
    return "\n\n".join(blocks) + "\n"


def _joined(parts: Sequence[str], width: int) -> str:
    """Parts beside each other, on as few lines as hold them whole."""
    lines = [parts[0][:width]]
    for part in parts[1:]:
        longer = f"{lines[-1]} · {part}"
        lines[-1:] = [longer] if len(longer) <= width else [lines[-1], part[:width]]
    return "\n".join(lines)
