"""One self-contained HTML page that asks nobody for anything and escapes what comes from a run."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import quote

from driftwise.report import words
from driftwise.report.cells import Setting, Stat
from driftwise.report.columns import FURTHER, NAMES, Column, Value
from driftwise.report.facets import RenderedFigure
from driftwise.report.read import few
from driftwise.report.run import Run, clean
from driftwise.report.run_details import tell_runs
from driftwise.report.tables import Table, table_of

SIDE_BY_SIDE = ("radar", "reliability")
"""Kinds of figures that need half the page's width only."""

SEEN_WHOLE = (*SIDE_BY_SIDE, "samples")
"""Kinds that a narrow screen shows smaller; any other is scrolled there, to keep its numbers
readable."""

MOST_ROWS = 1000
"""Rows of a table on the page; the CSV file has them all."""

MOST_EMBEDDED = 2_000_000
"""Bytes of figures within the page. Those of further settings are taken from the files beside it,
when they are looked at."""

MOST_SEEDS = 30
"""Seeds that the footer names."""

LONG = 24
"""Letters from which a name in a table is broken into lines."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A setting and its figures, by the path of their files without its ending."""

    setting: Setting
    images: Mapping[str, RenderedFigure]


def build_page(
    settings: Sequence[Setting],
    drawn: Sequence[Drawn],
    *,
    left_out: Sequence[str],
    cautions: Sequence[str],
) -> str:
    """The page; `cautions` is what runs warn of."""
    template = Template(files("driftwise.report").joinpath("page.html").read_text("utf-8"))
    cells = [cell for setting in settings for cell in setting.cells]
    names = [column for column in NAMES if column.key != "seeds"]
    telling = [c for c in names if len({c.value(cell) for cell in cells}) > 1]
    names_of_cells = telling or [c for c in NAMES if c.key == "adaptation"]
    sections, num_embedded = [], 0
    for each in drawn:
        num_embedded += sum(len(image.svg) for image in each.images.values())
        embed = num_embedded <= MOST_EMBEDDED or each is drawn[0]
        sections.append(_section(each, alone=len(settings) == 1, embed=embed))
    return template.substitute(
        image_sources="data:" if num_embedded <= MOST_EMBEDDED else "data: 'self' file:",
        title=escape(words.title_of(settings)),
        summary=escape(words.overview(settings)),
        warnings=_warnings("Not everything could be used:", left_out)
        + _warnings("What to know about these runs:", cautions),
        comparison=_html_table(table_of(settings), "Comparison of all configurations"),
        further=_html_table(table_of(settings, [*names_of_cells, *FURTHER]), "Further measures"),
        tabs=_tabs([each.setting for each in drawn]),
        settings="\n".join(sections),
        runs=tell_runs(cells),
        footer=escape(_footer([run for cell in cells for run in cell.runs])),
    )


def _warnings(heading: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{escape(clean(line))}</li>" for line in lines)
    return f'<div class="warnings"><p>{escape(heading)}</p><ul>{items}</ul></div>'


def _html_table(table: Table, label: str) -> str:
    left = len(table.rows) - MOST_ROWS
    more = f'<p class="note">{left:,} more rows are in table.csv.</p>' if left > 0 else ""
    places = {(row.benchmark, row.variant) for row in table.rows}
    with_place = len(places) > 1
    head = "".join(_head(column) for column in table.columns)
    if with_place:
        head = _head_cell("setting", "Benchmark and what else tells settings apart.", "name") + head
    body = []
    for row in table.rows[:MOST_ROWS]:
        cells = list(map(_cell, table.columns, row.values, row.texts(table.columns)))
        if with_place:
            place = ", ".join(part for part in (row.benchmark, row.variant) if part)
            cells.insert(
                0, f'<td class="name long" data-sort="{escape(place)}">{escape(place)}</td>'
            )
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
        f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>\n'
        + "\n".join(body)
        + "\n</tbody></table></div>"
        + "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
        + more
    )


def _is_name(column: Column) -> bool:
    return column.key in ("method", "adaptation", "detector", "trait")


def _head(column: Column) -> str:
    return _head_cell(column.title, column.meaning, "name" if _is_name(column) else "")


def _head_cell(title: str, meaning: str, kind: str) -> str:
    return (
        f'<th scope="col" class="{kind}"><button type="button" title="{escape(meaning)}">'
        f"{escape(title)}</button></th>"
    )


def _cell(column: Column, value: Value, shown: str) -> str:
    key = value.mean if isinstance(value, Stat) else value
    sort = "" if key is None else escape(str(key))
    kind = "name" if _is_name(column) else ""
    kind += " long" if isinstance(value, str) and len(value) > LONG else ""
    return f'<td class="{kind}" data-sort="{sort}">{escape(shown)}</td>'


def _tabs(settings: Sequence[Setting]) -> str:
    if len(settings) == 1:
        return ""
    buttons = "".join(
        f'<button type="button" aria-pressed="false">{escape(setting.title)}</button>'
        for setting in settings
    )
    return f'<div class="tabs" role="group" aria-label="Setting to show">{buttons}</div>'


def _section(drawn: Drawn, *, alone: bool, embed: bool) -> str:
    setting = drawn.setting
    heading = "" if alone else f"<p>{escape(words.summary(setting))}</p>"
    figures = "\n".join(
        _figure(image, "" if embed else f"{name}.svg") for name, image in drawn.images.items()
    )
    return (
        f'<section class="setting" aria-label="{escape(setting.title)}">\n'
        f'<h3>{escape(setting.title)}</h3>{heading}\n<div class="figures">\n{figures}\n</div>\n'
        "</section>"
    )


def _figure(image: RenderedFigure, beside: str) -> str:
    """With the figure in it, or from a file beside the page."""
    embedded = f'src="data:image/svg+xml;base64,{base64.b64encode(image.svg).decode()}"'
    source = f'loading="lazy" src="{quote(beside)}"' if beside else embedded
    kind = "half" if image.kind in SIDE_BY_SIDE else "full"
    kind += " whole" if image.kind in SEEN_WHOLE else ""
    return (
        f'<figure class="{kind}"><h3>{escape(image.title)}</h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(image.title)}">'
        f'<img alt="{escape(image.alt)}" {source}></div>'
        f"<figcaption>{escape(image.caption)}</figcaption></figure>"
    )


def _footer(runs: Sequence[Run]) -> str:
    seeds = sorted({run.seed for run in runs})
    noun = "seed" if len(seeds) == 1 else "seeds"
    named = ", ".join(few([str(seed) for seed in seeds], MOST_SEEDS))
    return (
        f"Made by driftwise from {words.plural(len(runs), 'run')} ({noun} {named}). The figures "
        "are beside this page as PNG and SVG, the table as CSV and Markdown."
    )
