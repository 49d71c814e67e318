"""`driftwise sweep` and `driftwise reproduce`: parse, call, print."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwise.cli.common import (
    add_command,
    add_output_flags,
    add_speed_flag,
    display,
    print_outcome,
    refuse_part_options,
)
from driftwise.errors import RunFailure, UserError

if TYPE_CHECKING:
    from driftwise.config.schema import RunConfig
    from driftwise.sweeps.executors import Engine
    from driftwise.sweeps.job import Progress
    from driftwise.sweeps.plan import Plan, PlannedRun

AT_HAND = "digits-cd"
"""needs no download"""
ENGINES = ("pool", "in-process", "ray")
SCALE = "small"
SEEDS = {"smoke": 1, "tables": 1, "small": 3, "paper": 3}
"""the default number"""
THEORY_SEEDS = 5
SIZES = (
    *("max_per_class", "num_tasks", "class_order", "tasks", "num_drifts", "events", "scope"),
    *("max_classes_per_drift", "domains", "buffer_size", "buffer_policy", "reference", "epochs"),
    *("fingerprint_size", "detector", "monitor", "monitor_labels", "checked"),
)
"""Settings that decide how many samples a check compares."""
NAMED = ("buffer_size", "num_drifts")
"""Those of them that name the runs in a warning."""
DRAWN_ONLY = {"theory": ("benchmark", "seeds"), "claims": (), "leaderboard": ()}
"""What is no sweep, and its flags beside those of the output."""


def add_sweep_commands(commands: Any) -> None:
    """Add both to the command line."""
    from driftwise.reproduce.grids import TARGETS
    from driftwise.sweeps.scale import SCALES

    sweep = add_command(
        commands,
        "sweep",
        _sweep,
        "every combination of a grid of settings",
        description="Run every combination of a grid of settings. The same command continues it.",
    )
    sweep.add_argument("file", type=Path, metavar="FILE", help="the grid, YAML or JSON")
    sweep.add_argument("--out", type=Path, metavar="FOLDER", help="(default: runs/NAME)")

    known = "; ".join(f"{name}: {target.summary}" for name, target in TARGETS.items())
    reproduce = add_command(
        commands,
        "reproduce",
        lambda arguments: _reproduce(reproduce, arguments),
        "a table or figure of the paper, beside its published numbers",
        description=f"Redraw a table or figure of the paper. {known}; theory: the theorems, "
        "measured; claims: what the text claims beside what was measured in the same folder; leaderboard: "
        "all entries of the folder, ranked, with --beside after running the tables for these.",
    )
    names = (*TARGETS, *DRAWN_ONLY)
    reproduce.add_argument("name", choices=names, metavar="NAME", help=", ".join(names))
    reproduce.add_argument(
        "--scale", choices=tuple(SCALES), help=f"size of the runs (default: {SCALE})"
    )
    reproduce.add_argument("--benchmark", metavar="NAME", help="run it on other data")
    reproduce.add_argument("--data", metavar="FOLDER", help="where the data is")
    reproduce.add_argument(
        "--seeds", type=int, metavar="N", help="seeds from 0 on (default: 3; smoke and tables: 1)"
    )
    reproduce.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="change a setting of all runs; give such a sweep its own --name",
    )
    reproduce.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="KEY=VALUE,...",
        help="further runs beside the paper's, e.g. adaptation=amr-plus or method=mine:LwF",
    )
    reproduce.add_argument("--name", metavar="TEXT", dest="sweep_name", help="name of the sweep")
    reproduce.add_argument(
        "--out",
        type=Path,
        default=Path("runs/paper"),
        metavar="FOLDER",
        help="(default: runs/paper)",
    )
    for each in (sweep, reproduce):
        each.add_argument(
            "--only",
            action="append",
            default=[],
            metavar="KEY=VALUE,...",
            help="run only this part of the plan, e.g. method=er,der++; may be repeated",
        )
        each.add_argument(
            "--engine",
            choices=ENGINES,
            default="pool",
            help="what carries out runs (default: pool)",
        )
        add_speed_flag(each)
        each.add_argument(
            "--workers", type=int, metavar="N", help="runs at a time (default: cores / threads)"
        )
        each.add_argument(
            "--ray-address",
            default="local",
            metavar="HOST:PORT",
            help="a Ray cluster (default: start Ray on this machine)",
        )
        each.add_argument(
            "--cpus-per-run", type=float, default=1.0, metavar="X", help="cores for a run, with Ray"
        )
        each.add_argument(
            "--gpus-per-run", type=float, default=0.0, metavar="X", help="GPUs for a run, with Ray"
        )
        each.add_argument(
            "--retries",
            type=int,
            default=1,
            metavar="N",
            help="further attempts at a run that failed (default: 1)",
        )
        each.add_argument(
            "--hours",
            type=float,
            metavar="X",
            help="end after so long: complete groups first, the same command goes on",
        )
        each.add_argument(
            "--overwrite", action="store_true", help="replace a plan of this name; runs stay"
        )
        each.add_argument("--dry-run", action="store_true", help="list the runs and stop")
        add_output_flags(each)


def _sweep(arguments: argparse.Namespace) -> int:
    from driftwise.sweeps.grid import read_grid_file
    from driftwise.sweeps.plan import make_plan
    from driftwise.sweeps.scale import scale_named

    refuse_part_options(arguments)
    asked = read_grid_file(arguments.file)
    scale = None if asked.scale is None else scale_named(asked.scale)
    plan = make_plan(asked.name, asked.grid, scale=scale, fast=arguments.speed == "fast")
    return _carry_out(arguments, plan, arguments.out or Path("runs") / plan.name)


def _reproduce(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    refuse_part_options(arguments)
    if arguments.seeds is not None and arguments.seeds < 1:
        raise UserError(f"--seeds must be at least 1; got {arguments.seeds}")
    if arguments.name == "leaderboard" and arguments.beside:
        return _enter(arguments)
    if arguments.name in DRAWN_ONLY:
        _refuse_unused(parser, arguments)
        return _drawn_only(arguments)
    return _carry_out(arguments, _plan(arguments, arguments.name), arguments.out)


def _plan(arguments: argparse.Namespace, name: str, *, entry: str | None = None) -> Plan:
    """The plan of a table or figure; `entry`: of what runs beside it alone, under that name."""
    from driftwise.reproduce.grids import TARGETS
    from driftwise.sweeps.plan import make_plan
    from driftwise.sweeps.scale import scale_named

    target = TARGETS[name]
    scale = scale_named(arguments.scale or SCALE)
    seeds = range(arguments.seeds or SEEDS[scale.name])
    extra = _settings(arguments)
    benchmark = arguments.benchmark
    other = benchmark is not None and benchmark not in target.benchmarks
    fast = "fast" if arguments.speed == "fast" else None
    usual = "-".join(filter(None, [name, scale.name, benchmark, fast, entry]))
    return make_plan(
        arguments.sweep_name or usual,
        target.grid(seeds, benchmark, extra, _beside(arguments), alone=entry is not None),
        scale=scale,
        reproduces=name,
        published_on=target.benchmarks[0] if other else None,
        changed={key: value for key, value in extra.items() if key != "data"},
        fast=fast is not None,
    )


def _enter(arguments: argparse.Namespace) -> int:
    """Run the paper's tables for what `--beside` names alone, then rank it among all others."""
    from driftwise.reproduce.grids import TABLES, TARGETS

    if arguments.sweep_name is not None:
        raise UserError("reproduce leaderboard names its sweeps itself; leave out --name")
    values = [value for each in _beside(arguments).values() for value in each]
    entry = re.sub(r"[^A-Za-z0-9+._-]+", "-", "-".join(values))[:40]
    tables = [
        name
        for name in TABLES
        if arguments.benchmark is None or arguments.benchmark in TARGETS[name].benchmarks
    ]
    if not tables:
        known = ", ".join(name for table in TABLES for name in TARGETS[table].benchmarks)
        raise UserError(f"the tables run on {known}; got --benchmark {arguments.benchmark}")
    for table in tables:
        _carry_out(arguments, _plan(arguments, table, entry=entry), arguments.out)
    return 0 if arguments.dry_run else _drawn_only(arguments)


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    import yaml

    given = {} if arguments.data is None else {"data": arguments.data}
    for text in arguments.settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set takes KEY=VALUE; got {text!r}")
        try:
            given[key.replace("-", "_")] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UserError(f"--set {text}: {value!r} is no YAML value") from error
    return given


def _beside(arguments: argparse.Namespace) -> dict[str, list[str]]:
    beside: defaultdict[str, list[str]] = defaultdict(list)
    for text in arguments.beside:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise UserError(f"--beside takes KEY=VALUE,...; got {text!r}")
        beside[key.replace("-", "_")] += values.split(",")
    return beside


def _carry_out(arguments: argparse.Namespace, plan: Plan, out: Path) -> int:
    """Run what is missing, then draw everything from what is there."""
    from rich.console import Console

    from driftwise.reproduce.draw import draw
    from driftwise.runs.store import is_finished
    from driftwise.sweeps.budget import Budget
    from driftwise.sweeps.perform import carry_out, measure
    from driftwise.sweeps.plan import RUNS, chosen, write_plan
    from driftwise.sweeps.progress import Overview
    from driftwise.sweeps.shared import tree_of

    if arguments.retries < 0:
        raise UserError(f"--retries must be at least 0; got {arguments.retries}")
    if arguments.hours is not None and not arguments.hours > 0:
        raise UserError(f"--hours must be above 0; got {arguments.hours}")
    runs = chosen(plan, arguments.only)
    budget = None if arguments.hours is None else Budget(3600 * arguments.hours)
    if arguments.dry_run:
        print("\n".join(run.id for run in runs))
        tree = tree_of(runs)
        ours, separate = tree.num_tasks
        print(
            f"{len(runs)} runs, {ours} tasks instead of {separate} as what runs share is run once",
            file=sys.stderr,
        )
        if budget is not None:
            done = [run for run in runs if is_finished(out / RUNS / run.id)]
            measure(budget, done, out)
            ids = {run.id for run in done}
            slots = _workers(arguments, runs) if arguments.engine == "pool" else 1
            print(budget.forecast(tree, ids.__contains__, slots), file=sys.stderr)
        return 0
    waiting = [run for run in runs if not is_finished(out / RUNS / run.id)]
    warnings = _load_data(waiting, plan)
    damage: list[str] = []
    file = write_plan(plan, out, overwrite=arguments.overwrite, warn=damage.append)
    console = Console(stderr=True, quiet=arguments.quiet)
    with Overview(console) as overview:
        overview.log(f"{plan.name}: scale {plan.scale} ({plan.scale_note})")
        for line in damage:
            overview.warn(line)
        for line in warnings:
            overview.log(f"warning: {line}")
        with _engine(arguments, runs, overview.progress) as engine:
            how: dict[str, Any] = {"retries": arguments.retries, "budget": budget}
            summary = carry_out(runs, out, engine, overview, **how)
        if summary.left:
            overview.log(f"time is up: {summary.left} runs are left; the same command goes on")
        overview.log("drawing")
        drawn = draw(file, overview.warn)
    outcome = {"total": summary.total, "done": summary.done, "failed": dict(summary.failed)}
    outcome |= {"page": str(drawn.page), "files": [str(path) for path in drawn.files]}
    print_outcome(arguments, outcome, f"{drawn.text}\n\nthe page: {drawn.page}")
    if summary.failed:
        first, error = next(iter(summary.failed.items()))
        raise RunFailure(
            f"{len(summary.failed)} of {summary.total} runs failed, the first of them {first}: "
            f"{error}; the same command tries them again"
        )
    return 0


def _load_data(runs: Sequence[PlannedRun], plan: Plan) -> list[str]:
    """Find, fetch and decode the data once, before many runs need them at once.

    Returns warnings, each once: about the data, and about checks that cannot be made.
    """
    from driftwise.config.benchmarks import Notify
    from driftwise.config.build import load_data, untestable_warning

    by_data: defaultdict[tuple[str, str | None], list[PlannedRun]] = defaultdict(list)
    for run in runs:
        by_data[run.config.benchmark, run.config.data].append(run)
    warnings: dict[str, str] = {}
    for members in by_data.values():
        run = members[0]
        try:
            data = load_data(run.config, Notify(warn=lambda text: warnings.update({text: text})))
        except UserError as error:
            if plan.reproduces is None or run.config.benchmark == AT_HAND:
                raise
            raise UserError(
                f"{error}; or run it on other data, e.g. --benchmark {AT_HAND}"
            ) from error
        for each in {_sizes(run.config): run for run in members}.values():
            if text := untestable_warning(each.config, data):
                named = [f"{key.replace('_', ' ')} {each.place.get(key)}" for key in NAMED]
                warnings.setdefault(text, f"{each.config.benchmark}, {', '.join(named)}: {text}")
    return list(warnings.values())


def _sizes(config: RunConfig) -> str:
    """All that decides how many samples a check compares."""
    return json.dumps(
        [[getattr(config, name) for name in SIZES], config.options.get("detector")], default=str
    )


def _engine(
    arguments: argparse.Namespace, runs: Sequence[PlannedRun], progress: Progress
) -> Engine:
    from driftwise.sweeps.executors import InProcess, Pool

    if arguments.engine == "in-process":
        return InProcess(progress)
    if arguments.engine == "pool":
        return Pool(_workers(arguments, runs), progress)
    from driftwise.sweeps.ray_executor import OnRay

    return OnRay(
        arguments.ray_address,
        cpus_per_run=arguments.cpus_per_run,
        gpus_per_run=arguments.gpus_per_run,
        retries=arguments.retries,
    )


def _workers(arguments: argparse.Namespace, runs: Sequence[PlannedRun]) -> int:
    """Processes of a pool."""
    from driftwise.config.speed import num_processors

    if arguments.workers is not None:
        return int(arguments.workers)
    return max(1, num_processors() // max(run.config.threads or 1 for run in runs))


def _refuse_unused(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """A flag that would do nothing is a mistake."""
    used = ("name", "options", "out", "json", "quiet", "call", *DRAWN_ONLY[arguments.name])
    flags = {"settings": "--set", "sweep_name": "--name"}
    for name, value in vars(arguments).items():
        if name not in used and value != parser.get_default(name):
            flag = flags.get(name, f"--{name.replace('_', '-')}")
            raise UserError(f"reproduce {arguments.name} takes no {flag}; leave it out")


def _drawn_only(arguments: argparse.Namespace) -> int:
    """What is no sweep: the theorems, measured anew, and the claims, from what is there."""
    from driftwise.reproduce import draw

    with display(arguments) as shown:
        if arguments.name == "claims":
            drawn = draw.draw_claims(arguments.out, shown.say)
        elif arguments.name == "leaderboard":
            drawn = draw.draw_leaderboard(arguments.out, shown.say)
        else:
            drawn = draw.draw_theory(
                arguments.out,
                arguments.benchmark or AT_HAND,
                range(arguments.seeds or THEORY_SEEDS),
                shown.progress,
            )
    print_outcome(arguments, {"files": [str(path) for path in drawn.files]}, drawn.text)
    return 0
