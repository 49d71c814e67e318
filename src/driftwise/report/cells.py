"""Cells and settings: runs that share a configuration, and cells that are to be compared."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from driftwise.adaptation_counts import Adapted
from driftwise.report.run import Floats, Run

ORDER = ("vanilla", "fr", "fr-flush", "fr-scratch", "amr")
"""The order in which adaptations are shown; others follow by name."""


@dataclass(frozen=True, kw_only=True)
class Stat:
    """A number over seeds."""

    mean: float
    sd: float | None
    """sample standard deviation; None: one seed has no spread"""
    count: int


def stat_of(values: Iterable[float | None]) -> Stat | None:
    """Mean and sample standard deviation of what is known; None if nothing is.

    >>> stat_of([1.0, None, 3.0])
    Stat(mean=2.0, sd=1.4142135623730951, count=2)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    sd = statistics.stdev(known) if len(known) > 1 else None
    return Stat(mean=statistics.fmean(known), sd=sd, count=len(known))


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """One entry of a comparison: the same configuration, run with several seeds."""

    runs: tuple[Run, ...]
    """by seed, each seed once"""
    trait: str = ""
    """config values that distinguish it from other cells of its setting with the same names"""

    @property
    def first(self) -> Run:
        """The run with the lowest seed, for what all runs of the cell share."""
        return self.runs[0]

    @property
    def adaptation(self) -> str:
        """What was done about drift."""
        return self.first.adaptation

    @property
    def detector(self) -> str:
        """What detected drift."""
        return self.first.detector

    @property
    def not_adapted(self) -> str:
        """That the adaptation had nothing to act on, with some seeds or with all; else empty."""
        idle = [run for run in self.runs if run.not_adapted]
        if not idle:
            return ""
        why = sum((run.adapted for run in idle), Adapted()).obstacle
        some = f" with {len(idle)} of {len(self.runs)} seeds" if len(idle) < len(self.runs) else ""
        return f"not adapted{some}: {why}"

    def stat(self, read: Callable[[Run], float | None]) -> Stat | None:
        """Mean and spread over the seeds of what `read` takes from a run."""
        return stat_of(read(run) for run in self.runs)

    def mean(self, read: Callable[[Run], float | None]) -> float | None:
        """The mean over seeds alone."""
        stat = self.stat(read)
        return None if stat is None else stat.mean


def mean_known(stack: Sequence[Floats]) -> Floats:
    """Entry by entry, the mean over arrays of one shape; NaN only where all are NaN."""
    values = np.stack(stack)
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    totals = np.where(known, values, 0.0).sum(axis=0)
    means: Floats = np.where(counts > 0, totals / np.maximum(counts, 1), math.nan)
    return means


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """Cells that are alike in everything but what was done about drift, and how it was found."""

    cells: tuple[Cell, ...]
    variant: str
    """config values beside the title's that distinguish this setting; often empty"""

    @property
    def first(self) -> Run:
        """A run, for what all cells share (the stream, its classes and events)."""
        return self.cells[0].first

    @property
    def title(self) -> str:
        """In words, for a heading."""
        run = self.first
        buffer = "no buffer" if run.buffer_size is None else f"buffer {run.buffer_size}"
        drifts = "1 drift" if run.num_drifts == 1 else f"{run.num_drifts or 'no'} drifts"
        parts = [run.benchmark, run.method, buffer, drifts, self.variant]
        return ", ".join(part for part in parts if part)

    @property
    def labels(self) -> tuple[str, ...]:
        """One name per cell, all different: the adaptation and, where needed, what else differs.

        One whose adaptation had nothing to act on is marked.
        """
        detectors: defaultdict[str, set[str]] = defaultdict(set)
        for cell in self.cells:
            detectors[cell.adaptation].add(cell.detector)
        parts = [
            (
                cell.adaptation,
                cell.detector if len(detectors[cell.adaptation]) > 1 else "",
                cell.trait,
            )
            for cell in self.cells
        ]
        return tuple(
            ", ".join(filter(None, names)) + mark(cell)
            for names, cell in zip(parts, self.cells, strict=True)
        )

    @property
    def not_adapted(self) -> str:
        """Of the cells that are marked, why; empty where none is."""
        return notes_below(zip(self.labels, self.cells, strict=True))

    def find(self, adaptation: str, detector: str | None = None) -> Cell | None:
        """The cell of an adaptation, by preference with this detector."""
        cells = [cell for cell in self.cells if cell.adaptation == adaptation]
        same = [cell for cell in cells if cell.detector == detector]
        return next(iter([*same, *cells]), None)


MARK = "*"
"""Stands at what was not adapted."""

MOST_NAMED = 12
"""Cells that a note names; of more it gives the number."""


def mark(cell: Cell | None) -> str:
    """The mark of a cell whose adaptation had nothing to act on; else empty."""
    return MARK if cell is not None and cell.not_adapted else ""


def notes_below(named: Iterable[tuple[str, Cell]]) -> str:
    """What the mark means at cells of these names, each reason once; empty without a mark."""
    whose: defaultdict[str, list[str]] = defaultdict(list)
    for name, cell in named:
        if cell.not_adapted:
            whose[cell.not_adapted].append(name.removesuffix(MARK))
    notes = []
    for note, names in whose.items():
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        notes.append(f"{note} ({', '.join(names[:MOST_NAMED])}{more})")
    return f"{MARK} {'; '.join(notes)}" if notes else ""


def place_of(adaptation: str) -> tuple[int, str]:
    """Sorts adaptations into the order in which they are shown."""
    place = ORDER.index(adaptation) if adaptation in ORDER else len(ORDER)
    return place, adaptation
