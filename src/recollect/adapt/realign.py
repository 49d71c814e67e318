"""Adaptive Memory Realignment: drifted classes' slots are refilled from the new distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from recollect.shapes import Choose, Workbench
from recollect.types import Repair, Rows, Verdict

Outdated = Callable[[Verdict, Rows, Workbench], Tensor]
"""Which of a drifted class's rows in memory have to go: a mask, bool (rows,)."""


def all_of_them(verdict: Verdict, held: Rows, bench: Workbench) -> Tensor:
    """No row outlives a drift of its class, as published."""
    del verdict, bench
    return torch.ones(len(held), dtype=torch.bool)


class Realign:
    """Throws a drifted class's rows out of memory and puts as many fresh ones in their place."""

    def __init__(
        self,
        *,
        outdated: Outdated = all_of_them,
        choice: Callable[[Verdict, Workbench], Choose] | None = None,
    ) -> None:
        """`choice` says which fresh rows are worth a label; None: any of them."""
        self._outdated = outdated
        self._choice = choice

    def repair(self, drifted: Sequence[Verdict], bench: Workbench) -> Repair:
        """Ask for exactly as many labels as the drifted classes have outdated rows."""
        refilled: list[Rows] = []
        renewed: list[int] = []
        notes: list[str] = []
        for verdict in drifted:
            label = verdict.label
            held = bench.memory.rows_of(label)
            if not len(held):
                notes.append(f"class {label} has no rows in memory: nothing to realign")
                continue
            goes = self._outdated(verdict, held, bench)
            wanted = int(goes.sum())
            if not wanted:
                notes.append(f"class {label}: its {len(held)} rows still fit")
                continue
            choose = None if self._choice is None else self._choice(verdict, bench)
            fresh = bench.labels.ask(label, wanted, choose=choose)
            if not len(fresh):
                # Dropping without anything to put in would lose the class altogether.
                notes.append(
                    f"class {label}: no fresh rows were granted, its {wanted} old ones stay"
                )
                continue
            bench.memory.drop(label, goes)
            bench.memory.put(fresh, bench.annotate(fresh))
            refilled.append(fresh)
            renewed.append(label)
            if len(fresh) < wanted:
                notes.append(
                    f"class {label}: {len(fresh)} fresh rows were granted for {wanted} slots"
                )
        return Repair(
            refilled=Rows.concat(refilled) if refilled else None,
            renewed=tuple(renewed),
            notes=tuple(notes),
        )
