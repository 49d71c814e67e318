"""A time budget: what is foreseen from runs that are done, and what is begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sweep_tools import Notes, tiny_plan
from test_sweep import Scripted, finish

from driftwise.sweeps.budget import Budget
from driftwise.sweeps.job import Outcome
from driftwise.sweeps.perform import carry_out
from driftwise.sweeps.plan import RUNS, Plan
from driftwise.sweeps.shared import tree_of


class Clock:
    """Goes on only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def plan() -> Plan:
    """Four groups (two methods, two seeds) of two runs of two tasks, one of which is shared."""
    axes: dict[str, Any] = {
        "method": ["er", "der++"],
        "adaptation": ["vanilla", "amr"],
        "seed": [0, 1],
    }
    return tiny_plan(axes=axes, num_drifts=1)


def test_an_estimate_takes_the_runs_most_alike(plan: Plan) -> None:
    budget = Budget(100.0)
    er, amr, other = (plan.runs[index].config for index in (0, 2, 4))
    assert budget.estimate(er, 2) is None
    budget.add(other, 2, 20.0)
    assert budget.estimate(er, 2) == 20.0  # the only ones known
    budget.add(er, 2, 6.0)
    assert budget.estimate(er, 2) == 6.0
    assert budget.estimate(amr, 1) == 3.0  # of the same method
    assert budget.estimate(other, 1) == 10.0


def test_what_will_fit_is_said_in_complete_groups(plan: Plan) -> None:
    tree, clock = tree_of(plan.runs), Clock()
    budget = Budget(50.0, clock=clock)
    unknown = budget.forecast(tree, lambda _: False, 1)
    assert unknown == "what fits into 0.0139 h is not known before the first runs are done"
    budget.add(plan.runs[0].config, 1, 7.0)  # a group has three tasks: 21 s
    words = "about {} of 4 groups ({} of 8 runs) will be complete after 0.0139 h, by 1 runs that"
    assert budget.forecast(tree, lambda _: False, 1).startswith(words.format(2, 4))
    assert budget.forecast(tree, lambda _: False, 2).startswith(words.format(4, 8))
    assert budget.forecast(tree, lambda _: False, 1).endswith(
        "measured: method er, seed 0; method der++, seed 0"
    )
    clock.now = 20.0
    first = {run.id for run in tree.groups[0]}
    assert budget.forecast(tree, first.__contains__, 1).startswith(words.format(2, 4))


def test_nothing_is_begun_that_would_end_too_late_and_the_rest_is_left(
    plan: Plan, tmp_path: Path
) -> None:
    clock = Clock()

    class Timed(Scripted):
        """Every job takes ten seconds."""

        def wait(self, seconds: float) -> Outcome | None:
            clock.now += 10.0
            outcome = super().wait(seconds)
            if outcome is None:
                return None
            return Outcome(id=outcome.id, state=outcome.state, faa=50.0, seconds=10.0)

    runs = [run for run in plan.runs if run.place["adaptation"] == "amr"]  # share nothing
    finish(tmp_path / RUNS / tree_of(runs).runs[0].id)
    engine, notes = Timed(slots=1), Notes()
    budget = Budget(25.0, clock=clock)
    summary = carry_out(runs, tmp_path, engine, notes, budget=budget)
    assert (summary.total, summary.done, summary.left) == (4, 3, 1)
    assert engine.jobs == [run.id for run in tree_of(runs).runs[1:3]]
    assert clock.now == 20.0
    assert any("groups" in line for line in notes.lines)
    again = Scripted()
    assert carry_out(runs, tmp_path, again, Notes()).left == 0
    assert len(again.jobs) == 1
