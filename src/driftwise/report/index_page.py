"""The page over all runs of all sweeps, and a page for each run that is done."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from driftwise.files import SMALL, Manifest, folder_in, read_json, replacing
from driftwise.report.cells import Cell, Stat
from driftwise.report.columns import COMPARISON, MEANINGS
from driftwise.report.markup import Markup, render
from driftwise.report.read import RESULT
from driftwise.report.run import Run, clean, shortened
from driftwise.report.run_page import Standing, build_run_page
from driftwise.report.style import styles_of
from driftwise.report.sweeps import RUNS, Entry, Place, Sweep, names_a_file
from driftwise.report.words import plural

PAGES, FAILURES, FIGURES = "pages", "failures", "figures"
STATES = DONE, NOT_DONE, FAILED = ("done", "not done", "failed")

FIRST, LAST = ("benchmark", "method", "adaptation"), ("buffer_size", "real_buffer", "num_drifts")
"""Coordinates that every cell has; whatever else a grid has stands between them."""
TITLES = {"buffer_size": "buffer", "real_buffer": "real buffer", "num_drifts": "drifts"}
INDEX_MEANINGS = MEANINGS | {
    "buffer_size": "Samples that the replay buffer holds, as named in the grid.",
    "real_buffer": "Samples that the replay buffer really held: a smaller scale shrinks it with the"
    " data.",
}
MEASURES = (
    *("faa", "forgetting", "labels_adaptation", "labels_monitoring"),
    *("tpr", "fpr", "seconds", "gflops"),
)
"""What is shown of each run, by the keys of the comparison's columns."""
_COLUMNS = [next(column for column in COMPARISON if column.key == key) for key in MEASURES]
WITH_SPREAD = ("faa", "forgetting")

MOST_SEEDS = 12
"""Runs of its own cell that a run's page names."""
LONGEST_REASON = 500
"""Letters of the reason of a failure."""
TABLES = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX", "txt": "text"}
"""Files beside a sweep's figures that hold its table, by their ending."""

Coordinate = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run at one place of a grid."""

    cell: int
    """its place in the list of cells"""
    id: str
    seed: int
    state: str
    """one of STATES"""
    reason: str
    """why it is not done, where that is known; of one that is done, why it was not adapted"""
    run: Run | None


@dataclass(frozen=True, kw_only=True)
class CellRow:
    """What runs of all seeds share."""

    sweeps: tuple[int, ...]
    """places of the sweeps that ask for just these runs"""
    coordinates: tuple[Coordinate, ...]
    """one per name of the listing"""
    place: Place
    """as in the grid"""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """All of it, in the order of the sweeps and their grids."""

    names: tuple[str, ...]
    """what the coordinates are"""
    cells: tuple[CellRow, ...]
    runs: tuple[RunRow, ...]


def write_index(
    out: Path, sweeps: Sequence[Sweep], *, fragments: Mapping[str, Markup] | None = None
) -> Path:
    """Write OUT/index.html over all runs, and OUT/pages/ID.html for each that is done.

    `fragments` are tables, by the name of the sweep that they belong to. Each file appears whole or
    not at all; the index comes last.
    """
    fragments = fragments or {}
    unknown = set(fragments) - {sweep.name for sweep in sweeps}
    if unknown:
        raise ValueError(f"fragments for sweeps that are not there: {', '.join(sorted(unknown))}")
    listing = rows_of(sweeps, _troubles(out, sweeps))
    states = {row.id: row.state for row in listing.runs}
    page = render(
        "index.html",
        title=sweeps[0].name if len(sweeps) == 1 else plural(len(sweeps), "sweep"),
        summary=_counted(Counter(states.values())) + ".",
        sweeps=[_section(out, sweep, states, fragments.get(sweep.name)) for sweep in sweeps],
        data=_data(sweeps, listing),
    )
    _write_run_pages(out, sweeps, listing)
    with replacing(out / "index.html") as file:
        file.write(page.encode())
    return out / "index.html"


def _troubles(out: Path, sweeps: Sequence[Sweep]) -> dict[str, tuple[str, str]]:
    """State and reason of runs that are not done, by id, where a reason is known."""
    troubles = {}
    for entry in (entry for sweep in sweeps for entry in sweep.entries if entry.run is None):
        if failure := _failure(out, entry.id):
            troubles[entry.id] = FAILED, failure
        elif (out / RUNS / entry.id / RESULT).is_file():
            troubles[entry.id] = NOT_DONE, f"its {RESULT} is damaged"
    return troubles


def _failure(out: Path, run_id: str) -> str:
    """Why the last attempt at a run failed; empty if none did."""
    try:
        attempts = read_json(out / FAILURES / f"{run_id}.json", SMALL)["attempts"]
        tries = f"{plural(len(attempts), 'attempt')}, the last: "
        return shortened(tries + str(attempts[-1]["error"]), LONGEST_REASON)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        return f"the note about its failure is damaged: {error!r}"


# --- rows and cells ------------------------------------------------------------------------------


def rows_of(sweeps: Sequence[Sweep], troubles: Mapping[str, tuple[str, str]]) -> Listing:
    """One row per run and place; `troubles` are state and reason by the id of a run."""
    # A run that was finished between the reading of two sweeps is done for both.
    finished = {entry.id: entry.run for sweep in sweeps for entry in sweep.entries if entry.run}
    members: dict[tuple[str, tuple[str, ...]], tuple[list[int], list[Entry]]] = {}
    for number, sweep in enumerate(sweeps):
        places: dict[str, list[Entry]] = {}
        for entry in sweep.entries:
            places.setdefault(json.dumps(entry.place, sort_keys=True), []).append(entry)
        for spelled, unsorted in places.items():
            entries = sorted(unsorted, key=lambda each: each.seed)
            ids = tuple(entry.id for entry in entries)
            members.setdefault((spelled, ids), ([], entries))[0].append(number)
    keys = dict.fromkeys(key for _, entries in members.values() for key in entries[0].place)
    names = (*FIRST, *(key for key in keys if key not in (*FIRST, *LAST)), *LAST)
    cells: list[CellRow] = []
    runs: list[RunRow] = []
    for numbers, entries in members.values():
        done = next((finished[entry.id] for entry in entries if entry.id in finished), None)
        for entry in entries:
            run = finished.get(entry.id)
            state, reason = troubles.get(entry.id, (NOT_DONE, ""))
            if run is not None:
                state, reason = DONE, run.not_adapted
            runs.append(
                RunRow(
                    cell=len(cells),
                    id=entry.id,
                    seed=entry.seed,
                    state=state,
                    reason=clean(reason),
                    run=run,
                )
            )
        place = entries[0].place
        coordinates = tuple(_coordinate(name, place, done) for name in names)
        cells.append(CellRow(sweeps=tuple(numbers), coordinates=coordinates, place=place))
    return Listing(names=names, cells=tuple(cells), runs=tuple(runs))


def _coordinate(name: str, place: Place, run: Run | None) -> Coordinate:
    """As in the grid; where the grid has none, as in a run of the cell."""
    if name == "real_buffer":
        return None if run is None else run.buffer_size
    value = place.get(name, getattr(run, name, None) if name in (*FIRST, *LAST) else None)
    return value if value is None or isinstance(value, bool | int | float) else clean(value)


def _data(sweeps: Sequence[Sweep], listing: Listing) -> dict[str, object]:
    """What the table's script needs, in lists to keep it small."""
    adaptation = listing.names.index("adaptation")
    looks = styles_of(str(cell.coordinates[adaptation]) for cell in listing.cells)
    return {
        "sweeps": [sweep.name for sweep in sweeps],
        "states": STATES,
        "colours": {name: look.colour for name, look in looks.items()},
        "names": [
            {
                "key": key,
                "title": clean(TITLES.get(key, key)),
                "meaning": INDEX_MEANINGS.get(key, ""),
            }
            for key in listing.names
        ],
        "measures": [
            {
                "key": column.key,
                "title": column.whole,
                "meaning": column.meaning,
                # Places after the point; others are shown as short as they stay readable.
                "digits": int(column.form[1]) if column.form else None,
                "spread": column.key in WITH_SPREAD,
            }
            for column in _COLUMNS
        ],
        "cells": [[cell.sweeps, cell.coordinates] for cell in listing.cells],
        "runs": [
            [
                *(row.cell, row.id, row.seed, STATES.index(row.state), row.reason),
                _measures(row.run) if row.run else [],
            ]
            for row in listing.runs
        ],
    }


def _measures(run: Run) -> list[float | None]:
    """One per entry of MEASURES, with as many digits as anybody reads."""
    cell = Cell(runs=(run,))
    values = [column.value(cell) for column in _COLUMNS]
    return [
        float(f"{value.mean:.9g}")
        if isinstance(value, Stat) and math.isfinite(value.mean)
        else None
        for value in values
    ]


# --- the sections of sweeps ----------------------------------------------------------------------


def _section(
    out: Path, sweep: Sweep, states: Mapping[str, str], table: Markup | None
) -> dict[str, object]:
    """For the template: how far a sweep is, its table, what was drawn from it."""
    counts = Counter(states[entry.id] for entry in sweep.entries)
    what = f"Reproduces {sweep.reproduces} at scale" if sweep.reproduces else "Scale"
    # The table, where there is one, begins with the scale and what it means.
    note = f": {sweep.scale_note}" if sweep.scale_note and not table else ""
    folder, at = out / sweep.name, quote(sweep.name)
    has_files = names_a_file(sweep.name) and folder.is_dir()
    figures: dict[str, dict[str, str]] = {}
    for file in sorted((folder / FIGURES).glob("*")) if has_files else ():
        if file.suffix in (".svg", ".png") and file.is_file():
            address = f"{at}/{FIGURES}/{quote(file.name)}"
            figures.setdefault(file.stem, {})[file.suffix[1:].upper()] = address
    return {
        "name": sweep.name,
        "about": f"{what} {sweep.scale}{note}",
        "counted": _counted(counts),
        "done": 100 * counts[DONE] / max(1, counts.total()),
        "failed": 100 * counts[FAILED] / max(1, counts.total()),
        "warnings": sweep.warnings,
        "table": table,
        "tables": [
            (words, f"{at}/table.{ending}")
            for ending, words in TABLES.items()
            if has_files and (folder / f"table.{ending}").is_file()
        ],
        "figures": [
            {
                "name": stem.replace("-", " ").replace("_", " "),
                "files": files,
                "shown": files.get("SVG") or files["PNG"],
            }
            for stem, files in figures.items()
        ],
    }


def _counted(counts: Counter[str]) -> str:
    """How many runs there are, and in which state.

    >>> _counted(Counter({"done": 4, "failed": 1}))
    '4 of 5 runs done, 1 failed'
    """
    asked = counts.total()
    words = [f"{counts[DONE]:,} of {asked:,} {'run' if asked == 1 else 'runs'} done"]
    words += [f"{counts[state]:,} {state}" for state in (FAILED, NOT_DONE) if counts[state]]
    return ", ".join(words)


# --- the pages of runs ---------------------------------------------------------------------------


def _write_run_pages(out: Path, sweeps: Sequence[Sweep], listing: Listing) -> None:
    """A page for each run that is done; none stays of a run that no longer is."""
    members: dict[int, dict[int, str]] = {}
    rows: dict[str, list[RunRow]] = {}
    positions: dict[tuple[int, int], int] = {}
    for row in listing.runs:
        rows.setdefault(row.id, []).append(row)
        if row.run is not None:
            seeds = members.setdefault(row.cell, {})
            seeds[row.seed] = row.id
            positions[row.cell, row.seed] = len(seeds) - 1
    lists = {cell: list(seeds.items()) for cell, seeds in members.items()}
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
                seeds=_near(lists[row.cell], positions[row.cell, row.seed]),
                count=len(lists[row.cell]),
            )
            for row in places
        ]
        # Not waited for until it is on the disk: it can be made again at any time.
        with replacing(folder / f"{run_id}.html", durable=False) as file:
            file.write(build_run_page(run, run_id, standings).encode())


def _near(members: list[tuple[int, str]], position: int) -> list[tuple[int, str]]:
    """Some of a cell's runs around one of them: a page that named all would grow with each."""
    start = max(0, min(position - MOST_SEEDS // 2, len(members) - MOST_SEEDS))
    return members[start : start + MOST_SEEDS]
