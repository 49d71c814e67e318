"""How often each test cries wolf: nothing has drifted, and both samples are drawn anew every time.

    python benchmarks/detect_false_alarms.py [--data fashion-mnist] [--checks 2000] [--sizes 20,50]

A check draws a class, reference rows and 100 current rows of it without overlap, and tests at level
0.05 on the encodings of a fixed random network. Discrete tests may lie below the level; none may
lie above it by more than chance.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import torch
from scipy import stats

from recollect import rng
from recollect.data.digits import load_digits
from recollect.data.library import load
from recollect.detect import RandomEncoder, Surroundings
from recollect.detect.combine import COMBINATIONS
from recollect.detect.detectors import by_c2st, by_mmd, ks_on
from recollect.types import Dataset, Encoding

LEVEL = 0.05
NUM_CURRENT = 100
SCORES = ("entropy", "margin", "energy", "max-probability")
PORTION = 100
"""checks that are tested in one call"""


def encode(dataset: Dataset) -> Encoding:
    """Every picture, by one fixed random network."""

    def no_learner(_: torch.Tensor) -> Encoding:
        raise AssertionError("a random encoder asks no learner")

    shape = dataset.images.shape[1:]
    encoder = RandomEncoder(Surroundings(learner=no_learner, image_shape=shape, seed=0))
    return encoder.encode(torch.from_numpy(np.ascontiguousarray(dataset.images)))


def p_values(
    encoding: Encoding, labels: np.ndarray, size: int, checks: int, permutations: int
) -> dict[str, np.ndarray]:
    """One p-value per check, by test."""
    tests = [*map(ks_on, SCORES), by_mmd(permutations), by_c2st(permutations)]
    found: dict[str, list[float]] = {test.name: [] for test in tests}
    draw = rng.fork(0, "false-alarms", size)
    of_class = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    for start in range(0, checks, PORTION):
        pairs = []
        for _ in range(min(PORTION, checks - start)):
            label = int(torch.randint(len(of_class), (), generator=draw))
            rows = torch.from_numpy(of_class[label])
            drawn = rows[torch.randperm(len(rows), generator=draw)[: size + NUM_CURRENT]]
            pairs.append((encoding[drawn[:size]], encoding[drawn[size:]]))
        for test in tests:
            measured = [(test.measure(kept), test.measure(now)) for kept, now in pairs]
            evidence = test.test(measured, rng.fork(1, test.name, size, start))
            found[test.name] += [each.p_value for each in evidence]
    columns = {name: np.array(values) for name, values in found.items()}
    together = np.stack([columns["ks-entropy"], columns["mmd"], columns["c2st"]], axis=1)
    for method in ("cauchy", "harmonic", "bonferroni"):
        columns[f"combined, {method}"] = COMBINATIONS[method](together)
    return columns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="fashion-mnist", help="a known data set, or digits")
    parser.add_argument("--checks", type=int, default=2000)
    parser.add_argument("--sizes", default="20,50,500", help="reference rows")
    parser.add_argument("--permutations", type=int, default=99)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dataset = load_digits() if arguments.data == "digits" else load(arguments.data)
    encoding = encode(dataset)
    checks = arguments.checks
    print(f"{arguments.data}, {checks} checks, {NUM_CURRENT} current rows, level {LEVEL}")
    print(
        f"load {os.getloadavg()[0]:.1f}; above {stats.binom.ppf(0.999, checks, LEVEL) / checks:.3f}"
        " would be more than chance"
    )
    worst = 0.0
    for size in map(int, arguments.sizes.split(",")):
        columns = p_values(encoding, dataset.labels, size, checks, arguments.permutations)
        for name, values in columns.items():
            rate = float((values <= LEVEL).mean())
            worst = max(worst, rate)
            print(f"{size:>4} reference rows  {name:<22} {rate:.4f}", flush=True)
    print(f"largest rate {worst:.4f}: {'within' if worst <= 0.07 else 'ABOVE'} 0.07")
    return 0 if worst <= 0.07 else 1


if __name__ == "__main__":
    raise SystemExit(main())
