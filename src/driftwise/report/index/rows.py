"""Every run that sweeps ask for as a row of plain values, and the cells that rows belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driftwise.report.cells import Cell, Stat
from driftwise.report.columns import COMPARISON, Column
from driftwise.report.run import Run, clean
from driftwise.report.sweeps import Entry, Place, Sweep

DONE, NOT_DONE, FAILED = "done", "not done", "failed"
STATES = (DONE, NOT_DONE, FAILED)

FIRST, LAST = ("benchmark", "method", "adaptation"), ("buffer_size", "real_buffer", "num_drifts")
"""Coordinates that every cell has; whatever else a grid has stands between them."""

MEASURES = (
    "faa",
    "forgetting",
    "labels_adaptation",
    "labels_monitoring",
    "tpr",
    "fpr",
    "seconds",
    "gflops",
)
"""What is told of each run, by the names that the tables' columns have."""

Coordinate = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why a run is not done."""

    state: str
    reason: str


NOT_YET = Trouble(state=NOT_DONE, reason="")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run."""

    cell: int
    """its place in the list of cells"""
    id: str
    seed: int
    state: str
    """one of STATES"""
    reason: str
    """why it is not done, where that is known; of one that is done, why it was not adapted"""
    measures: tuple[float | None, ...]
    """one per entry of MEASURES; empty unless it is done"""
    run: Run | None


@dataclass(frozen=True, kw_only=True)
class CellRow:
    """What runs of all seeds share."""

    sweeps: tuple[int, ...]
    """places of the sweeps that ask for just these runs"""
    coordinates: tuple[Coordinate, ...]
    """one per name of the listing"""
    place: Place
    """as the grid says it"""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """All of it, in the order of the sweeps and their grids."""

    names: tuple[str, ...]
    """what the coordinates are"""
    cells: tuple[CellRow, ...]
    runs: tuple[RunRow, ...]


def columns() -> tuple[Column, ...]:
    """The columns of MEASURES, with their headings and meanings."""
    by_key = {column.key: column for column in COMPARISON}
    return tuple(by_key[key] for key in MEASURES)


def rows_of(sweeps: Sequence[Sweep], troubles: Mapping[str, Trouble]) -> Listing:
    """One row per run and place; `troubles` are told by the id of a run."""
    # A run that was finished between the reading of two sweeps is done for both.
    finished = {entry.id: entry.run for sweep in sweeps for entry in sweep.entries if entry.run}
    members: dict[tuple[str, tuple[str, ...]], tuple[list[int], list[Entry]]] = {}
    for number, sweep in enumerate(sweeps):
        for spelled, entries in _by_place(sweep).items():
            ids = tuple(entry.id for entry in entries)
            members.setdefault((spelled, ids), ([], entries))[0].append(number)
    names = _names([entries[0].place for _, entries in members.values()])
    cells, runs = [], []
    for cell, (numbers, entries) in enumerate(members.values()):
        place = entries[0].place
        done = next((finished[entry.id] for entry in entries if entry.id in finished), None)
        coordinates = tuple(_coordinate(name, place, done) for name in names)
        cells.append(CellRow(sweeps=tuple(numbers), coordinates=coordinates, place=place))
        runs += [
            _run_row(cell, entry, finished.get(entry.id), troubles.get(entry.id, NOT_YET))
            for entry in entries
        ]
    return Listing(names=names, cells=tuple(cells), runs=tuple(runs))


def _by_place(sweep: Sweep) -> Mapping[str, list[Entry]]:
    places: dict[str, list[Entry]] = {}
    for entry in sweep.entries:
        places.setdefault(json.dumps(entry.place, sort_keys=True), []).append(entry)
    return {place: sorted(entries, key=lambda each: each.seed) for place, entries in places.items()}


def _names(places: Sequence[Place]) -> tuple[str, ...]:
    others = dict.fromkeys(key for place in places for key in place)
    return (*FIRST, *(key for key in others if key not in (*FIRST, *LAST)), *LAST)


def _coordinate(name: str, place: Place, run: Run | None) -> Coordinate:
    """As the grid says it; where it says nothing, as a run of the cell has it."""
    if name == "real_buffer":
        return None if run is None else run.buffer_size
    value = place.get(name, getattr(run, name, None) if name in (*FIRST, *LAST) else None)
    return value if value is None or isinstance(value, bool | int | float) else clean(value)


def _run_row(cell: int, entry: Entry, run: Run | None, trouble: Trouble) -> RunRow:
    return RunRow(
        cell=cell,
        id=entry.id,
        seed=entry.seed,
        state=DONE if run is not None else trouble.state,
        reason=run.not_adapted if run is not None else clean(trouble.reason),
        measures=() if run is None else _measures(run),
        run=run,
    )


_COLUMNS = columns()


def _measures(run: Run) -> tuple[float | None, ...]:
    alone = Cell(runs=(run,))
    values = [column.value(alone) for column in _COLUMNS]
    return tuple(value.mean if isinstance(value, Stat) else None for value in values)
