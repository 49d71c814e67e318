"""Campaigns of `benchmarks/faults.py` that take too long for a test: drawn mixtures, every write."""

from __future__ import annotations

import dataclasses
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "faults"))

from campaigns import (
    Case,
    change_calls,
    complaint_about,
    has_begun,
    killed_at_random,
    lines_of,
    writes,
)
from fault_tools import METHODS, LiveWork, Work, attempt, broken, differences
from troubles import Trouble

from driftwise.config.registry import CATALOGUE


def mixtures(seed: int) -> Iterator[Work]:
    """Runs of which every part and setting is drawn; some of them are refused as contradictory."""
    draw = random.Random(f"{seed} mixtures")
    choices_of = {
        "method": [*METHODS, "finetune", "joint"],
        "adaptation": list(CATALOGUE["adaptation"]),
        "detector": ["ks", "mmd", "c2st", "combined", "reconstruction", "sequential", "oracle"],
        "precision": _precisions(),
        "policy": list(CATALOGUE["buffer_policy"]),
        "encoder": ["", "", "--encoder learner", "--encoder random"],
        "more": [
            *("", "--sequential", "--drift-share 0.5 --num-drifts 2", "--label-budget 40"),
            *("--monitor-labels predicted", "--optimiser adam --lr 0.003", "--min-harm 5"),
            *("--scheduler cosine", "--augmentation crop --normalise", "--batch-size 7"),
        ],
    }
    for one in _mixed(choices_of, draw):
        yield Work(
            method=one["method"],
            adaptation=one["adaptation"],
            detector=one["detector"],
            epochs=2,
            flags=f"--precision {one['precision']} --buffer-policy {one['policy']} "
            f"{one['encoder']} --seed {draw.randrange(1000)} {one['more']}",
            by_folder=True,
        )


def live_mixtures(seed: int) -> Iterator[LiveWork]:
    """Live learners of which every part and setting is drawn."""
    draw = random.Random(f"{seed} live")
    of_settings: dict[str, Callable[[], Any]] = {
        "optimiser": lambda: draw.choice(("sgd", "adam")),
        "replay_steps": lambda: draw.choice((0, 1, 3)),
        "batch_size": lambda: draw.choice((None, 4, 32)),
        "label_budget": lambda: draw.choice((None, None, 60)),
        "recent_rows": lambda: draw.choice((40, 2000)),
        "seed": lambda: draw.randrange(1000),
    }
    choices_of: dict[str, list[Any]] = {
        "method": [*METHODS, "finetune"],
        "adaptation": list(CATALOGUE["adaptation"]),
        "detector": ["ks", "mmd", "c2st", "combined", "reconstruction", "sequential"],
        "precision": _precisions(),
        "buffer_policy": list(CATALOGUE["buffer_policy"]),
        "encoder": [None, None, "learner", "random"],
    }
    for one in _mixed(choices_of, draw):
        one |= {name: choose() for name, choose in of_settings.items()}
        yield LiveWork(
            settings={**one, "lr": 0.003 if one["optimiser"] == "adam" else 0.05},
            network=draw.choice(("mlp", "mlp", "own")),
            seed=draw.randrange(1000),
            known=draw.choice((1.0, 0.7, 0.4)),
            late=draw.randrange(1, 6),
            asks=draw.random() < 0.5,
            as_floats=draw.random() < 0.5,
            history=draw.random() < 0.3,
            log_bytes=draw.choice((4000, 8 * 2**20)),
            saves=draw.randrange(1, 8),
        )


def _mixed(choices_of: Mapping[str, list[Any]], draw: random.Random) -> Iterator[dict[str, Any]]:
    """One choice of each, without end; all of a list come once before one comes again."""
    left: dict[str, list[Any]] = {name: [] for name in choices_of}
    while True:
        for name, choices in choices_of.items():
            left[name] = left[name] or draw.sample(choices, len(choices))
        yield {name: choices.pop() for name, choices in left.items()}


def _precisions() -> list[str]:
    flags = Path("/proc/cpuinfo")
    has_it = flags.exists() and "bf16" in flags.read_text()
    return ["fp32", "bf16"] if has_it else ["fp32"]


def killed_in_mixtures(
    works: Iterator[Work | LiveWork],
    top: Path,
    *,
    kills: int,
    each: int,
    seed: int,
    log: Callable[[str], object] = lambda _: None,
) -> Iterator[Case]:
    """So many kills in all, some in each mixture; those that are refused are left out."""
    left, number = kills, 0
    while left > 0:
        work, number = next(works), number + 1
        folder = top / f"mixture-{number}"
        end = attempt(work.words(folder / "tried"))
        if end.code == 2 or "driftwise.errors.UserError" in end.stderr:
            log(f"{work}: refused: {end.stderr.strip().splitlines()[-1]}")
            continue
        log(f"{work}")
        for case in killed_at_random(work, folder, moments=min(each, left), seed=seed):
            left -= 1
            yield dataclasses.replace(case, where=f"{case.where} of {work}")
        shutil.rmtree(folder)


def full_once_each(work: Work, top: Path) -> Iterator[Case]:
    """One run: its k-th attempt finds the disk full from its k-th write on, until one ends."""
    whole, folder = top / "whole", top / "once-each"
    limit = len(writes(change_calls(work, whole)))
    for call in range(1, limit + 2):
        log = Path(f"{folder}.log")
        trouble = Trouble(folder=str(folder), log=str(log), kind="stays full", call=call)
        end = attempt(work.words(folder), trouble=trouble)
        if end.code == 0:
            found = differences(folder, whole)
            fault = f"differs: {', '.join(found)}" if found else ""
            yield Case(where="the last attempt", came="finished", fault=fault)
            return
        fault = complaint_about(end, "", begun=has_begun(log))
        if not fault and folder.exists():
            fault = ", ".join(broken(folder))
        yield Case(where=writes(lines_of(log))[call - 1], came=f"code {end.code}", fault=fault)
    yield Case(where="the last attempt", came="unfinished", fault="never got through")
