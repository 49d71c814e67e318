"""AMR on digits-cd in the trainers of others and in our own loop: final average accuracy over seeds.

    python benchmarks/trainer_accuracy.py [--seeds 20] [--only avalanche] [--environment ...] [--save]

All loops have the same stream, network, learning rate, buffer, detector and label source; each shuffles
its batches by itself. `vanilla` is our own loop without adaptation. Needs the extras `lightning` and
`transformers`; Avalanche runs in an environment of its own. `--save` writes results/trainers.csv after every
run, and keeps what is there of other loops and seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import logging
import statistics
import subprocess
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from avalanche_side import add_environment, python_of
from trainer_cases import in_lightning, in_transformers, own_loop

from driftwise.adapt import Vanilla

SAVED = Path(__file__).resolve().parents[1] / "results" / "trainers.csv"
EPOCHS = 10
Outcome = tuple[float, int]
"""final average accuracy, labels for adaptation"""


def ours(seed: int, adaptation: Any = None) -> Outcome:
    loop, accuracy = own_loop(seed, adaptation, epochs=EPOCHS)
    return accuracy, loop.ledger.labels["adaptation"]


def theirs(train: Callable[..., tuple[Any, Any, Any]], seed: int) -> Outcome:
    digits, network, callback = train(seed, epochs=EPOCHS)
    return digits.accuracy(network), callback.realigner.ledger.labels["adaptation"]


def avalanche(seed: int, environment: Path) -> Outcome:
    work = Path(__file__).parent / "trainer_avalanche.py"
    words = [python_of(environment), work, "--seed", seed, "--epochs", EPOCHS]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    return answer["faa"], answer["labels"]["adaptation"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", nargs="+", metavar="LOOP")
    parser.add_argument("--save", action="store_true")
    add_environment(parser)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of their packages
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    loops: dict[str, Callable[[int], Outcome]] = {
        "own loop": ours,
        "own loop, vanilla": lambda seed: ours(seed, Vanilla()),
        "lightning": lambda seed: theirs(in_lightning, seed),
        "transformers": lambda seed: theirs(in_transformers, seed),
        "avalanche": lambda seed: avalanche(seed, options.environment),
    }
    found = saved()
    for name in options.only or loops:
        for seed in range(options.seeds):
            with contextlib.redirect_stdout(io.StringIO()):  # their own reports
                found[name, seed] = loops[name](seed)
            if options.save:
                save(found)
        mine = [found[name, seed][0] for seed in range(options.seeds)]
        print(
            f"{name:18} {statistics.mean(mine):5.1f} ({min(mine):.1f} to {max(mine):.1f})",
            flush=True,
        )


def saved() -> dict[tuple[str, int], Outcome]:
    if not SAVED.exists():
        return {}
    with SAVED.open() as file:
        return {
            (line["loop"], int(line["seed"])): (float(line["faa"]), int(line["labels"]))
            for line in csv.DictReader(file)
        }


def save(found: Mapping[tuple[str, int], Outcome]) -> None:
    with SAVED.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["loop", "seed", "faa", "labels"])
        for (name, seed), (accuracy, labels) in sorted(found.items()):
            writer.writerow([name, seed, f"{accuracy:.2f}", labels])


if __name__ == "__main__":
    main()
