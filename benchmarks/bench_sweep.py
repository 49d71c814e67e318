"""What a sweep costs beside its runs: handing them out, and finding them all done.

    python benchmarks/bench_sweep.py [--runs 4] [--epochs 40] [--finished 1000]

The same runs are carried out in a plain loop and by a pool of one worker, in turns; importing torch
is left out of both. Processor time beside the clock, because a busy machine makes the clock run
ahead of the work. The finished runs are copies of one.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

import driftwise
from driftwise.report.sweeps import read_sweep
from driftwise.reproduce.paper_table import like_the_paper, paper_table
from driftwise.sweeps.executors import InProcess, Pool
from driftwise.sweeps.grid import Grid
from driftwise.sweeps.job import Job
from driftwise.sweeps.perform import carry_out
from driftwise.sweeps.plan import RUNS, Plan, make_plan, write_plan
from driftwise.sweeps.progress import Overview


class Cost(NamedTuple):
    """Seconds."""

    wall: float
    cpu: float


def plan_of(name: str, seeds: range, epochs: int) -> Plan:
    base = {"epochs": epochs, "adaptation": "vanilla", "tasks": [[0, 1], [2, 3], [4, 5]]}
    return make_plan(name, Grid(axes={"seed": seeds}, base=base))


def measured(action: Callable[[], object], pid: int | None = None) -> Cost:
    """Seconds by the clock, and of processors: this process and, if one is named, a worker."""
    wall, cpu = time.perf_counter(), time.process_time() + _cpu_of(pid)
    action()
    return Cost(time.perf_counter() - wall, time.process_time() + _cpu_of(pid) - cpu)


def _cpu_of(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100  # ticks of 10 ms


def overhead(num: int, epochs: int, out: Path) -> None:
    plan = plan_of("timed", range(num), epochs)
    warm = plan_of("warm", range(1), 1).runs[0]
    torch.set_num_threads(1)
    driftwise.run(warm.config, out / "plain" / warm.id)
    plain, pooled = [], []
    with Pool(1) as pool:

        def through_pool(run_id: str, config: driftwise.RunConfig) -> None:
            folder = out / RUNS / run_id
            pool.submit(Job(id=run_id, folder=str(folder), config=config.to_json()))
            outcome = pool.wait(600)
            assert outcome is not None
            assert outcome.state == "done", outcome.error

        through_pool(warm.id, warm.config)
        worker = int((out / RUNS / warm.id / ".lock").read_text())
        for run in plan.runs:
            in_loop = partial(driftwise.run, run.config, out / "plain" / run.id)
            plain.append(measured(in_loop))
            pooled.append(measured(partial(through_pool, run.id, run.config), worker))
    print(f"{num} runs of {epochs} epochs, one at a time, in turns:")
    for kind in Cost._fields:
        direct, engine = (
            statistics.median(getattr(cost, kind) for cost in costs) for costs in (plain, pooled)
        )
        print(
            f"  {kind:4}  loop {direct:6.2f} s a run, pool {engine:6.2f} s, ratio "
            f"{engine / direct:.3f}, of a run of a minute {100 * (engine - direct) / 60:+.2f} %"
        )


def finding_all_done(num: int, out: Path) -> None:
    total = 0.0

    def timed(what: str, action: Callable[[], object]) -> None:
        nonlocal total
        cost = measured(action)
        print(f"  {what:32} wall {cost.wall:6.2f} s, cpu {cost.cpu:6.2f} s")
        total += cost.cpu

    print(f"{num} finished runs:")
    plans: list[Plan] = []
    timed("planning", lambda: plans.append(plan_of("many", range(num), 1)))
    first, *others = plans[0].runs
    driftwise.run(first.config, out / RUNS / first.id)
    for run in others:
        shutil.copytree(out / RUNS / first.id, out / RUNS / run.id, copy_function=shutil.copyfile)
    file = write_plan(plans[0], out)
    total = 0.0
    with InProcess() as engine, Overview(Console(quiet=True)) as overview:
        timed("carry_out", lambda: carry_out(plans[0].runs, out, engine, overview))
    timed(
        "read_sweep and table",
        lambda: like_the_paper(paper_table(read_sweep(file)), decimals=1).text(),
    )
    print(f"  {'without planning, in all':32} cpu {total:19.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--finished", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        finding_all_done(arguments.finished, Path(folder) / "many")
        overhead(arguments.runs, arguments.epochs, Path(folder) / "few")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
