"""A run that another has trained: it checks classes and evaluates, and takes over what was learned.

Without adaptation, drift changes what is checked and scored but nothing that is trained on: runs
that differ in their drift alone learn the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from driftwise.drift_loop import DriftLoop
from driftwise.errors import UserError
from driftwise.runs import checkpoint
from driftwise.runs.store import trail_file

FORMAT = 1


def leave(trail: Path, task: int, loop: DriftLoop) -> None:
    """Keep what was learned up to the end of a task, and what training has cost."""
    trail.mkdir(parents=True, exist_ok=True)
    costs = loop.ledger.state_dict()
    training = {"steps": costs["steps"]}
    training |= {kind: costs[kind]["train"] for kind in ("seconds", "flops")}
    state = {"learner": loop.learner.state_dict(), "training": training}
    checkpoint.write(trail_file(trail, task), state, format=FORMAT)


def follow(loop: DriftLoop, trail: Path, *, after: int) -> Trained | None:
    """Let a loop take over what was learned in each task from now on; None: it is not all there."""
    tasks = range(after + 1, loop.stream.schedule.num_tasks + 1)
    try:
        for task in tasks:
            checkpoint.read(trail_file(trail, task), format=FORMAT)
    except UserError:
        return None
    trained = Trained(loop, trail, after)
    loop.handler = replace(loop.handler, learner=trained)
    return trained


class Trained:
    """Stands for a loop's learner, which is trained elsewhere."""

    def __init__(self, loop: DriftLoop, trail: Path, after: int) -> None:
        self._loop = loop
        self._trail = trail
        self._task = after
        self._costs: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop.learner, name)

    def begin_task(self, classes: Sequence[int], *, from_scratch: bool) -> None:
        """Nothing: what comes of it is taken over at the end."""
        del classes, from_scratch

    def end_task(self) -> None:
        """Take over what was learned."""
        self._task += 1
        state = checkpoint.read(trail_file(self._trail, self._task), format=FORMAT)
        self._loop.learner.load_state_dict(state["learner"])
        self._costs = state["training"]

    def take_over_costs(self) -> None:
        """Take over what training has cost, between two tasks."""
        costs = self._loop.ledger.state_dict()
        costs["steps"] = self._costs["steps"]
        for kind in ("seconds", "flops"):
            costs[kind]["train"] = self._costs[kind]
        self._loop.ledger.load_state_dict(costs)
