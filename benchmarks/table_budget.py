"""What one seed of the paper's tables costs at a scale: tasks to train times measured seconds.

    python benchmarks/table_budget.py [--scale tables] [--steps 20]

For each table and method, train steps of the second task are timed on one thread by the processor's
clock: some methods do not replay in the first. A run is its tasks times their steps; `fr` and `amr-plus`
learn on more samples, by factors taken from the committed results of Table 1. What runs share is
counted once. Detection and evaluation are left out (a few percent). Kept in results/table_budget.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from pathlib import Path
from typing import Any

import torch

from driftwise.config.build import assemble
from driftwise.config.presets import settled
from driftwise.config.schema import RunConfig
from driftwise.reproduce.grids import METHODS, TABLES, TARGETS
from driftwise.sweeps.budget import own_tasks
from driftwise.sweeps.plan import Plan, make_plan
from driftwise.sweeps.scale import SCALES
from driftwise.sweeps.shared import Tree, tasks_of, tree_of

FILE = Path(__file__).resolve().parents[1] / "results" / "table_budget.json"
BESIDE = {"adaptation": ["amr-plus"]}
WORK = {"vanilla": 1.0, "amr": 1.0, "fr": 1.5, "amr-plus": 1.5}
"""FLOPs of a run as a multiple of vanilla's, docs/explanations/results.md"""
WARM = 5
"""steps before"""
CORES, MOST_HOURS = 2, 10.0
"""a complete seed of all tables should take no longer than that"""


def plan_of(table: str, scale: str) -> Plan:
    """One seed, `amr-plus` included."""
    grid = TARGETS[table].grid([100], None, None, BESIDE)
    return make_plan(f"budget-{table}", grid, scale=SCALES[scale], fast=True)


def seconds_of_a_step(config: RunConfig, steps: int) -> tuple[float, int]:
    """Processor seconds of a train step, and how many steps a task has."""
    torch.set_num_threads(1)
    loop = assemble(config)
    learner, epochs = loop.learner, settled(config.epochs)
    seconds, size = 0.0, 0
    with loop.ledger.phase("train"):
        for task in itertools.islice(loop.stream.tasks(), 2):
            samples = task.train()
            learner.begin_task(task.new_classes)
            learner.begin_epoch(1, epochs)
            count = steps if task.number == 2 else WARM
            batches = list(itertools.islice(task.batches(samples, epoch=1), count))
            begin = time.process_time()
            for batch in batches:
                learner.observe(batch)
            seconds, size = (time.process_time() - begin) / len(batches), len(samples)
            learner.end_task()
    return seconds, epochs * math.ceil(size / settled(config.batch_size))


def tasks_by_method(tree: Tree) -> dict[str, float]:
    """Tasks to train for all runs of each method, as multiples of a vanilla task."""
    found = dict.fromkeys(METHODS, 0.0)
    for shared in tree.shared.values():
        before = 0 if shared.parent is None else tree.shared[shared.parent].until
        found[shared.config.method] += shared.until - before
    for run in tree.runs:
        whole, own = tasks_of(run.config), own_tasks(tree, run.id, run.config)
        more = (WORK[run.config.adaptation] - 1) * whole if own else 0.0
        found[run.config.method] += own + more
    return found


def budget_of(table: str, scale: str, steps: int) -> dict[str, Any]:
    """Hours of one seed, and what they are made of."""
    plan = plan_of(table, scale)
    tree = tree_of(plan.runs)
    tasks = tasks_by_method(tree)
    costs = {}
    for method in METHODS:
        config = next(r.config for r in plan.runs if r.config.method == method)
        step, per_task = seconds_of_a_step(config, steps)
        costs[method] = {
            "seconds_of_a_step": round(step, 4),
            "steps_of_a_task": per_task,
            "tasks": round(tasks[method], 1),
            "hours": round(step * per_task * tasks[method] / 3600, 3),
        }
    ours, separate = tree.num_tasks
    return {
        "runs": len(plan.runs),
        "tasks": ours,
        "tasks_separately": separate,
        "saving": round(separate / ours, 2),
        "processor_hours": round(sum(each["hours"] for each in costs.values()), 2),
        "methods": costs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="tables")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    found = kept[options.scale] = {
        table: budget_of(table, options.scale, options.steps) for table in TABLES
    }
    FILE.write_text(json.dumps(kept, indent=1) + "\n")
    print("\n".join(lines(found)))


def lines(found: dict[str, Any]) -> list[str]:
    """The table in docs/how-to/sweeps.md."""
    hours = sum(each["processor_hours"] for each in found.values())
    return [
        "| table | runs | tasks to train | hours of one core |",
        "|---|---|---|---|",
        *(
            f"| {table} | {each['runs']} | {each['tasks']} instead of {each['tasks_separately']} "
            f"({each['saving']} times fewer) | {each['processor_hours']:.1f} |"
            for table, each in found.items()
        ),
        f"| all | {sum(each['runs'] for each in found.values())} | "
        f"{sum(each['tasks'] for each in found.values())} | {hours:.1f}: {hours / CORES:.1f} h on "
        f"{CORES} cores (at most {MOST_HOURS:g} asked) |",
    ]


if __name__ == "__main__":
    main()
