"""The places of a sweep, sorted into the grids that its figures show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from driftwise.report.cells import Cell, place_of
from driftwise.report.run import Run
from driftwise.report.sweeps import Place, Sweep

MAX_COLUMNS = 6
"""Panels side by side; a wider grid becomes several figures."""

NAMED = ("benchmark", "method", "adaptation", "buffer_size", "num_drifts")
FLOOR = "vanilla"
"""Does nothing about drift; what others gain is counted from there."""

T = TypeVar("T")
Value = str | int | float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Spot:
    """One place of a grid, and what is done there."""

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

    def variant(self, *without: str) -> str:
        """What heads a panel: the method, and what else distinguishes it from its neighbours."""
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
    spots: tuple[Spot, ...]
    undrifted: tuple[Spot, ...]
    """the same without drift and without adaptation, where the grid has it"""

    @property
    def title(self) -> str:
        """In words."""
        return f"{self.benchmark}, {drift_words(self.num_drifts)}"

    @property
    def slug(self) -> str:
        """For a file name."""
        part = f"-{self.part}" if self.part > 1 else ""
        return f"{self.benchmark}-d{self.num_drifts}{part}"

    @property
    def variants(self) -> list[str]:
        """The panels' columns."""
        return distinct(spot.variant() for spot in self.spots)

    @property
    def buffers(self) -> list[int | None]:
        """The panels' rows, small ones first."""
        return sorted(distinct(spot.buffer_size for spot in self.spots), key=lambda b: b or 0)

    @property
    def adaptations(self) -> list[str]:
        """In the order in which they are shown."""
        return sorted(distinct(spot.adaptation for spot in self.spots), key=place_of)

    def at(self, variant: str, buffer_size: int | None) -> list[Spot]:
        """The places of one panel, by adaptation."""
        return sorted(
            _within(self.spots, variant, buffer_size), key=lambda s: place_of(s.adaptation)
        )

    def undrifted_at(self, variant: str, buffer_size: int | None) -> Cell | None:
        """What one panel would show if nothing drifted."""
        found = [spot.cell for spot in _within(self.undrifted, variant, buffer_size)]
        return next((cell for cell in found if cell is not None), None)

    @property
    def is_begun(self) -> bool:
        """Whether there is anything to show."""
        return any(spot.cell is not None for spot in self.spots)


def _within(spots: Sequence[Spot], variant: str, buffer_size: int | None) -> list[Spot]:
    return [s for s in spots if s.variant() == variant and s.buffer_size == buffer_size]


def spots_of(sweep: Sweep) -> tuple[Spot, ...]:
    """Every place of a sweep once, in the order of its grid; none as long as no run is done.

    A setting that the grid does not name is the same in all its runs: any finished one has it.
    """
    done = next((entry.run for entry in sweep.entries if entry.run is not None), None)
    if done is None:
        return ()
    cells = list(sweep.cells())
    keys = distinct(key for place, _ in cells for key in place if key not in NAMED)
    differing = [key for key in keys if len({place.get(key) for place, _ in cells}) > 1]
    return tuple(_spot(place, cell, done, differing) for place, cell in cells)


def _spot(place: Place, cell: Cell | None, done: Run, differing: Sequence[str]) -> Spot:
    full = {**{key: getattr(done, key) for key in NAMED}, **place}
    buffer_size = full["buffer_size"]
    return Spot(
        benchmark=str(full["benchmark"]),
        method=str(full["method"]),
        adaptation=str(full["adaptation"]),
        buffer_size=None if buffer_size is None else int(buffer_size),
        num_drifts=int(full["num_drifts"] or 0),
        others={key: place.get(key) for key in differing},
        place=full,
        cell=cell,
    )


def groups_of(spots: Sequence[Spot]) -> list[Group]:
    """One group per benchmark and number of drifts.

    Places without drift are what the others are compared with; they get a group of their own only
    if there is something to compare among them, or nothing else.
    """
    groups = []
    for benchmark in distinct(spot.benchmark for spot in spots):
        here = [spot for spot in spots if spot.benchmark == benchmark]
        undrifted = [spot for spot in here if not spot.num_drifts]
        counts = sorted({spot.num_drifts for spot in here})
        if (
            counts[0] == 0
            and len(counts) > 1
            and {spot.adaptation for spot in undrifted} == {FLOOR}
        ):
            counts = counts[1:]
        for count in counts:
            members = [spot for spot in here if spot.num_drifts == count]
            variants = distinct(spot.variant() for spot in members)
            for part, start in enumerate(range(0, len(variants), MAX_COLUMNS), start=1):
                shown = variants[start : start + MAX_COLUMNS]
                groups.append(
                    Group(
                        benchmark=benchmark,
                        num_drifts=count,
                        part=part,
                        spots=tuple(spot for spot in members if spot.variant() in shown),
                        undrifted=tuple(s for s in undrifted if count and s.adaptation == FLOOR),
                    )
                )
    return [group for group in groups if group.is_begun]


def drift_words(count: int) -> str:
    """How often classes drift.

    >>> drift_words(0), drift_words(1), drift_words(2)
    ('no drift', '1 drift', '2 drifts')
    """
    return {0: "no drift", 1: "1 drift"}.get(count, f"{count} drifts")


def buffer_words(buffer_size: int | None) -> str:
    """The name of a row of panels.

    >>> buffer_words(5000)
    'buffer 5,000'
    """
    return "no buffer" if buffer_size is None else f"buffer {buffer_size:,}"


def setting_words(spot: Spot, *without: str) -> str:
    """Benchmark, method, buffer and number of drifts, for a headline."""
    parts = spot.benchmark, spot.variant(*without), buffer_words(spot.buffer_size)
    return ", ".join([*parts, drift_words(spot.num_drifts)])


def distinct(values: Iterable[T]) -> list[T]:
    """Each value once, in the order in which they came.

    >>> distinct([3, 1, 3])
    [3, 1]
    """
    return list(dict.fromkeys(values))
