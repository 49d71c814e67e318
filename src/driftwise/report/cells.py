"""Which runs belong together: cells (one configuration, several seeds) and settings (cells to compare).

Runs that differ in their seed alone make a cell. Cells may be compared if they differ in nothing
but what is done about drift; they make a setting.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from driftwise.adaptation_counts import Adapted
from driftwise.report.saved_run import Run, clean, few

ORDER = ("vanilla", "fr", "fr-flush", "fr-scratch", "amr")
"""The order in which adaptations are shown; others follow by name."""

MARK = "*"
"""Marks a cell whose adaptation had nothing to act on."""
MOST_NAMED = 12
"""Names in a sentence; more are counted."""


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


def mark(cell: Cell | None) -> str:
    """The mark of a cell whose adaptation had nothing to act on; else empty."""
    return MARK if cell is not None and cell.not_adapted else ""


def notes_below(named: Iterable[tuple[str, Cell]]) -> str:
    """What the mark means at cells of these names, each reason once; empty without a mark."""
    whose: defaultdict[str, list[str]] = defaultdict(list)
    for name, cell in named:
        if cell.not_adapted:
            whose[cell.not_adapted].append(name.removesuffix(MARK))
    notes = [f"{note} ({', '.join(few(names, MOST_NAMED))})" for note, names in whose.items()]
    return f"{MARK} {'; '.join(notes)}" if notes else ""


def place_of(adaptation: str) -> tuple[int, str]:
    """Sorts adaptations into the order in which they are shown."""
    place = ORDER.index(adaptation) if adaptation in ORDER else len(ORDER)
    return place, adaptation


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
        return ", ".join(filter(None, parts))

    @property
    def labels(self) -> tuple[str, ...]:
        """One name per cell, all different: the adaptation and, where needed, what else differs.

        One whose adaptation had nothing to act on is marked.
        """
        pairs = {(cell.adaptation, cell.detector) for cell in self.cells}
        detectors = Counter(adaptation for adaptation, _ in pairs)
        names = []
        for cell in self.cells:
            detector = cell.detector if detectors[cell.adaptation] > 1 else ""
            parts = filter(None, (cell.adaptation, detector, cell.trait))
            names.append(", ".join(parts) + mark(cell))
        return tuple(names)

    @property
    def not_adapted(self) -> str:
        """Of the cells that are marked, why; empty where none is."""
        return notes_below(zip(self.labels, self.cells, strict=True))

    def find(self, adaptation: str, detector: str | None = None) -> Cell | None:
        """The cell of an adaptation, by preference with this detector."""
        cells = [cell for cell in self.cells if cell.adaptation == adaptation]
        same = [cell for cell in cells if cell.detector == detector]
        return next(iter([*same, *cells]), None)


# --- grouping ------------------------------------------------------------------------------------

TITLE = ("benchmark", "method", "buffer_size", "num_drifts")
"""What a setting is named after; whatever else distinguishes it is its variant."""
OF_A_RUN = ("seed", "threads")
"""Config keys in which the runs of one cell may differ."""
OF_A_CELL = (
    *("adaptation", "detector", "options.adaptation", "options.detector"),
    *("label_budget", "min_harm", "device"),
)
"""Config keys, with all below them, in which the cells of one setting may differ."""
LONGEST_VALUE = 32
"""Letters of a config value in a title."""
ABSENT = "not set"

Traits = Mapping[str, str]
"""What decides the results of a run, config keys joined by dots, values as text; an absent key
means None."""


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

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs that are part of the report, cell by cell."""
        return tuple(run for cell in self.cells for run in cell.runs)


def group(runs: Sequence[Run]) -> Grouped:
    """Put runs into cells and cells into settings."""
    members: defaultdict[frozenset[tuple[str, str]], dict[int, Run]] = defaultdict(dict)
    warnings = []
    for run in runs:
        known = members[frozenset(_traits(run).items())].setdefault(run.seed, run)
        if known is not run:
            warnings.append(f"{run.folder}: same configuration and seed as {known.folder}, skipped")
    settings: defaultdict[frozenset[tuple[str, str]], list[Cell]] = defaultdict(list)
    for by_seed in members.values():
        cell = Cell(runs=tuple(run for _, run in sorted(by_seed.items())))
        settings[frozenset(_shared_traits(cell).items())].append(cell)
    described = [_shared_traits(cells[0]) for cells in settings.values()]
    found = [
        Setting(cells=_in_order(cells), variant=_variant(traits, described))
        for cells, traits in zip(settings.values(), described, strict=True)
    ]
    return Grouped(settings=tuple(sorted(found, key=_report_order)), warnings=tuple(warnings))


def _variant(traits: Traits, described: Sequence[Traits]) -> str:
    """What is not in the title of a setting and differs between settings of its benchmark."""
    peers = [each for each in described if each["benchmark"] == traits["benchmark"]]
    same_method = [each for each in peers if each["method"] == traits["method"]]
    # Options that only another method has do not concern this one.
    own = _differing_keys(same_method)
    keys = [
        key
        for key in _differing_keys(peers)
        if key not in TITLE and (key in own or not _is_below(key, "options.method"))
    ]
    return _spell(traits, keys, peers)


def _in_order(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells of a setting as they are shown; those of one name with their traits."""
    alike: defaultdict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        alike[cell.adaptation, cell.detector].append(cell)
    named = []
    for members in alike.values():
        traits = [_traits(cell.first) for cell in members]
        keys = _differing_keys(traits)
        named += [
            replace(cell, trait=_spell(own, keys, traits))
            for cell, own in zip(members, traits, strict=True)
        ]
    return tuple(sorted(named, key=_setting_order))


def _differing_keys(described: Sequence[Traits]) -> list[str]:
    keys = dict.fromkeys(key for traits in described for key in traits)
    return [key for key in keys if len({traits.get(key) for traits in described}) > 1]


def _spell(traits: Traits, keys: Sequence[str], among: Sequence[Traits]) -> str:
    words = []
    for key in keys:
        names = _cut({each[key] for each in among if key in each})
        value = names[traits[key]] if key in traits else ABSENT
        words.append(f"{key.removeprefix('options.')} {value}")
    return ", ".join(words)


def _cut(texts: Iterable[str]) -> dict[str, str]:
    """Each text with its middle cut out if it is long, and a number where two then are alike."""
    half = LONGEST_VALUE // 2
    cut = {
        text: text if len(text) <= LONGEST_VALUE else f"{text[:half]}…{text[1 - half :]}"
        for text in sorted(texts)
    }
    alike, met = Counter(cut.values()), Counter[str]()
    for text, name in cut.items():
        met[name] += 1
        if alike[name] > 1:
            cut[text] = f"{name} ({met[name]})"
    return cut


def _traits(run: Run) -> Traits:
    """All that decides what a run computes, and with what its results can be compared."""
    names = (*TITLE, "adaptation", "detector", "num_tasks", "class_names")
    flat = _flat({**run.config, **{name: getattr(run, name) for name in names}})
    return {key: text for key, text in flat.items() if key not in OF_A_RUN}


def _shared_traits(cell: Cell) -> Traits:
    """The traits in which all cells of a setting are alike."""
    traits = _traits(cell.first)
    return {k: v for k, v in traits.items() if not any(_is_below(k, own) for own in OF_A_CELL)}


def _is_below(key: str, branch: str) -> bool:
    return key == branch or key.startswith(f"{branch}.")


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested keys joined by dots, values as text; what is empty is as good as absent."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            flat[f"{prefix}{key}"] = clean(value)
        elif value is not None and value != [] and value != ():
            text = json.dumps(_plain(value), ensure_ascii=False, sort_keys=True)
            flat[f"{prefix}{key}"] = clean(text)
    return flat


def _plain(value: Any) -> Any:
    """JSON data in which equal numbers are written alike: 1.0 as 1."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _setting_order(cell: Cell) -> tuple[object, ...]:
    # What is not set (for example no limit on labels) comes before any number.
    return (*place_of(cell.adaptation), cell.detector, _natural(cell.trait.replace(ABSENT, "")))


def _report_order(setting: Setting) -> tuple[object, ...]:
    run, variant = setting.first, _natural(setting.variant)
    return run.benchmark, run.method, run.buffer_size or 0, run.num_drifts, variant


def _natural(text: str) -> list[str | float]:
    """Sorts numbers within texts by size.

    >>> sorted(["severity 10", "severity 9"], key=_natural)
    ['severity 9', 'severity 10']
    """
    # Texts and numbers alternate, so that like is always compared with like.
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [float(part) if index % 2 else part for index, part in enumerate(parts)]
