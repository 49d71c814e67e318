"""All methods, adaptations and detectors of a folder of sweeps, ranked by accuracy, labels and compute.

An entry is a method with an adaptation and a detector. Its cells are the benchmarks, buffers and
numbers of drifts of the paper's tables. Entries are compared over the same cells alone: those that
most entries share, on each benchmark and over several. An entry without all of them follows unranked.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from driftwise.errors import UserError
from driftwise.report.sweeps import Sweep
from driftwise.report.table import MISSING, Head, Item, Table
from driftwise.reproduce.evidence import Done, Interval, Pool, interval_of, pools
from driftwise.reproduce.places import grouped
from driftwise.sweeps.scale import SCALES

DETECTION = ("detector", "encoder", "reference", "options.detector")
"""config keys in which entries may differ"""

FLOOR = "vanilla"


class CellName(NamedTuple):
    """A cell of the paper's tables without method and adaptation."""

    benchmark: str
    buffer_size: int
    num_drifts: int


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One entry: its costs and what it reaches."""

    method: str
    adaptation: str
    detection: str
    cells: frozenset[CellName]
    num_seeds: int
    """fewest seeds of a cell"""
    faa: Interval
    """final average accuracy, over benchmarks; the interval is over seeds"""
    gain: Interval | None
    """above the same method without adaptation, in points; the interval is over cells"""
    labels: float
    """that adaptation asked for, per run"""
    flops: float | None
    """of training, detection and adaptation, per run; None: not counted"""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Entries over the cells that they share."""

    name: str
    """a benchmark, or several"""
    cells: frozenset[CellName]
    ranked: Sequence[Standing]
    """that have all cells, the most accurate first"""
    others: Sequence[Standing]
    """that lack some, over those that they have"""


def comparisons(sweeps: Sequence[Sweep]) -> tuple[list[Comparison], Pool]:
    """Entries at the largest scale there is, over several benchmarks and on each; and their runs."""
    found = pools(sweeps, _counts, varied=(*DETECTION, "code_identity"))
    if not found:
        raise UserError("there is no finished run with drift yet; reproduce a table first")
    pool = found[0]
    names = sorted({done.where.benchmark for done in pool.done})
    made = [
        _comparison(name, [done for done in pool.done if done.where.benchmark == name], pool.scale)
        for name in names
    ]
    whole = _comparison("", pool.done, pool.scale, several=True) if len(names) > 1 else None
    return ([whole] if whole and len(whole.ranked) > 1 else []) + made, pool


def _comparison(
    name: str, members: Sequence[Done], scale: str, *, several: bool = False
) -> Comparison:
    """Of runs, over the cells that most of their entries share; `several`: of several benchmarks."""
    by_entry = grouped(
        members, lambda done: (done.where.method, done.adaptation, _detection(done, scale))
    )
    floor: defaultdict[tuple[str, CellName], dict[int, float]] = defaultdict(dict)
    for done in members:
        if done.adaptation == FLOOR and done.run.faa is not None:
            floor[done.where.method, _cell(done)][done.seed] = done.run.faa
    cells = shared_cells(
        [frozenset(map(_cell, runs)) for runs in by_entry.values()],
        at_least=2 if several else 1,
    )
    made = [
        _standing(entry, here, floor)
        for entry, runs in by_entry.items()
        if (here := [done for done in runs if _cell(done) in cells])
    ]
    made.sort(key=lambda each: -each.faa.mean)
    return Comparison(
        name=", ".join(sorted({cell.benchmark for cell in cells})) if several else name,
        cells=cells,
        ranked=[each for each in made if each.cells == cells],
        others=[] if several else [each for each in made if each.cells != cells],
    )


def shared_cells(
    entries: Collection[frozenset[CellName]], *, at_least: int = 1
) -> frozenset[CellName]:
    """The cells over which most can be compared: entries that have them all, times cells.

    Args:
        entries: the cells of each entry.
        at_least: of how many benchmarks; empty if no entry has so many.
    """
    wide = {cells for cells in entries if len({cell.benchmark for cell in cells}) >= at_least}
    return max(
        sorted(wide, key=sorted),  # of equals the same one, in whatever order a set has them
        key=lambda cells: (len(cells) * sum(cells <= other for other in entries), len(cells)),
        default=frozenset(),
    )


def _counts(done: Done) -> bool:
    return bool(done.where.num_drifts) and done.varies_only(*DETECTION)


def _cell(done: Done) -> CellName:
    return CellName(done.where.benchmark, done.where.buffer_size, done.where.num_drifts)


def _detection(done: Done, scale: str) -> str:
    """The detector, with what it reads where that is not usual."""
    if done.adaptation == FLOOR:
        return ""  # nothing depends on it
    named = {key: str(done.setting(key)) for key in DETECTION[:3]}
    if scale in SCALES and named == SCALES[scale].detection_of(done.where.benchmark):
        return ""
    return named["detector"] if named["detector"] == "oracle" else ", ".join(named.values())


def _standing(
    entry: tuple[str, str, str],
    members: Sequence[Done],
    floor: Mapping[tuple[str, CellName], Mapping[int, float]],
) -> Standing:
    method, adaptation, detection = entry
    by_cell = grouped(members, _cell)

    def mean(read: Callable[[Done], float | None], seed: int | None = None) -> float | None:
        """Over cells of a benchmark, then over benchmarks."""
        of_benchmark: defaultdict[str, list[float]] = defaultdict(list)
        for cell, runs in by_cell.items():
            values = [read(run) for run in runs if seed in (None, run.seed)]
            known = [value for value in values if value is not None]
            if known:
                of_benchmark[cell.benchmark].append(statistics.fmean(known))
        means = [statistics.fmean(values) for values in of_benchmark.values()]
        return statistics.fmean(means) if means else None

    def faa(done: Done) -> float | None:
        return done.run.faa

    common = set.intersection(*({run.seed for run in runs} for runs in by_cell.values()))
    by_seed = [value for seed in sorted(common) if (value := mean(faa, seed)) is not None]
    gains = [
        statistics.fmean((run.run.faa or 0.0) - floor[method, cell][run.seed] for run in paired)
        for cell, runs in by_cell.items()
        if (
            paired := [
                run
                for run in runs
                if run.run.faa is not None and run.seed in floor.get((method, cell), {})
            ]
        )
    ]
    overall = mean(faa)
    assert overall is not None, "a finished run has an accuracy"
    return Standing(
        method=method,
        adaptation=adaptation,
        detection=detection,
        cells=frozenset(by_cell),
        num_seeds=min(len(runs) for runs in by_cell.values()),
        faa=interval_of(by_seed)._replace(mean=overall)
        if by_seed
        else Interval(overall, None, None),
        gain=interval_of(gains) if gains and adaptation != FLOOR else None,
        labels=mean(lambda done: done.run.labels.get("adaptation")) or 0.0,
        flops=mean(lambda done: done.run.cost(done.run.flops) or None),
    )


def undominated(entries: Sequence[Standing]) -> list[Standing]:
    """Entries to which no other is preferable: as accurate, with as few labels and FLOPs."""

    def costs(entry: Standing) -> tuple[float, ...]:
        return (-entry.faa.mean, entry.labels, entry.flops or 0.0)

    def beats(ours: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
        return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))

    return [
        entry
        for entry in entries
        if not any(beats(costs(other), costs(entry)) for other in entries)
    ]


def board(sweeps: Sequence[Sweep]) -> Table:
    """The leaderboard: one comparison below the other."""
    found, pool = comparisons(sweeps)
    rows: list[list[Item]] = []
    breaks = set()
    for each in found:
        breaks |= {len(rows), len(rows) + len(each.ranked)}
        rows += _rows(each)
    names = ("benchmark", "method", "adaptation", "detector")
    heads = [
        Head(title="rank"),
        *(Head(title=name, is_name=True) for name in names),
        Head(title="FAA %", meaning="over cells, then over benchmarks; 95 % interval over seeds"),
        Head(title="above vanilla", meaning="paired by cell and seed; 95 % interval over cells"),
        Head(title="labels", meaning="that adaptation asked for, per run"),
        Head(title="rank by labels"),
        Head(title="TFLOP", meaning="training, detection and adaptation, per run"),
        Head(title="rank by TFLOP"),
        Head(
            title="undominated", meaning="no other entry is as good in all three and better in one"
        ),
        Head(title="cells"),
        Head(title="seeds"),
    ]
    return Table(
        title=f"Leaderboard, {pool.origin}",
        about=("Every cell has drift.",),
        heads=heads,
        rows=rows,
        breaks=breaks - {0, len(rows)},
        notes=(
            "Entries are ranked by accuracy over the cells that most of them share: on each benchmark, "
            "and over several if at least two entries have cells there. An entry without all of these "
            "cells is not ranked, and its numbers are over those that it has. Detection is that of "
            "the tables, unless it is named.",
        ),
    )


def _rows(found: Comparison) -> list[list[Item]]:
    by_labels = sorted(entry.labels for entry in found.ranked)
    by_flops = sorted(entry.flops or 0.0 for entry in found.ranked)
    best = undominated(found.ranked)
    rows = []
    for number, entry in enumerate((*found.ranked, *found.others), 1):
        is_ranked = number <= len(found.ranked)

        def rank(place: int, *, shown: bool = is_ranked) -> Item:
            return Item(str(place), place) if shown else Item(MISSING)

        rows.append(
            [
                rank(number),
                Item(found.name),
                Item(entry.method),
                Item(entry.adaptation),
                Item(entry.detection or MISSING),
                Item(_interval(entry.faa, "{:.1f}"), entry.faa.mean),
                Item(MISSING if entry.gain is None else _interval(entry.gain, "{:+.1f}")),
                Item(f"{entry.labels:,.0f}", entry.labels),
                rank(1 + sum(other < entry.labels for other in by_labels)),
                Item(MISSING if entry.flops is None else f"{entry.flops / 1e12:.2f}", entry.flops),
                rank(1 + sum(other < (entry.flops or 0.0) for other in by_flops)),
                Item("yes" if entry in best else ""),
                Item(f"{len(entry.cells)} of {len(found.cells)}"),
                Item(str(entry.num_seeds), entry.num_seeds),
            ]
        )
    return rows


def _interval(value: Interval, form: str) -> str:
    text = form.format(value.mean)
    if value.low is None or value.high is None:
        return text
    return f"{text} ({form.format(value.low)} to {form.format(value.high)})"
