"""The points of a sweep's grid, sorted into the panels of its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from driftwise.report.cells import Cell, Stat, place_of
from driftwise.report.saved_run import Run
from driftwise.report.sweeps import Place, Sweep

MAX_COLUMNS = 6
"""Panels side by side; a wider grid becomes several figures."""

NAMED = ("benchmark", "method", "adaptation", "buffer_size", "num_drifts")
FLOOR = "vanilla"
"""Does not adapt; the gains of others are counted from there."""

T = TypeVar("T")
K = TypeVar("K")
Value = str | int | float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class GridPoint:
    """One point of a sweep's grid, and its finished runs."""

    benchmark: str
    method: str
    adaptation: str
    buffer_size: int | None
    """nominal; the run's own may be smaller"""
    num_drifts: int
    others: Mapping[str, Value]
    """every other setting in which the places of the sweep differ"""
    place: Place
    """all settings, those that the grid does not name included"""
    cell: Cell | None
    """None: not done yet"""

    @property
    def faa(self) -> Stat | None:
        """Final average accuracy over seeds; None: not known."""
        return None if self.cell is None else self.cell.stat(lambda run: run.faa)

    def variant(self, *without: str) -> str:
        """A panel's title: the method, and what else distinguishes it from its neighbours."""
        words = [
            str(value) if isinstance(value, str) else f"{key} {value}"
            for key, value in self.others.items()
            if key not in without and value is not None
        ]
        return ", ".join([self.method, *words])


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The places that share a figure: variants x buffers, with adaptations in each."""

    benchmark: str
    num_drifts: int
    part: int
    """counted from 1, where one figure could not hold all variants"""
    points: tuple[GridPoint, ...]
    undrifted: tuple[GridPoint, ...]
    """the same without drift and without adaptation, where the grid has it"""

    @property
    def title(self) -> str:
        """In words."""
        return f"{self.benchmark}, {drift_words(self.num_drifts)}"

    @property
    def suffix(self) -> str:
        """The part, for a file name; empty for the first."""
        return f"-{self.part}" if self.part > 1 else ""

    @property
    def slug(self) -> str:
        """For a file name."""
        return f"{self.benchmark}-d{self.num_drifts}{self.suffix}"

    @property
    def variants(self) -> list[str]:
        """The panels' columns."""
        return distinct(point.variant() for point in self.points)

    @property
    def buffers(self) -> list[int | None]:
        """The panels' rows, small ones first."""
        return sorted(distinct(point.buffer_size for point in self.points), key=lambda b: b or 0)

    @property
    def adaptations(self) -> list[str]:
        """In the order in which they are shown."""
        return sorted(distinct(point.adaptation for point in self.points), key=place_of)

    @property
    def panels(self) -> list[tuple[str, int | None]]:
        """Variant and buffer of each panel, row by row."""
        return [(variant, buffer) for buffer in self.buffers for variant in self.variants]

    def at(self, variant: str, buffer_size: int | None) -> list[GridPoint]:
        """The places of one panel, by adaptation."""
        here = [p for p in self.points if (p.variant(), p.buffer_size) == (variant, buffer_size)]
        return sorted(here, key=lambda point: place_of(point.adaptation))

    def undrifted_at(self, variant: str, buffer_size: int | None) -> Cell | None:
        """What one panel would show if nothing drifted."""
        for point in self.undrifted:
            if (point.variant(), point.buffer_size) == (variant, buffer_size) and point.cell:
                return point.cell
        return None

    @property
    def is_begun(self) -> bool:
        """Whether there is anything to show."""
        return any(point.cell is not None for point in self.points)

    def begun(self) -> Group:
        """The variants and buffers of which something has run: others get no empty panels."""
        points = [point for point in self.points if point.cell is not None]
        variants = {point.variant() for point in points}
        buffers = {point.buffer_size for point in points}
        kept = (p for p in self.points if p.variant() in variants and p.buffer_size in buffers)
        return replace(self, points=tuple(kept))

    @property
    def absent_words(self) -> str:
        """The variants and buffers that `begun` leaves out, as a sentence after others."""
        begun = self.begun()
        absent = [
            *(variant for variant in self.variants if variant not in begun.variants),
            *(buffer_words(buffer) for buffer in self.buffers if buffer not in begun.buffers),
        ]
        return f" Not run yet: {', '.join(absent)}." if absent else ""


def grid_points(sweep: Sweep) -> tuple[GridPoint, ...]:
    """Every place of a sweep once, in the order of its grid; none as long as no run is done.

    A setting that the grid does not name is the same in all its runs: any finished one has it.
    """
    done = next((entry.run for entry in sweep.entries if entry.run is not None), None)
    if done is None:
        return ()
    cells = list(sweep.cells())
    keys = distinct(key for place, _ in cells for key in place if key not in NAMED)
    differing = [key for key in keys if len({place.get(key) for place, _ in cells}) > 1]
    return tuple(_grid_point(place, cell, done, differing) for place, cell in cells)


def _grid_point(place: Place, cell: Cell | None, done: Run, differing: Sequence[str]) -> GridPoint:
    full = {**{key: getattr(done, key) for key in NAMED}, **place}
    buffer_size = full["buffer_size"]
    return GridPoint(
        benchmark=str(full["benchmark"]),
        method=str(full["method"]),
        adaptation=str(full["adaptation"]),
        buffer_size=None if buffer_size is None else int(buffer_size),
        num_drifts=int(full["num_drifts"] or 0),
        others={key: place.get(key) for key in differing},
        place=full,
        cell=cell,
    )


def groups_of(points: Sequence[GridPoint]) -> list[Group]:
    """One group per benchmark and number of drifts.

    Places without drift are what the others are compared with; they get a group of their own only
    if there is something to compare among them, or nothing else.
    """
    groups = []
    for benchmark in distinct(point.benchmark for point in points):
        here = [point for point in points if point.benchmark == benchmark]
        undrifted = [point for point in here if not point.num_drifts]
        counts = sorted({point.num_drifts for point in here})
        if (
            counts[0] == 0
            and len(counts) > 1
            and {point.adaptation for point in undrifted} == {FLOOR}
        ):
            counts = counts[1:]
        for count in counts:
            members = [point for point in here if point.num_drifts == count]
            variants = distinct(point.variant() for point in members)
            for part, start in enumerate(range(0, len(variants), MAX_COLUMNS), start=1):
                shown = variants[start : start + MAX_COLUMNS]
                groups.append(
                    Group(
                        benchmark=benchmark,
                        num_drifts=count,
                        part=part,
                        points=tuple(point for point in members if point.variant() in shown),
                        undrifted=tuple(p for p in undrifted if count and p.adaptation == FLOOR),
                    )
                )
    return [group for group in groups if group.is_begun]


def drift_words(count: Value) -> str:
    """How often classes drift.

    >>> drift_words(0), drift_words(1), drift_words(2)
    ('no drift', '1 drift', '2 drifts')
    """
    return "no drift" if not count else f"{count} drift" if count == 1 else f"{count} drifts"


def buffer_words(buffer_size: int | None) -> str:
    """The name of a row of panels.

    >>> buffer_words(5000)
    'buffer 5,000'
    """
    return "no buffer" if buffer_size is None else f"buffer {buffer_size:,}"


def setting_words(point: GridPoint, *without: str) -> str:
    """Benchmark, method, buffer and number of drifts, for a headline."""
    parts = point.benchmark, point.variant(*without), buffer_words(point.buffer_size)
    return ", ".join([*parts, drift_words(point.num_drifts)])


def distinct(values: Iterable[T]) -> list[T]:
    """Each value once, in the order in which they came.

    >>> distinct([3, 1, 3])
    [3, 1]
    """
    return list(dict.fromkeys(values))


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by key, in the order in which they came.

    >>> grouped([1, 2, 3], lambda number: number % 2)
    {1: [1, 3], 0: [2]}
    """
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
