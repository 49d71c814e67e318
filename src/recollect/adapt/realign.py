"""Adaptive Memory Realignment: drifted classes' slots are refilled from the new distribution."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.shapes import Annotate, LabelSource, Replay
from recollect.types import Repair, Rows


class Realign:
    """Throws a drifted class's rows out of memory and puts as many fresh ones in their place."""

    def repair(
        self, drifted: Sequence[int], memory: Replay, labels: LabelSource, annotate: Annotate
    ) -> Repair:
        """Ask for exactly as many labels as the drifted classes have slots."""
        refilled: list[Rows] = []
        renewed: list[int] = []
        notes: list[str] = []
        slots = memory.counts()
        for label in drifted:
            held = slots.get(label, 0)
            if not held:
                notes.append(f"class {label} has no rows in memory: nothing to realign")
                continue
            fresh = labels.ask(label, held)
            if not len(fresh):
                # Dropping without anything to put in would lose the class altogether.
                notes.append(f"class {label}: no fresh rows were granted, its {held} old ones stay")
                continue
            memory.drop(label)
            memory.put(fresh, annotate(fresh))
            refilled.append(fresh)
            renewed.append(label)
            if len(fresh) < held:
                notes.append(
                    f"class {label}: {len(fresh)} fresh rows were granted for {held} slots"
                )
        return Repair(
            refilled=Rows.concat(refilled) if refilled else None,
            renewed=tuple(renewed),
            notes=tuple(notes),
        )
