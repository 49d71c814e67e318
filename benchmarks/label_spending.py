"""Labels where they bring most: one budget, spent in several ways on Yearbook and PACS.

    DRIFTWISE_DATA=... python benchmarks/label_spending.py [--only yearbook] [--seeds 0 1 2]

The streams and settings are those of examples/yearbook.py and examples/pacs.py. The budget of all ways is
what `amr` asks for with the same seed:

    amr       realignment where drift is found
    weighed   `amr-weighed`: the same requests; old samples stay as far as the fresh labels support them
    evenly    random samples
    oracle    random ones among the samples that the learner without labels gets wrong
    vanilla   no labels

Accuracy is that of predictions before learning. A finished run is a line of results/label_spending.csv.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from natural_page import interval

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import pacs  # noqa: E402
import showing  # noqa: E402
import yearbook  # noqa: E402

RESULTS = ROOT / "results" / "label_spending.csv"
COLUMNS = ("stream", "way", "seed", "labels", "accuracy")
WAYS = ("amr", "vanilla", "weighed", "evenly", "oracle")


def captured(module: Any, seeds: list[int]) -> tuple[Any, dict[str, Any]]:
    """The stream of each seed and the settings of an example, which is stopped before it runs."""
    found: dict[str, Any] = {}

    class Stop(Exception):
        pass

    def take(stream_of: Any, _: Any, **settings: Any) -> None:
        found.update(stream_of=stream_of, settings=settings)
        raise Stop

    module.run_all, original = take, module.run_all
    try:
        module.main(["--seeds", str(len(seeds))])
    except Stop:
        pass
    finally:
        module.run_all = original
    return found["stream_of"], found["settings"]


def play(
    stream: showing.Stream, seed: int, given: dict[str, Any], ways: list[str], budget: int | None
) -> list[tuple[str, int, float]]:
    """Labels and accuracy of each way; `budget`: what `amr` asked for, if it has run before."""
    more = dict(given)
    budget = budget or more["budget"]
    del more["budget"]
    rest = ~stream.given
    hits: dict[str, np.ndarray] = {}
    lines = []
    for way in ways:
        settings = dict(more["settings"])
        kind, known, count = way, stream, budget
        if way == "weighed":
            kind = "amr"  # the same way of asking, another adaptation
        elif way == "oracle":
            kind = "vanilla"
            wrong = np.flatnonzero(rest & ~hits["vanilla"])
            chosen = np.random.default_rng([seed, 2]).permutation(wrong)[:budget]
            known = replace(stream, given=stream.given | np.isin(np.arange(len(rest)), chosen))
        adaptation = {"adaptation": "amr-weighed"} if way == "weighed" else {}
        outcome = showing.run_stream(
            known,
            kind,
            seed=seed,
            budget=count,
            override=adaptation,
            **{**more, "settings": settings},
        )
        if way == "amr":
            budget = outcome.labels
        hits[way] = outcome.hits
        labels = budget if way == "oracle" else outcome.labels
        lines.append((way, labels, round(100 * float(outcome.hits[rest].mean()), 2)))
    return lines


def saved() -> dict[tuple[str, str, str], dict[str, str]]:
    """The finished runs by stream, way and seed."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(newline="") as lines:
        return {(each["stream"], each["way"], each["seed"]): each for each in csv.DictReader(lines)}


def table() -> Iterator[str]:
    """Accuracies, and what `weighed` is above each other way, paired by seed."""
    found = {key: float(each["accuracy"]) for key, each in saved().items()}
    mine = "weighed"
    for stream, way in product(("yearbook", "pacs"), WAYS):
        seeds = [s for st, w, s in found if (st, w) == (stream, mine) and (st, way, s) in found]
        if way == mine or len(seeds) < 2:
            continue
        pairs = [(found[stream, mine, seed], found[stream, way, seed]) for seed in seeds]
        above, half = interval([one - other for one, other in pairs])
        means = np.mean(pairs, axis=0)
        yield f"{stream}: {mine} {means[0]:.1f}, {way} {means[1]:.1f}: {above:+.1f} ± {half:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("yearbook", "pacs"), action="append")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--budgets", type=int, nargs="+", help="of each seed, where amr has run")
    parser.add_argument("--table", action="store_true", help="print what has been measured")
    asked = parser.parse_args()
    if asked.table:
        print("\n".join(table()))
        return
    budgets = asked.budgets or [None] * len(asked.seeds)
    torch.set_num_threads(1)
    for name, module in (("pacs", pacs), ("yearbook", yearbook)):
        if asked.only and name not in asked.only:
            continue
        stream_of, given = captured(module, asked.seeds)
        done = saved()
        for seed, budget in zip(asked.seeds, budgets, strict=True):
            stream = stream_of(seed)
            for way, labels, accuracy in play(stream, seed, given, asked.ways, budget):
                if (name, way, str(seed)) in done:  # the oracle needs `vanilla` again
                    print(name, way, seed, accuracy, "before:", done[name, way, str(seed)])
                    continue
                is_new = not RESULTS.exists()
                with RESULTS.open("a", newline="") as to:
                    writer = csv.writer(to, lineterminator="\n")
                    if is_new:
                        writer.writerow(COLUMNS)
                    writer.writerow((name, way, seed, labels, accuracy))
                print(name, way, seed, labels, accuracy, flush=True)


if __name__ == "__main__":
    main()
