"""Runs that differ only in their seed make a cell; cells that are to be compared make a setting."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recollect.report.run import Floats, Run, clean

NOT_PART_OF_A_CELL = ("seed", "threads")
"""Config keys in which the runs of one cell may differ."""

ORDER = ("vanilla", "fr", "fr-flush", "fr-scratch", "amr")
"""The order in which adaptations are shown; others follow by name."""


@dataclass(frozen=True, kw_only=True)
class Stat:
    """A number over seeds."""

    mean: float
    sd: float | None
    """sample standard deviation; None: one seed tells nothing about spread"""
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

    @property
    def first(self) -> Run:
        """The run with the lowest seed; it speaks for what all runs of the cell share."""
        return self.runs[0]

    @property
    def adaptation(self) -> str:
        """What was done about drift."""
        return self.first.adaptation

    @property
    def detector(self) -> str:
        """What looked for drift."""
        return self.first.detector

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
    """Cells with the same stream, method and memory: they differ in what was done about drift."""

    cells: tuple[Cell, ...]
    variant: str
    """config values that tell this setting from another of the same names; often empty"""

    @property
    def first(self) -> Run:
        """A run that speaks for what all cells share (the stream, its classes and events)."""
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
        """One short name per cell: the adaptation, and the detector where that tells two apart."""
        names = [cell.adaptation for cell in self.cells]
        return tuple(
            f"{cell.adaptation}, {cell.detector}" if names.count(cell.adaptation) > 1 else name
            for cell, name in zip(self.cells, names, strict=True)
        )

    def find(self, adaptation: str, detector: str | None = None) -> Cell | None:
        """The cell of an adaptation, by preference with this detector."""
        cells = [cell for cell in self.cells if cell.adaptation == adaptation]
        same = [cell for cell in cells if cell.detector == detector]
        return next(iter([*same, *cells]), None)


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """All runs in their places."""

    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    """one line for each run whose seed is there already"""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, setting by setting."""
        return tuple(cell for setting in self.settings for cell in setting.cells)


def group(runs: Sequence[Run]) -> Grouped:
    """Put runs into cells and cells into settings."""
    members: defaultdict[str, dict[int, Run]] = defaultdict(dict)
    warnings = []
    for run in runs:
        known = members[_cell_key(run)].setdefault(run.seed, run)
        if known is not run:
            warnings.append(f"{run.folder}: same configuration and seed as {known.folder}, skipped")
    cells = [
        Cell(runs=tuple(run for _, run in sorted(by_seed.items()))) for by_seed in members.values()
    ]
    return Grouped(settings=_settings(cells), warnings=tuple(warnings))


def _names(run: Run) -> tuple[object, ...]:
    return run.benchmark, run.method, run.buffer_size, run.num_drifts


def _cell_key(run: Run) -> str:
    """Equal for two runs exactly if they differ in nothing but their seed."""
    config = {key: value for key, value in run.config.items() if key not in NOT_PART_OF_A_CELL}
    names = [*_names(run), run.adaptation, run.detector]
    shape = [run.num_tasks, run.class_names, run.confusion is None]
    return json.dumps([names, shape, config], sort_keys=True, default=str)


def _settings(cells: Sequence[Cell]) -> tuple[Setting, ...]:
    by_names: defaultdict[tuple[object, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        by_names[_names(cell.first)].append(cell)
    settings = []
    for namesakes in by_names.values():
        keys = _telling_keys(namesakes)
        by_variant: defaultdict[str, list[Cell]] = defaultdict(list)
        for cell in namesakes:
            by_variant[_variant(cell, keys)].append(cell)
        for variant, members in by_variant.items():
            ordered = tuple(sorted(members, key=_place_in_setting))
            settings.append(Setting(cells=ordered, variant=variant))
    return tuple(sorted(settings, key=_place_in_report))


def _telling_keys(cells: Sequence[Cell]) -> list[str]:
    """Config keys that tell cells of the same adaptation and detector apart.

    They hold for the other cells of these names too: vanilla and amr at severity 3 are compared
    with each other, and not with those at severity 5.
    """
    twins: defaultdict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for cell in cells:
        twins[cell.adaptation, cell.detector].append(_flat(cell.first.config))
    return sorted(
        {
            key
            for configs in twins.values()
            for key in set().union(*configs)
            if len({config.get(key) for config in configs}) > 1 and key not in NOT_PART_OF_A_CELL
        }
    )


def _variant(cell: Cell, keys: Sequence[str]) -> str:
    config = _flat(cell.first.config)
    return ", ".join(f"{key} {config.get(key, 'not set')}" for key in keys)


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested config keys joined by dots, values as text."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = clean(value if isinstance(value, str) else json.dumps(value))
    return flat


def place_of(adaptation: str) -> tuple[int, str]:
    """Sorts adaptations into the order in which they are shown."""
    place = ORDER.index(adaptation) if adaptation in ORDER else len(ORDER)
    return place, adaptation


def _place_in_setting(cell: Cell) -> tuple[object, ...]:
    return (*place_of(cell.adaptation), cell.detector)


def _place_in_report(setting: Setting) -> tuple[object, ...]:
    run = setting.first
    return run.benchmark, run.method, run.buffer_size or 0, run.num_drifts, setting.variant
