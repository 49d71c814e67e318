"""A sweep's results at the places of the paper's tables, beside the published numbers."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from driftwise.adaptation_counts import NEVER_ADAPTS
from driftwise.report.cells import MARK, Cell, Stat, notes_below, place_of
from driftwise.report.columns import compact
from driftwise.report.run import Run
from driftwise.report.sweeps import Place, Sweep
from driftwise.report.words import plural
from driftwise.reproduce import published
from driftwise.reproduce.published import PublishedCell

STANDARD = ("benchmark", "backbone", "buffer_size", "method", "num_drifts", "adaptation")
"""What a published number is found by."""

Value = str | int | float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class TableCell:
    """One place of the table: what was measured there, and what was published."""

    place: Place
    """nominal, as in the grid"""
    measured: Cell | None
    """None: no run is done"""
    seeds_asked: int
    """0: the sweep does not ask for this cell"""
    published: PublishedCell | None

    @property
    def faa(self) -> Stat | None:
        """Final average accuracy in percent."""
        return self._stat(lambda run: run.faa)

    @property
    def forgetting(self) -> Stat | None:
        """Forgetting in points."""
        return self._stat(lambda run: run.forgetting)

    @property
    def labels(self) -> Stat | None:
        """How many labels the adaptation asked for."""
        return self._stat(lambda run: run.labels.get("adaptation"))

    def _stat(self, read: Callable[[Run], float | None]) -> Stat | None:
        return None if self.measured is None else self.measured.stat(read)

    @property
    def num_seeds(self) -> int:
        """How many runs are done."""
        return 0 if self.measured is None else len(self.measured.runs)

    @property
    def buffer_size(self) -> int | None:
        """Samples that the buffer really held."""
        return None if self.measured is None else self.measured.first.buffer_size

    @property
    def not_adapted(self) -> str:
        """That the adaptation had nothing to act on; empty where it had, or nothing has run."""
        return "" if self.measured is None else self.measured.not_adapted

    @property
    def difference(self) -> float | None:
        """Mean FAA here minus the published one, in points."""
        if self.faa is None or self.published is None:
            return None
        return self.faa.mean - self.published.faa


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """Cells that differ in the number of drifts alone."""

    names: tuple[Value, ...]
    """one per key of the table"""
    cells: tuple[TableCell | None, ...]
    """one per number of drifts; None: neither published nor asked for"""


@dataclass(frozen=True, kw_only=True, eq=False)
class PaperTable:
    """A sweep as a table, without its layout."""

    sweep: Sweep
    keys: tuple[str, ...]
    """what names a row"""
    shared: Mapping[str, Value]
    """what all cells have in common"""
    drifts: tuple[Value, ...]
    """the column groups"""
    rows: tuple[Row, ...]

    @property
    def cells(self) -> Iterator[TableCell]:
        """All cells, row by row."""
        return (cell for row in self.rows for cell in row.cells if cell is not None)

    @property
    def has_published(self) -> bool:
        """Whether there is anything to compare with."""
        return any(cell.published is not None for cell in self.cells)

    @property
    def title(self) -> str:
        """In words: the sweep, what it redraws, and what all cells share."""
        redraws = f" ({self.sweep.reproduces} of the paper)" if self.has_published else ""
        shared = [
            f"{value}" if isinstance(value, str) else f"{key.replace('_', ' ')} {value}"
            for key, value in self.shared.items()
            if value is not None
        ]
        return ", ".join([f"{self.sweep.name}{redraws}", *shared])

    @property
    def about(self) -> tuple[str, ...]:
        """What must be known before any number is read: scale, benchmark, seeds."""
        lines = [f"scale {self.sweep.scale}: {self.sweep.scale_note}", _seeds(self)]
        return (*lines, *_foreign_benchmark(self), *_not_adapted(self))

    @property
    def notes(self) -> tuple[str, ...]:
        """What else the numbers mean: buffers, labels, sources."""
        named = [
            (self.name_of(cell), cell.measured) for cell in self.cells if cell.measured is not None
        ]
        marks = notes_below(named)
        return (*([marks] if marks else []), *_buffers(self), *_labels(self), *_sources(self))

    def name_of(self, cell: TableCell) -> str:
        """What distinguishes a cell from the others of the table."""
        names = [str(value) for key in self.keys if (value := cell.place.get(key)) is not None]
        if len(self.drifts) > 1:
            names.append(drifts_in_words(cell.place.get("num_drifts")))
        return " ".join(names)


def paper_table(sweep: Sweep) -> PaperTable:
    """The table that a sweep redraws, finished or not; any other sweep in the same layout."""
    known = published.table(sweep.reproduces) if sweep.reproduces in published.NAMES else ()
    asked = Counter(_key(entry.place) for entry in sweep.entries)
    cells = [
        TableCell(
            place=place,
            measured=measured,
            seeds_asked=asked[_key(place)],
            published=_published(place, known),
        )
        for place, measured in sweep.cells()
    ]
    met = {cell.published for cell in cells}
    cells += [
        TableCell(place=place, measured=None, seeds_asked=0, published=cell)
        for place, cell in _never_asked(sweep, [cell for cell in known if cell not in met], known)
    ]
    order = {cell: index for index, cell in enumerate(known)}
    cells.sort(key=lambda cell: order[cell.published] if cell.published else len(order))
    return _laid_out(sweep, cells)


def _key(place: Place) -> str:
    return json.dumps(place, sort_keys=True)


def _published(place: Place, known: Sequence[PublishedCell]) -> PublishedCell | None:
    """The one published cell at a place; on a benchmark that the table does not have, that of the
    same place on its own."""
    foreign = place.get("benchmark") not in {cell.benchmark for cell in known}
    keys = [key for key in STANDARD if key in place and not (foreign and key == "benchmark")]
    found = [cell for cell in known if all(place[key] == getattr(cell, key) for key in keys)]
    return found[0] if len(found) == 1 else None


def _never_asked(
    sweep: Sweep, missing: Sequence[PublishedCell], known: Sequence[PublishedCell]
) -> Iterator[tuple[Place, PublishedCell]]:
    """Published cells that the sweep leaves out, in the words of its own places."""
    keys = {key for entry in sweep.entries for key in entry.place} or set(STANDARD)
    ours = _benchmarks(sweep)
    theirs = {cell.benchmark for cell in known}
    for cell in missing:
        place: dict[str, Value] = {key: getattr(cell, key) for key in STANDARD if key in keys}
        if len(ours) == len(theirs) == 1:
            place["benchmark"] = ours[0]
        yield place, cell


def _benchmarks(sweep: Sweep) -> list[str]:
    names = (entry.place.get("benchmark") for entry in sweep.entries)
    return list(dict.fromkeys(str(name) for name in names if name is not None))


def _laid_out(sweep: Sweep, cells: Sequence[TableCell]) -> PaperTable:
    present = dict.fromkeys(key for cell in cells for key in cell.place)
    ends = ("num_drifts", "adaptation")
    keys = [key for key in STANDARD if key in present and key not in ends]
    keys += [key for key in present if key not in STANDARD]
    values = {key: list(dict.fromkeys(cell.place.get(key) for cell in cells)) for key in present}
    differing = [key for key in keys if len(values[key]) > 1]
    differing += [key for key in ("adaptation",) if key in present]
    rows: defaultdict[tuple[Value, ...], dict[Value, TableCell]] = defaultdict(dict)
    for cell in cells:
        names = tuple(cell.place.get(key) for key in differing)
        rows[names][cell.place.get("num_drifts")] = cell

    def position(names: tuple[Value, ...]) -> list[tuple[int, str]]:
        return [
            place_of(str(name)) if key == "adaptation" else (values[key].index(name), "")
            for key, name in zip(differing, names, strict=True)
        ]

    drifts = sorted(values.get("num_drifts", [None]), key=lambda count: int(count or 0))
    return PaperTable(
        sweep=sweep,
        keys=tuple(differing),
        shared={key: values[key][0] for key in keys if key not in differing},
        drifts=tuple(drifts),
        rows=tuple(
            Row(names=names, cells=tuple(rows[names].get(count) for count in drifts))
            for names in sorted(rows, key=position)
        ),
    )


def _seeds(table: PaperTable) -> str:
    counts = sorted({cell.seeds_asked for cell in table.cells if cell.seeds_asked})
    each = (
        " to ".join(str(count) for count in dict.fromkeys([counts[0], counts[-1]]))
        if counts
        else "0"
    )
    noun = "seed" if each == "1" else "seeds"
    line = f"{each} {noun} in each cell; {table.sweep.num_done} of "
    line += f"{plural(len(table.sweep.entries), 'run')} done"
    damaged = len(table.sweep.warnings)
    return f"{line} ({plural(damaged, 'warning')} while reading)" if damaged else line


def _foreign_benchmark(table: PaperTable) -> list[str]:
    theirs = dict.fromkeys(cell.published.benchmark for cell in table.cells if cell.published)
    foreign = [name for name in _benchmarks(table.sweep) if theirs and name not in theirs]
    if not foreign:
        return []
    return [
        f"benchmark differs from the paper: {', '.join(foreign)}, published for "
        f"{', '.join(theirs)}; the differences below are between benchmarks"
    ]


def _not_adapted(table: PaperTable) -> list[str]:
    """How many of the numbers are not due to an adaptation."""
    done = [cell for cell in table.cells if cell.num_seeds]
    idle = [cell for cell in done if cell.not_adapted]
    if not idle:
        return []
    others = [cell for cell in done if cell.place.get("adaptation") != NEVER_ADAPTS]
    return [
        f"{MARK} {len(idle)} of {plural(len(others), 'cell')} with an adaptation were not adapted: "
        "their numbers say nothing about it"
    ]


def _buffers(table: PaperTable) -> list[str]:
    sizes: dict[Value, set[int]] = {}
    for cell in table.cells:
        if cell.buffer_size is not None:
            sizes.setdefault(cell.place.get("buffer_size"), set()).add(cell.buffer_size)
    if not sizes:
        return []
    if all(real == {nominal} for nominal, real in sizes.items()):
        return [f"buffers hold {', '.join(map(str, sizes))} samples, as named"]
    words = [
        f"{nominal} stands for {span(sorted(map(float, real)))} samples here"
        for nominal, real in sizes.items()
    ]
    return [f"buffers are the paper's, and smaller at this scale: {'; '.join(words)}"]


def _labels(table: PaperTable) -> list[str]:
    """Absolute counts, because shares depend on the scale."""
    asked: defaultdict[tuple[Value, Value], defaultdict[str, list[float]]]
    asked = defaultdict(lambda: defaultdict(list))
    for cell in table.cells:
        if cell.labels is not None and cell.labels.mean > 0:
            place = cell.place.get("buffer_size"), cell.place.get("num_drifts")
            asked[place][str(cell.place.get("adaptation"))].append(cell.labels.mean)
    words = []
    for (buffer, drifts), by_adaptation in asked.items():
        where = [f"buffer {buffer}"] if buffer is not None else []
        where += [drifts_in_words(drifts)] if drifts is not None else []
        counts = [f"{name} {span(sorted(means))}" for name, means in by_adaptation.items()]
        words.append(": ".join(filter(None, (", ".join(where), ", ".join(counts)))))
    if not words:
        return []
    lead = "labels that adaptation asked for in a run, fewest to most over the rows above"
    return [f"{lead}: {'; '.join(words)}"]


def span(ordered: Sequence[float]) -> str:
    """The lowest and the highest, or the one that there is.

    >>> span([3.0, 3.0]), span([2.0, 5.0, 17.0])
    ('3', '2 to 17')
    """
    return " to ".join(dict.fromkeys(map(compact, (ordered[0], ordered[-1]))))


def drifts_in_words(count: Value) -> str:
    """A number of drifts as a heading.

    >>> drifts_in_words(0), drifts_in_words(1), drifts_in_words(4)
    ('no drift', '1 drift', '4 drifts')
    """
    return "no drift" if not count else f"{count} drift" if count == 1 else f"{count} drifts"


def _sources(table: PaperTable) -> list[str]:
    lines = [
        "FAA: final average accuracy (%), mean ± sample standard deviation over seeds; "
        "F: forgetting; not run: no result yet; [n]: only n seeds are done"
    ]
    if table.has_published:
        spread = any(cell.published and cell.published.faa_std for cell in table.cells)
        words = f"± over {published.NUM_RUNS} runs" if spread else "no deviations published"
        lines.append(
            f"published numbers: {published.SOURCE}; {words}; diff: FAA here minus published"
        )
    return lines
