"""The page over all runs of all sweeps, and a page for each run that is done."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from driftwise.files import SMALL, Manifest, folder_in, read_json, replacing
from driftwise.report.cells import Cell, Stat
from driftwise.report.comparison import COMPARISON, MEANINGS
from driftwise.report.markup import Markup, render
from driftwise.report.read import RESULT
from driftwise.report.run_page import Standing, address_of, build_run_page
from driftwise.report.saved_run import Run, clean, shortened
from driftwise.report.style import styles_of
from driftwise.report.sweeps import RUNS, Entry, Place, Sweep, names_a_file
from driftwise.report.words import glossary, plural

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

FIGURE_WORDS = {
    "accuracy": "Mean accuracy over the tasks seen so far, after each task; dashed lines mark drift.",
    "cost": "Final accuracy against what it took: labels, time, FLOPs. Up and to the left is better.",
    "gain": "Points of final accuracy above vanilla, which does nothing about drift; diamonds: as published.",
    "radar": "Labels, time and FLOPs as multiples of full relearning; closer to the centre is cheaper.",
    "severity": "Final accuracy against the severity of the drift.",
    "detector": "Final accuracy where the detector misses drifts (TPR) or raises false alarms (FPR).",
    "features": "Samples of the first classes in feature space, task by task, in two dimensions.",
}
"""How to read a figure, by the beginning of its file's name."""

Coordinate = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True, eq=False)
class IndexCell:
    """The runs of all seeds at one place of a grid."""

    sweeps: Sequence[int]
    """places of the sweeps that ask for just these runs"""
    place: Place
    """as in the grid"""
    coordinates: tuple[Coordinate, ...]
    """one per name of the listing"""
    entries: Sequence[Entry]
    """by seed; one that was finished between the reading of two sweeps is done for both"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Listing:
    """All cells, in the order of the sweeps and their grids."""

    names: tuple[str, ...]
    """what the coordinates are"""
    cells: tuple[IndexCell, ...]


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
    listing = cells_of(sweeps)
    states = {entry.id: _state(out, entry) for cell in listing.cells for entry in cell.entries}
    page = render(
        "index.html",
        title=sweeps[0].name if len(sweeps) == 1 else plural(len(sweeps), "sweep"),
        summary=_counted(Counter(state for state, _ in states.values())) + ".",
        sweeps=[_section(out, sweep, states, fragments.get(sweep.name)) for sweep in sweeps],
        data=_data(sweeps, listing, states),
        glossary=glossary(
            (str(cell.coordinates[listing.names.index("adaptation")]) for cell in listing.cells),
            ("FAA", "forgetting", "labels", "TPR, FPR", "time, FLOPs"),
        ),
    )
    _write_run_pages(out, sweeps, listing)
    with replacing(out / "index.html") as file:
        file.write(page.encode())
    return out / "index.html"


def cells_of(sweeps: Sequence[Sweep]) -> Listing:
    """All cells; sweeps that ask for the same runs at the same place share one."""
    finished = {entry.id: entry.run for sweep in sweeps for entry in sweep.entries if entry.run}
    members: dict[tuple[str, tuple[str, ...]], tuple[list[int], list[Entry]]] = {}
    for number, sweep in enumerate(sweeps):
        places: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in sweep.entries:
            if entry.run is None and entry.id in finished:
                entry = replace(entry, run=finished[entry.id])
            places[json.dumps(entry.place, sort_keys=True)].append(entry)
        for spelled, unsorted in places.items():
            entries = sorted(unsorted, key=lambda each: each.seed)
            ids = tuple(entry.id for entry in entries)
            members.setdefault((spelled, ids), ([], entries))[0].append(number)
    keys = dict.fromkeys(key for _, entries in members.values() for key in entries[0].place)
    names = (*FIRST, *(key for key in keys if key not in (*FIRST, *LAST)), *LAST)
    cells = []
    for numbers, entries in members.values():
        place, done = entries[0].place, next((each.run for each in entries if each.run), None)
        coordinates = tuple(_coordinate(name, place, done) for name in names)
        cells.append(
            IndexCell(sweeps=numbers, place=place, coordinates=coordinates, entries=entries)
        )
    return Listing(names=names, cells=tuple(cells))


def _coordinate(name: str, place: Place, run: Run | None) -> Coordinate:
    """As in the grid; where the grid has none, as in a run of the cell."""
    if name == "real_buffer":
        return None if run is None else run.buffer_size
    value = place.get(name, getattr(run, name, None) if name in (*FIRST, *LAST) else None)
    return value if value is None or isinstance(value, bool | int | float) else clean(value)


def _state(out: Path, entry: Entry) -> tuple[str, str]:
    """One of STATES, and why a run is not done or was not adapted, where that is known."""
    if entry.run is not None:
        return DONE, entry.run.not_adapted
    try:
        attempts = read_json(out / FAILURES / f"{entry.id}.json", SMALL)["attempts"]
        tries = f"{plural(len(attempts), 'attempt')}, the last: "
        return FAILED, shortened(tries + str(attempts[-1]["error"]), LONGEST_REASON)
    except FileNotFoundError:
        is_damaged = (out / RUNS / entry.id / RESULT).is_file()
        return NOT_DONE, f"its {RESULT} is damaged" if is_damaged else ""
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        return FAILED, clean(f"the note about its failure is damaged: {error!r}")


def _data(
    sweeps: Sequence[Sweep], listing: Listing, states: Mapping[str, tuple[str, str]]
) -> dict[str, object]:
    """What the table's script needs, in lists to keep it small."""
    adaptation = listing.names.index("adaptation")
    styles = styles_of(str(cell.coordinates[adaptation]) for cell in listing.cells)
    runs: list[list[object]] = []
    for number, cell in enumerate(listing.cells):
        for entry in cell.entries:
            state, reason = states[entry.id]
            measures = _measures(entry.run) if entry.run else []
            runs.append([number, entry.id, entry.seed, STATES.index(state), reason, measures])
    return {
        "sweeps": [sweep.name for sweep in sweeps],
        "states": STATES,
        "colours": {name: style.colour for name, style in styles.items()},
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
        "runs": runs,
    }


def _measures(run: Run) -> list[float | None]:
    """One per entry of MEASURES, with as many digits as anybody reads."""
    values = [column.value(Cell(runs=(run,))) for column in _COLUMNS]
    return [
        float(f"{value.mean:.9g}")
        if isinstance(value, Stat) and math.isfinite(value.mean)
        else None
        for value in values
    ]


def _section(
    out: Path, sweep: Sweep, states: Mapping[str, tuple[str, str]], table: Markup | None
) -> dict[str, object]:
    """For the template: how far a sweep is, its table, what was drawn from it."""
    counts = Counter(states[entry.id][0] for entry in sweep.entries)
    own = sweep.scale == "own"  # of a grid, whose settings are its own
    if sweep.reproduces:
        what = f"Reproduces {sweep.reproduces} at scale {sweep.scale}"
    else:
        what = "Settings as the grid says" if own else f"Scale {sweep.scale}"
    # The table, where there is one, begins with the scale and what it means.
    note = f": {sweep.scale_note}" if sweep.scale_note and not table and not own else ""
    folder, at = out / sweep.name, quote(sweep.name)
    has_files = names_a_file(sweep.name) and folder.is_dir()
    figures: dict[str, dict[str, str]] = {}
    for file in sorted((folder / FIGURES).glob("*")) if has_files else ():
        if file.suffix in (".svg", ".png", ".pdf") and file.is_file():
            address = f"{at}/{FIGURES}/{quote(file.name)}"
            figures.setdefault(file.stem, {})[file.suffix[1:].upper()] = address
    return {
        "name": sweep.name,
        "about": f"{what}{note}",
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
                "about": next(
                    (text for kind, text in FIGURE_WORDS.items() if stem.startswith(kind)), ""
                ),
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


def _write_run_pages(out: Path, sweeps: Sequence[Sweep], listing: Listing) -> None:
    """A page for each run that is done; none stays of a run that no longer is."""
    runs = {entry.id: entry.run for cell in listing.cells for entry in cell.entries}
    standings: defaultdict[str, list[Standing]] = defaultdict(list)
    for cell in listing.cells:
        names = ", ".join(sweeps[number].name for number in cell.sweeps)
        done = [entry for entry in cell.entries if entry.run is not None]
        seeds = [(entry.seed, address_of(entry.id)) for entry in done]
        for position, entry in enumerate(done):
            # Some around it: a page that named all runs of its cell would grow with each.
            start = max(0, min(position - MOST_SEEDS // 2, len(done) - MOST_SEEDS))
            near = seeds[start : start + MOST_SEEDS]
            standings[entry.id].append(
                Standing(sweeps=names, place=cell.place, seeds=near, count=len(done))
            )
    folder, manifest = folder_in(out, PAGES), Manifest(out, PAGES)
    manifest.add(f"{run_id}.html" for run_id, run in runs.items() if run is not None)
    manifest.remove(f"{run_id}.html" for run_id, run in runs.items() if run is None)
    for run_id, run in runs.items():
        if run is not None:
            # Not waited for until it is on the disk: it can be made again at any time.
            with replacing(folder / f"{run_id}.html", durable=False) as file:
                file.write(build_run_page(run, run_id, standings[run_id]).encode())
