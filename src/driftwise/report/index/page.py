"""The page over all runs of all sweeps, and a page for each run that is done."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from driftwise.files import JSON, Manifest, folder_in, replacing
from driftwise.regular_files import SMALL, read_json
from driftwise.report.index.rows import (
    FAILED,
    NOT_DONE,
    STATES,
    Listing,
    RunRow,
    Trouble,
    columns,
    rows_of,
)
from driftwise.report.index.run_page import Standing, build_run_page
from driftwise.report.index.sections import contents, counted, section
from driftwise.report.markup import common_style, script_data, template, text
from driftwise.report.read import RESULT
from driftwise.report.run import clean, shortened
from driftwise.report.style import styles_of
from driftwise.report.sweeps import RUNS, Sweep
from driftwise.report.words import plural

PAGES, FAILURES = "pages", "failures"
TITLES = {"buffer_size": "buffer", "real_buffer": "real buffer", "num_drifts": "drifts"}
MEANINGS = {
    "method": "How the network learns from the stream and its memory.",
    "adaptation": "What is done about a class that has drifted.",
    "buffer_size": "Rows that the memory holds, as the grid calls it.",
    "real_buffer": "Rows that the memory really held: a smaller scale shrinks it with the data.",
    "num_drifts": "Drift events in the stream.",
}
DIGITS: Mapping[str, int] = {"faa": 1, "forgetting": 1, "tpr": 2, "fpr": 2}
"""Places after the point; other measures are shown as short as they stay readable."""

MOST_SEEDS = 12
"""Runs of its own cell that a run's page names."""

LONGEST_REASON = 500
"""Letters of what is said about a failure."""

WITH_SPREAD = ("faa", "forgetting")


def write_index(
    out: Path, sweeps: Sequence[Sweep], *, fragments: Mapping[str, str] | None = None
) -> Path:
    """Write OUT/index.html over all runs, and OUT/pages/ID.html for each that is done.

    `fragments` is HTML of our own, by the name of the sweep that it belongs to. Each file appears
    whole or not at all; the index comes last.
    """
    fragments = fragments or {}
    unknown = set(fragments) - {sweep.name for sweep in sweeps}
    if unknown:
        raise ValueError(f"fragments for sweeps that are not there: {', '.join(sorted(unknown))}")
    listing = rows_of(sweeps, _troubles(out, sweeps))
    page = _page(out, sweeps, listing, fragments)
    _write_run_pages(out, sweeps, listing)
    with replacing(out / "index.html") as file:
        file.write(page.encode())
    return out / "index.html"


def _troubles(out: Path, sweeps: Sequence[Sweep]) -> dict[str, Trouble]:
    """Why runs are not done, where something can be said."""
    troubles = {}
    for entry in (entry for sweep in sweeps for entry in sweep.entries):
        if entry.run is not None or entry.id in troubles:
            continue
        failure = _failure(out, entry.id)
        if failure:
            troubles[entry.id] = Trouble(state=FAILED, reason=failure)
        elif (out / RUNS / entry.id / RESULT).is_file():
            troubles[entry.id] = Trouble(state=NOT_DONE, reason=f"its {RESULT} is damaged")
    return troubles


def _failure(out: Path, run_id: str) -> str:
    """Why the last attempt at a run broke; empty if none did."""
    try:
        attempts = read_json(out / FAILURES / f"{run_id}.json", SMALL)["attempts"]
        tries = f"{plural(len(attempts), 'attempt')}, the last: "
        return shortened(tries + str(attempts[-1]["error"]), LONGEST_REASON)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        return f"the note about its failure is damaged: {error!r}"


def _write_run_pages(out: Path, sweeps: Sequence[Sweep], listing: Listing) -> None:
    """A page for each run that is done; none stays of a run that no longer is."""
    seeds: dict[int, dict[int, str]] = {}
    rows: dict[str, list[RunRow]] = {}
    for row in listing.runs:
        rows.setdefault(row.id, []).append(row)
        if row.run is not None:
            seeds.setdefault(row.cell, {})[row.seed] = row.id
    members = {cell: list(found.items()) for cell, found in seeds.items()}
    places_of = {
        (cell, seed): place
        for cell, found in members.items()
        for place, (seed, _) in enumerate(found)
    }
    folder, manifest = folder_in(out, PAGES), Manifest(out, PAGES)
    done = {run_id for run_id, places in rows.items() if places[0].run is not None}
    manifest.add(f"{run_id}.html" for run_id in done)
    manifest.remove(f"{run_id}.html" for run_id in rows.keys() - done)
    for run_id, places in rows.items():
        run = places[0].run
        if run is None:
            continue
        standings = [
            Standing(
                sweeps=[sweeps[number].name for number in listing.cells[row.cell].sweeps],
                place=listing.cells[row.cell].place,
                seeds=_near(members[row.cell], places_of[row.cell, row.seed]),
                count=len(members[row.cell]),
            )
            for row in places
        ]
        # Not waited for until it is on the disk: it can be made again at any time.
        with replacing(folder / f"{run_id}.html", durable=False) as file:
            file.write(build_run_page(run, run_id, standings).encode())


def _near(members: list[tuple[int, str]], place: int) -> list[tuple[int, str]]:
    """Some of a cell's runs around one of them: a page that led to all would grow with each."""
    start = max(0, min(place - MOST_SEEDS // 2, len(members) - MOST_SEEDS))
    return members[start : start + MOST_SEEDS]


def _page(
    out: Path, sweeps: Sequence[Sweep], listing: Listing, fragments: Mapping[str, str]
) -> str:
    states = {row.id: row.state for row in listing.runs}
    counts = Counter(states.values())
    title = sweeps[0].name if len(sweeps) == 1 else plural(len(sweeps), "sweep")
    sections = [
        section(out, number, sweep, states, fragments.get(sweep.name, ""))
        for number, sweep in enumerate(sweeps)
    ]
    return Template(template("index/index.html")).substitute(
        style=common_style(),
        title=text(title),
        summary=text(counted(counts) + "."),
        contents=contents(sweeps, states) if len(sweeps) > 1 else "",
        sweeps="\n".join(sections),
        data=script_data(_data(sweeps, listing)),
    )


def _data(sweeps: Sequence[Sweep], listing: Listing) -> JSON:
    """What the table's script needs, in lists to keep it small."""
    adaptation = listing.names.index("adaptation")
    looks = styles_of(str(cell.coordinates[adaptation]) for cell in listing.cells)
    return {
        "sweeps": [sweep.name for sweep in sweeps],
        "states": STATES,
        "colours": {name: look.colour for name, look in looks.items()},
        "names": [
            {"key": key, "title": clean(TITLES.get(key, key)), "meaning": MEANINGS.get(key, "")}
            for key in listing.names
        ],
        "measures": [
            {
                "key": column.key,
                "title": column.title,
                "meaning": column.meaning,
                "digits": DIGITS.get(column.key),
                "spread": column.key in WITH_SPREAD,
            }
            for column in columns()
        ],
        "cells": [[cell.sweeps, cell.coordinates] for cell in listing.cells],
        "runs": [
            [
                row.cell,
                row.id,
                row.seed,
                STATES.index(row.state),
                row.reason,
                [_short(value) for value in row.measures],
            ]
            for row in listing.runs
        ],
    }


def _short(value: float | None) -> float | None:
    """Nine digits are enough to look at; what is no number is not known."""
    return float(f"{value:.9g}") if value is not None and math.isfinite(value) else None
