"""The report's page: one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from driftwise.report import words
from driftwise.report.cells import Cell, Setting
from driftwise.report.comparison import FURTHER, NAMES, comparison
from driftwise.report.markup import data_uri, render
from driftwise.report.run_page import (
    LONGEST_CONFIG,
    MAX_VERDICTS,
    config_text,
    verdict_table,
    versions_text,
)
from driftwise.report.saved_run import Run, clean, few
from driftwise.report.table import Table
from driftwise.report.time_line import time_lines

if TYPE_CHECKING:
    from driftwise.report.facets import RenderedFigure

LAYOUTS = {
    "radar": "chart half whole",
    "reliability": "chart half whole",
    "samples": "photos full whole",
}
"""Figures that need half the page's width (half), and that a narrow screen shows smaller (whole).
Any other takes the full width and is scrolled there, to keep its numbers readable."""

MOST_ROWS = 1000
"""Rows of a table on the page; the CSV file has them all."""

MOST_EMBEDDED = 2_000_000
"""Bytes of figures within the page; those of further settings are loaded from files beside it."""

MOST_SEEDS = 30
"""Seeds that the footer names."""

PAGE_VERDICTS, PAGE_NOTES, MAX_NOTES = 5000, 5000, 50
"""Verdicts and notes of all runs together, divided equally; and notes of one run."""
UNFOLDED = 100
"""Runs whose names are seen at once."""
MOST_TIME_LINES = 240
"""panels of classes in feature space, of all runs together"""
MAX_RUNS = 5000
"""Runs that are listed one by one."""


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
    """The page.

    Args:
        settings: what the tables show
        drawn: settings with figures
        left_out: what could not be read, a line each
        cautions: the warnings of the runs, a line each
    """
    cells = [cell for setting in settings for cell in setting.cells]
    names = [column for column in NAMES if column.key != "seeds"]
    distinct = [c for c in names if len({c.value(cell) for cell in cells}) > 1]
    names = distinct or [column for column in names if column.key == "adaptation"]
    sections, num_embedded = [], 0
    for each in drawn:
        num_embedded += sum(len(image.svg) for image in each.images.values())
        beside = num_embedded > MOST_EMBEDDED and each is not drawn[0]
        sections.append(
            {
                "title": each.setting.title,
                "summary": words.summary(each.setting) if len(settings) > 1 else "",
                "figures": [_figure(*image, beside=beside) for image in each.images.items()],
            }
        )
    runs = [(run, cell.first) for cell in cells for run in cell.runs]
    return render(
        "report.html",
        title=words.title_of(settings),
        summary=words.overview(settings),
        image_sources="data:" if num_embedded <= MOST_EMBEDDED else "data: 'self' file:",
        left_out=[clean(line) for line in left_out],
        cautions=[clean(line) for line in cautions],
        glossary=words.glossary(
            (cell.adaptation for cell in cells),
            ("FAA", "forgetting", "drifted, stable", "labels", "TPR, FPR, delay", "time, FLOPs"),
        ),
        comparison=_cut(comparison(settings, title="Comparison of all configurations")),
        further=_cut(comparison(settings, [*names, *FURTHER], title="Further measures")),
        sections=sections,
        runs=runs_shown(cells),
        unfolded=UNFOLDED,
        num_unlisted=max(0, len(runs) - MAX_RUNS),
        footer=_footer([run for run, _ in runs]),
    )


def _cut(table: Table) -> Table:
    left = len(table.rows) - MOST_ROWS
    if left <= 0:
        return table
    more = f"{left:,} more rows are in table.csv."
    return replace(table, rows=table.rows[:MOST_ROWS], notes=[*table.notes, more])


def _figure(path: str, image: RenderedFigure, *, beside: bool) -> dict[str, object]:
    """For the template: with the figure in it, or from a file beside the page."""
    return {
        "title": image.title,
        "alt": image.alt,
        "caption": image.caption,
        "layout": LAYOUTS.get(image.kind, "chart full"),
        "is_beside": beside,
        "source": quote(f"{path}.svg") if beside else data_uri(image.svg, "image/svg+xml"),
    }


def runs_shown(cells: Sequence[Cell]) -> list[dict[str, object]]:
    """For the template, run by run; what the runs of a cell share is shown of its first."""
    runs = [(run, cell.first) for cell in cells for run in cell.runs][:MAX_RUNS]
    num_verdicts = min(MAX_VERDICTS, PAGE_VERDICTS // len(runs))
    num_notes = min(MAX_NOTES, PAGE_NOTES // len(runs))
    panels_left = MOST_TIME_LINES
    shown: list[dict[str, object]] = []
    for run, first in runs:
        panels = time_lines(run) if panels_left > 0 else []
        panels_left -= len(panels)
        entry: dict[str, object] = {
            "name": _name(run),
            "folder": clean(run.folder),
            "notes": few([*run.warnings, *run.notes], num_notes),
            "verdicts": verdict_table(run, num_verdicts),
            "differences": "" if run is first else _differences(run, first),
            "versions": versions_text(run),
            "config": config_text(run.config) if run is first else "",
            "time_lines": panels,
        }
        shown.append(entry)
    return shown


def _name(run: Run) -> str:
    faa = "unknown" if run.faa is None else f"{run.faa:.1f}"
    name = f"{run.method}, {run.adaptation}, {run.detector}, seed {run.seed}: FAA {faa}"
    return f"{name}, {run.not_adapted}" if run.not_adapted else name


def _differences(run: Run, first: Run) -> str:
    """How the configuration of a run differs from that of the first run of its cell."""
    pairs = [(run.config, first.config), (run.versions, first.versions)]
    differ = [
        f"{clean(key)} {clean(mine.get(key))}"
        for mine, theirs in pairs
        for key in sorted({*mine, *theirs})
        if mine.get(key) != theirs.get(key)
    ]
    return f"As seed {first.seed}, but for: {', '.join(differ) or 'nothing'}."[:LONGEST_CONFIG]


def _footer(runs: Sequence[Run]) -> str:
    seeds = sorted({run.seed for run in runs})
    noun = "seed" if len(seeds) == 1 else "seeds"
    named = ", ".join(few([str(seed) for seed in seeds], MOST_SEEDS))
    return (
        f"Made by driftwise from {words.plural(len(runs), 'run')} ({noun} {named}). The figures "
        "are beside this page as PNG, SVG and PDF, the table as CSV and Markdown."
    )
