"""A sweep's results at the places of the paper's tables, beside the published numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from driftwise.adaptation_counts import NEVER_ADAPTS
from driftwise.errors import UserError
from driftwise.report.cells import MARK, Cell, Stat, mark, notes_below, place_of
from driftwise.report.comparison import MEANINGS, compact
from driftwise.report.saved_run import Run
from driftwise.report.sweeps import Place, Sweep
from driftwise.report.table import MISSING, Head, Item, Table, csv_text
from driftwise.report.words import plural
from driftwise.reproduce import published
from driftwise.reproduce.places import distinct, drift_words, grouped
from driftwise.reproduce.published import PublishedCell

STANDARD = ("benchmark", "backbone", "buffer_size", "method", "num_drifts", "adaptation")
"""What identifies a published number."""
RATES = ("tpr", "fpr")
NOT_RUN = "not run"

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

    def stat(self, read: Callable[[Run], float | None]) -> Stat | None:
        """Mean and spread over the seeds of what `read` takes from a run."""
        return None if self.measured is None else self.measured.stat(read)

    @property
    def faa(self) -> Stat | None:
        """Final average accuracy in percent."""
        return self.stat(lambda run: run.faa)

    @property
    def labels(self) -> Stat | None:
        """How many labels the adaptation asked for."""
        return self.stat(lambda run: run.labels.get("adaptation"))

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
        """Why the adaptation had nothing to act on; empty where it had, or nothing has run."""
        return "" if self.measured is None else self.measured.not_adapted

    @property
    def difference(self) -> float | None:
        """Mean FAA here minus the published one, in points."""
        if self.faa is None or self.published is None:
            return None
        return self.faa.mean - self.published.faa


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
    rows: Mapping[tuple[Value, ...], Mapping[Value, TableCell]]
    """by the values of `keys`, then by number of drifts; without a cell: not published either"""

    @cached_property
    def cells(self) -> list[TableCell]:
        """All cells, row by row."""
        return [row[count] for row in self.rows.values() for count in self.drifts if count in row]

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
        named = "settings" if self.sweep.scale == "own" else f"scale {self.sweep.scale}"
        scale = f"{named}: {self.sweep.scale_note}"
        return tuple(
            filter(None, (scale, _seeds(self), _foreign_benchmark(self), _not_adapted(self)))
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What else the numbers mean: buffers, labels, sources."""
        marks = notes_below(
            (self.name_of(cell), cell.measured) for cell in self.cells if cell.measured is not None
        )
        return tuple(filter(None, (marks, _buffers(self), _labels(self), *_sources(self))))

    def name_of(self, cell: TableCell) -> str:
        """What distinguishes a cell from the others of the table."""
        names = [str(value) for key in self.keys if (value := cell.place.get(key)) is not None]
        if len(self.drifts) > 1:
            names.append(drift_words(cell.place.get("num_drifts")))
        return " ".join(names)

    def laid_out(
        self, heads: Sequence[Head], rows: Sequence[Sequence[Item]], breaks: Iterable[int] = ()
    ) -> Table:
        """A table with this title and these notes."""
        return Table(
            title=self.title,
            about=self.about,
            heads=heads,
            rows=rows,
            breaks={*breaks},
            notes=self.notes,
        )


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
        TableCell(place=_place_of(cell, sweep, known), measured=None, seeds_asked=0, published=cell)
        for cell in known
        if cell not in met
    ]
    order = {cell: index for index, cell in enumerate(known)}
    cells.sort(key=lambda cell: order[cell.published] if cell.published else len(order))
    return _rows_and_columns(sweep, cells)


def _key(place: Place) -> str:
    return json.dumps(place, sort_keys=True)


def _published(place: Place, known: Sequence[PublishedCell]) -> PublishedCell | None:
    """The one published cell at a place; on a benchmark that the table does not have, that of the
    same place on its own."""
    foreign = place.get("benchmark") not in {cell.benchmark for cell in known}
    keys = [key for key in STANDARD if key in place and not (foreign and key == "benchmark")]
    found = [cell for cell in known if all(place[key] == getattr(cell, key) for key in keys)]
    return found[0] if len(found) == 1 else None


def _place_of(cell: PublishedCell, sweep: Sweep, known: Sequence[PublishedCell]) -> Place:
    """A published cell that the sweep leaves out, with the keys of the sweep's own places."""
    keys = {key for entry in sweep.entries for key in entry.place} or set(STANDARD)
    place: dict[str, Value] = {key: getattr(cell, key) for key in STANDARD if key in keys}
    ours = _benchmarks(sweep)
    if len(ours) == len({each.benchmark for each in known}) == 1:
        place["benchmark"] = ours[0]
    return place


def _benchmarks(sweep: Sweep) -> list[str]:
    names = (entry.place.get("benchmark") for entry in sweep.entries)
    return distinct(str(name) for name in names if name is not None)


def _rows_and_columns(sweep: Sweep, cells: Sequence[TableCell]) -> PaperTable:
    present = distinct(key for cell in cells for key in cell.place)
    values = {key: distinct(cell.place.get(key) for cell in cells) for key in present}
    keys = [key for key in STANDARD[:4] if key in present]
    keys += [key for key in present if key not in STANDARD]
    naming = [key for key in keys if len(values[key]) > 1]
    naming += [key for key in ("adaptation",) if key in present]

    def names(cell: TableCell) -> tuple[Value, ...]:
        return tuple(cell.place.get(key) for key in naming)

    def position(row: tuple[Value, ...]) -> list[tuple[int, str]]:
        return [
            place_of(str(name)) if key == "adaptation" else (values[key].index(name), "")
            for key, name in zip(naming, row, strict=True)
        ]

    rows = grouped(cells, names)
    return PaperTable(
        sweep=sweep,
        keys=tuple(naming),
        shared={key: values[key][0] for key in keys if key not in naming},
        drifts=tuple(sorted(values.get("num_drifts", [None]), key=lambda count: int(count or 0))),
        rows={
            row: {cell.place.get("num_drifts"): cell for cell in rows[row]}
            for row in sorted(rows, key=position)
        },
    )


# What stands around a table.


def _seeds(table: PaperTable) -> str:
    counts = sorted({cell.seeds_asked for cell in table.cells if cell.seeds_asked}) or [0]
    each = " to ".join(map(str, distinct([counts[0], counts[-1]])))
    noun = "seed" if each == "1" else "seeds"
    line = f"{each} {noun} in each cell; {table.sweep.num_done} of "
    line += f"{plural(len(table.sweep.entries), 'run')} done"
    damaged = len(table.sweep.warnings)
    return f"{line} ({plural(damaged, 'warning')} while reading)" if damaged else line


def _foreign_benchmark(table: PaperTable) -> str:
    theirs = distinct(cell.published.benchmark for cell in table.cells if cell.published)
    foreign = [name for name in _benchmarks(table.sweep) if theirs and name not in theirs]
    if not foreign:
        return ""
    return (
        f"benchmark differs from the paper: {', '.join(foreign)}, published for "
        f"{', '.join(theirs)}; the differences below are between benchmarks"
    )


def _not_adapted(table: PaperTable) -> str:
    """How many of the numbers are not due to an adaptation."""
    done = [cell for cell in table.cells if cell.num_seeds]
    idle = [cell for cell in done if cell.not_adapted]
    if not idle:
        return ""
    others = [cell for cell in done if cell.place.get("adaptation") != NEVER_ADAPTS]
    return (
        f"{MARK} {len(idle)} of {plural(len(others), 'cell')} with an adaptation were not adapted: "
        "their numbers say nothing about it"
    )


def _buffers(table: PaperTable) -> str:
    sizes: dict[Value, set[int]] = {}
    for cell in table.cells:
        if cell.buffer_size is not None:
            sizes.setdefault(cell.place.get("buffer_size"), set()).add(cell.buffer_size)
    if not sizes:
        return ""
    if all(real == {nominal} for nominal, real in sizes.items()):
        return f"buffers hold {', '.join(map(str, sizes))} samples, as named"
    words = [f"{nominal} stands for {span(real)} samples here" for nominal, real in sizes.items()]
    return f"buffers are the paper's, and smaller at this scale: {'; '.join(words)}"


def _labels(table: PaperTable) -> str:
    """Absolute counts, because fractions depend on the scale."""
    asked = [cell for cell in table.cells if cell.labels is not None and cell.labels.mean > 0]
    places = grouped(asked, lambda c: (c.place.get("buffer_size"), c.place.get("num_drifts")))
    words = []
    for (buffer, drifts), cells in places.items():
        where = [f"buffer {buffer}"] if buffer is not None else []
        where += [drift_words(drifts)] if drifts is not None else []
        counts = [
            f"{name} {span(cell.labels.mean for cell in members if cell.labels)}"
            for name, members in grouped(cells, lambda c: c.place.get("adaptation")).items()
        ]
        words.append(": ".join(filter(None, (", ".join(where), ", ".join(counts)))))
    lead = "labels that adaptation asked for in a run, fewest to most over the rows above"
    return f"{lead}: {'; '.join(words)}" if words else ""


def span(values: Iterable[float]) -> str:
    """The lowest and the highest, or the one that there is.

    >>> span([3.0, 3.0]), span([17.0, 2.0, 5.0])
    ('3', '2 to 17')
    """
    ordered = sorted(values)
    return " to ".join(distinct(map(compact, (ordered[0], ordered[-1]))))


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


# Layouts.


def like_the_paper(table: PaperTable, *, decimals: int) -> Table:
    """Two lines to a row, the measured and the published; drifts side by side."""
    heads = [Head(title=_title(key), is_name=True) for key in table.keys]
    for count in table.drifts:
        group = "" if count is None else drift_words(count)
        heads.append(Head(title="FAA ± sd (F)", group=group))
        heads += [Head(title="diff", group=group)] if table.has_published else []
    lines: list[list[str]] = []
    breaks = []
    above: tuple[Value, ...] | None = None
    for names, row in table.rows.items():
        *blocks, last = map(_text, names)
        if names[:-1] == above:
            blocks = [""] * len(blocks)
        elif above is not None:
            breaks.append(len(lines))
        above = names[:-1]
        measured, known = [*blocks, last], [*("" for _ in blocks), "  paper"]
        for count in table.drifts:
            cell = row.get(count)
            measured.append(MISSING if cell is None else _measured(cell, decimals))
            known.append("" if cell is None else _printed(cell.published, decimals))
            if table.has_published:
                measured.append("" if cell is None else _difference(cell, decimals))
                known.append("")
        lines += [measured, known] if table.has_published else [measured]
    return table.laid_out(heads, [list(map(Item, line)) for line in lines], breaks)


def _measured(cell: TableCell, decimals: int) -> str:
    if cell.faa is None:
        return NOT_RUN
    seeds = f" [{cell.num_seeds}]" if cell.num_seeds < cell.seeds_asked else ""
    forgetting = cell.stat(lambda run: run.forgetting)
    lost = None if forgetting is None else forgetting.mean
    return _numbers(cell.faa.mean, cell.faa.sd, lost, decimals) + mark(cell.measured) + seeds


def _printed(known: PublishedCell | None, decimals: int) -> str:
    if known is None:
        return MISSING
    return _numbers(known.faa, known.faa_std, known.forgetting, decimals)


def _numbers(mean: float, sd: float | None, forgetting: float | None, decimals: int) -> str:
    spread = "" if sd is None else f" ± {sd:.{decimals}f}"
    lost = "" if forgetting is None else f" ({forgetting:.{decimals}f})"
    return f"{mean:.{decimals}f}{spread}{lost}"


def _difference(cell: TableCell, decimals: int) -> str:
    return "" if cell.difference is None else f"{cell.difference:+.{decimals}f}"


_MEASURES = {
    "buffer_size_here": ("samples here", "Samples that the buffer really held."),
    "seeds": ("seeds", "Runs that are done, one per seed."),
    "seeds_asked": None,
    "faa": ("FAA", "Final average accuracy in percent, with the deviation over seeds."),
    "forgetting": ("forgetting", "How far a task fell from its best accuracy, in points."),
    "labels_adaptation": ("labels asked", MEANINGS["labels_adaptation"]),
    "published_benchmark": None,
    "published_faa": ("published FAA", "With the deviation over three runs."),
    "published_forgetting": ("published forgetting", "In points."),
    "difference": ("difference", "FAA here minus published, in points."),
    "published_source": None,
    "not_adapted": ("not adapted", MEANINGS["not_adapted"]),
}
"""Key in CSV; title and meaning on a page, None: in CSV alone."""
_OF_THE_PAPER = ("published_faa", "published_forgetting", "difference")
_WITH_SD = ("faa", "forgetting", "labels_adaptation", "published_faa")


def cell_by_cell(table: PaperTable) -> Table:
    """One row per cell: for a page, and with more columns and nothing rounded for CSV."""
    sweep, cells = table.sweep, table.cells
    origin = {"sweep": sweep.name, "scale": sweep.scale, "scale_note": sweep.scale_note}
    places = [key for key in STANDARD if any(key in cell.place for cell in cells)]
    places += [key for key in (*table.shared, *table.keys) if key not in STANDARD]
    words = {key for cell in cells for key in cell.place if isinstance(cell.place[key], str)}
    meanings = {
        **MEANINGS,
        "buffer_size": "Samples that the replay buffer can hold, as in the paper.",
    }
    heads = [Head(title=key, only_csv=True) for key in origin]
    heads += [
        Head(
            title=_title(key),
            key=key,
            meaning=meanings.get(key, ""),
            is_name=key in words,
            only_csv=key not in (*table.keys, "num_drifts"),
        )
        for key in places
    ]
    for key, shown in _MEASURES.items():
        empty = key == "not_adapted" and not any(cell.not_adapted for cell in cells)
        empty |= key in _OF_THE_PAPER and not table.has_published
        title, meaning = shown or (key, "")
        heads.append(
            Head(
                title=title,
                key=key,
                meaning=meaning,
                has_sd=key in _WITH_SD,
                only_csv=shown is None or empty,
            )
        )
    rows = [
        [
            *map(_item, origin.values()),
            *(_item(cell.place.get(key)) for key in places),
            *_values(cell),
        ]
        for cell in cells
    ]
    not_run = [row for row, cell in enumerate(cells) if not cell.num_seeds]
    return replace(
        table.laid_out(heads, rows),
        folded=not_run,
        folded_words="cells that have not been run yet",
    )


def _values(cell: TableCell) -> Sequence[Item]:
    """One item per entry of _MEASURES."""
    known = cell.published
    stat = Stat(mean=known.faa, sd=known.faa_std, count=published.NUM_RUNS) if known else None
    forgetting = cell.stat(lambda run: run.forgetting)
    seeds = f"{cell.num_seeds} of {cell.seeds_asked}" if cell.num_seeds else NOT_RUN
    return (
        _item(cell.buffer_size),
        Item(seeds, cell.num_seeds),
        _item(cell.seeds_asked),
        Item(_mean(cell.faa) + mark(cell.measured), cell.faa),
        Item(_mean(forgetting, with_sd=False), forgetting),
        Item(MISSING if cell.labels is None else compact(cell.labels.mean), cell.labels),
        _item(known.benchmark if known else None),
        Item(_mean(stat), stat),
        Item(f"{known.forgetting:.2f}", known.forgetting) if known else _item(None),
        Item(_difference(cell, 2) or MISSING, cell.difference),
        _item(published.SOURCE if known else None),
        _item(cell.not_adapted or None),
    )


def _mean(stat: Stat | None, *, with_sd: bool = True) -> str:
    return MISSING if stat is None else _numbers(stat.mean, stat.sd if with_sd else None, None, 2)


def _item(value: Value) -> Item:
    return Item(_text(value), value)


def _text(value: Value) -> str:
    if value is None:
        return MISSING
    return f"{value:g}" if isinstance(value, float) else str(value)


def _title(key: str) -> str:
    return {"buffer_size": "buffer", "num_drifts": "drifts"}.get(key, key.replace("_", " "))


# Accuracy as a function of a detector's true- and false-positive rates.


def detector_table(sweep: Sweep) -> Table:
    """Mean FAA by true-positive rate (rows) and false-positive rate (columns), per adaptation."""
    cells = _cells_with_rates(sweep)
    table = paper_table(sweep)
    names = [key for key in table.keys if key not in (*RATES, "adaptation")]
    names += ["num_drifts"] if len(table.drifts) > 1 else []
    names.append("adaptation")
    columns = sorted({float(place["fpr"] or 0) for place, _ in cells})
    rows: dict[tuple[Value, ...], dict[float, Item]] = {}
    for place, cell in cells:
        row = (*(place.get(key) for key in names), float(place["tpr"] or 0))
        rows.setdefault(row, {})[float(place["fpr"] or 0)] = _rate_item(cell)
    ordered = sorted(rows, key=lambda row: (*map(str, row[:-2]), place_of(str(row[-2])), row[-1]))
    heads = [Head(title=key.replace("_", " "), is_name=True) for key in (*names, "TPR")]
    heads += [Head(title=f"FPR {rate:g}", group="FAA ± sd") for rate in columns]
    return Table(
        title=f"{table.title}: accuracy by the detector's rates",
        about=table.about,
        heads=heads,
        rows=[
            [
                *(Item(compact(n) if isinstance(n, float) else str(n), n) for n in row),
                *(rows[row].get(rate, Item(MISSING)) for rate in columns),
            ]
            for row in ordered
        ],
        breaks={i for i in range(1, len(ordered)) if ordered[i][:-1] != ordered[i - 1][:-1]},
        notes=table.notes,
    )


def detector_csv(sweep: Sweep) -> str:
    """One line per cell, nothing rounded: rates asked for and reached, accuracy, labels."""
    cells = _cells_with_rates(sweep)
    keys = distinct(key for place, _ in cells for key in place)
    reached = ("tpr_reached", "fpr_reached", "labels_adaptation")
    header = ["sweep", "scale", *keys, "seeds", "faa", "faa_sd", *reached, "not_adapted"]
    lines: list[list[object]] = [[*header]]
    for place, cell in cells:
        line: list[object] = [sweep.name, sweep.scale, *(place.get(key) for key in keys)]
        if cell is None:
            lines.append([*line, 0, *[None] * 6])
            continue
        faa = cell.stat(lambda run: run.faa)
        line += [len(cell.runs), *((None, None) if faa is None else (faa.mean, faa.sd))]
        line += [cell.mean(lambda run: run.detection.get("tpr"))]
        line += [cell.mean(lambda run: run.detection.get("fpr"))]
        lines.append([*line, cell.mean(lambda run: run.labels.get("adaptation")), cell.not_adapted])
    return csv_text(lines)


def _cells_with_rates(sweep: Sweep) -> list[tuple[Place, Cell | None]]:
    cells = [(place, cell) for place, cell in sweep.cells() if {*RATES} <= {*place}]
    if not cells:
        raise UserError(
            f"expected a sweep over the rates {' and '.join(RATES)} of a detector, but the grid of "
            f"{sweep.name} has neither; choose another sweep"
        )
    return cells


def _rate_item(cell: Cell | None) -> Item:
    faa = None if cell is None else cell.stat(lambda run: run.faa)
    if faa is None:
        return Item(NOT_RUN)
    return Item(_numbers(faa.mean, faa.sd, None, 1) + mark(cell), faa.mean)
