"""Cells measured here beside the published ones: correlation, order of strategies, recovery."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from driftwise.report.sweeps import Sweep
from driftwise.reproduce.evidence import interval_of
from driftwise.reproduce.paper_table import TableCell, paper_table
from driftwise.reproduce.places import grouped

STRATEGIES = ("vanilla", "fr", "amr")
"""published, with drift"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Beside:
    """Some cells that have both a measured and a published accuracy."""

    cells: Sequence[TableCell]

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """(published, here), in percent."""
        return [
            (cell.published.faa, cell.faa.mean)
            for cell in self.cells
            if cell.published is not None and cell.faa is not None
        ]

    @property
    def correlation(self) -> float | None:
        """Pearson's; None for fewer than three cells, or if nothing varies."""
        pairs = self.pairs
        if len(pairs) < 3 or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
            return None
        return statistics.correlation(*zip(*pairs, strict=True))

    @property
    def groups(self) -> list[Mapping[str, TableCell]]:
        """Cells that differ in their adaptation alone and have drift, where all strategies are done."""
        return self.groups_with(*STRATEGIES)

    def groups_with(self, *strategies: str) -> list[Mapping[str, TableCell]]:
        """Such cells, where these strategies are done."""
        places = grouped(
            (cell for cell in self.cells if cell.place.get("num_drifts") and cell.faa is not None),
            lambda cell: tuple(
                (key, value) for key, value in cell.place.items() if key != "adaptation"
            ),
        )
        found = [{str(c.place["adaptation"]): c for c in cells} for cells in places.values()]
        return [group for group in found if set(strategies) <= group.keys()]

    def same_order(self, *strategies: str) -> tuple[int, int]:
        """In how many of all groups the strategies end in the published order."""
        kept = 0
        for group in self.groups:
            sides = [(group[name].published, group[name].faa) for name in strategies]
            pairs = [(p.faa, h.mean) for p, h in sides if p is not None and h is not None]
            kept += all((a[0] < b[0]) == (a[1] < b[1]) for a, b in combinations(pairs, 2))
        return kept, len(self.groups)

    def of_method(self, method: str) -> Beside:
        """The cells of one method."""
        return Beside(cells=[cell for cell in self.cells if cell.place.get("method") == method])

    def recovery(self, adaptation: str = "amr") -> list[tuple[float, float]]:
        """What an adaptation gains above vanilla in each group of both: (published, here), in points."""
        gains = []
        for group in self.groups_with("vanilla", adaptation):
            ours, plain = group[adaptation], group["vanilla"]
            if ours.published is None or plain.published is None:
                continue
            assert ours.faa is not None
            assert plain.faa is not None
            gains.append((ours.published.faa - plain.published.faa, ours.faa.mean - plain.faa.mean))
        return gains


def beside(sweep: Sweep) -> Beside:
    """The cells of a table that both have."""
    table = paper_table(sweep)
    return Beside(cells=[c for c in table.cells if c.faa is not None])


def in_words(values: Sequence[float], form: str = "+.1f") -> str:
    """A mean with its 95 % interval over cells.

    >>> in_words([1.0, 2.0, 3.0])
    '+2.0 (-0.5 to +4.5)'
    """
    interval = interval_of(values)
    if interval.low is None or interval.high is None:
        return format(interval.mean, form)
    return f"{interval.mean:{form}} ({interval.low:{form}} to {interval.high:{form}})"
