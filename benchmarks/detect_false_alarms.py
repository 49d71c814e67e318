"""How often each test cries wolf: nothing has drifted, and both samples are drawn anew every time.

    python benchmarks/detect_false_alarms.py [--data fashion-mnist] [--encoder random] [--sizes 20]

A check draws a class, reference samples and 100 current samples of it without overlap, and tests at level
0.05. Discrete tests may lie below the level, by as much as is printed beside them; none may lie
above it by more than chance. An encoder that learns is trained first, on training samples; both
samples are then drawn from test samples, which it has never seen.

    python benchmarks/detect_false_alarms.py --encoder learner --trained-reference

draws the reference from samples that the learner was trained on, as a replay memory would: that is the
mistake which makes it cry wolf, shown on a learner that knows its few samples by heart.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass

import numpy as np
import torch
from detect_common import (
    LEVEL,
    NUM_CURRENT,
    PValues,
    by_class,
    common_arguments,
    encoded,
    encoder_named,
    images_of,
    learns,
    load_data,
    merged,
    p_values,
    say,
    say_load,
    tests_on,
    trained,
    trained_and_fresh,
    write_json,
)
from scipy import stats

from driftwise import rng
from driftwise.stats import ks
from driftwise.types import Dataset, Encoding

SCORES = ("entropy", "margin", "energy", "max-probability")
METHODS = ("cauchy", "harmonic", "bonferroni")
PORTION = 100
"""checks that are tested in one call"""
MOST = 0.07
"""false alarms of any test"""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The encodings of each class that samples are drawn from."""

    current: list[Encoding]
    reference: list[Encoding] | None
    """None: the current ones as well, without overlap"""

    def draw(self, size: int, draw: torch.Generator) -> tuple[Encoding, Encoding]:
        """Reference and current samples of a class at random."""
        label = int(torch.randint(len(self.current), (), generator=draw))
        rows = self.current[label]
        order = torch.randperm(len(rows), generator=draw)
        if self.reference is None:
            return rows[order[:size]], rows[order[size : size + NUM_CURRENT]]
        kept = self.reference[label]
        others = torch.randperm(len(kept), generator=draw)[:size]
        return kept[others], rows[order[:NUM_CURRENT]]

    def largest(self) -> int:
        """Reference samples that every class has to offer."""
        if self.reference is None:
            return min(map(len, self.current)) - NUM_CURRENT
        return min(map(len, self.reference))


@dataclass(frozen=True, kw_only=True)
class Rate:
    """What one test did in checks of one size."""

    size: int
    test: str
    rate: float
    low: float
    high: float
    """95 % interval"""
    attainable: float | None
    """what chance alone gives: the largest rate up to the level; None: not known"""


def sides_of(dataset: Dataset, arguments: argparse.Namespace) -> Sides:
    """Encoded once; what an encoder was trained on is not among the samples, unless asked for."""
    shape = dataset.images.shape[1:]
    if not learns(arguments.encoder):
        encoder = encoder_named(arguments.encoder, None, shape, arguments.seed)
        rows = by_class(
            dataset.labels, np.arange(len(dataset.labels)), num_classes=len(dataset.class_names)
        )
        return Sides(
            current=[encoded(encoder, images_of(dataset, of[: arguments.samples])) for of in rows],
            reference=None,
        )
    known, fresh = trained_and_fresh(dataset, arguments.train_samples, arguments.seed)
    learner = trained(dataset, known, epochs=arguments.epochs, seed=arguments.seed)
    encoder = encoder_named(arguments.encoder, learner, shape, arguments.seed)
    current = [encoded(encoder, images_of(dataset, of)) for of in fresh]
    correct = [
        float((of.logits.argmax(dim=1) == label).double().mean())
        for label, of in enumerate(current)
    ]
    say(f"on samples it never saw it is right in {np.mean(correct):.1%}")
    return Sides(
        current=current,
        reference=[encoded(encoder, images_of(dataset, of)) for of in known]
        if arguments.trained_reference
        else None,
    )


def all_p_values(sides: Sides, size: int, arguments: argparse.Namespace) -> PValues:
    """One p-value per check, by test and by way of merging."""
    tests = tests_on(SCORES, arguments.permutations)
    draw = rng.fork(arguments.seed, "false-alarms", size)
    portions = []
    for start in range(0, arguments.checks, PORTION):
        count = min(PORTION, arguments.checks - start)
        pairs = [sides.draw(size, draw) for _ in range(count)]
        portions.append(p_values(tests, pairs, arguments.seed, size, start))
    columns = {
        test.name: np.concatenate([portion[test.name] for portion in portions]) for test in tests
    }
    return columns | {f"combined, {method}": merged(columns, method) for method in METHODS}


def attainable(test: str, size: int, permutations: int) -> float | None:
    """The largest p-value up to the level that a test of such sizes can give.

    That is its rate of false alarms where ties have no part in it.
    """
    if test.startswith("combined"):
        return None
    if not test.startswith("ks-"):
        return math.floor(LEVEL * (1 + permutations) + 1e-9) / (1 + permutations)
    fewer, more = sorted((size, NUM_CURRENT))
    # The gap of two distributions is a multiple of 1 / lcm(fewer, more).
    step = math.gcd(fewer, more)
    reaches = range(step, fewer * more + 1, step)
    low, high = 0, len(reaches) - 1  # p-values fall as reaches grow
    while low < high:
        middle = (low + high) // 2
        if ks._answers([(fewer, more, reaches[middle])])[0] <= LEVEL:
            high = middle
        else:
            low = middle + 1
    return ks._answers([(fewer, more, reaches[low])])[0]


def rates_of(columns: PValues, size: int, permutations: int) -> list[Rate]:
    """Share of the checks that each test flags."""
    rates = []
    for test, values in columns.items():
        alarms = int((values <= LEVEL).sum())
        interval = stats.binomtest(alarms, len(values)).proportion_ci(method="wilson")
        rates.append(
            Rate(
                size=size,
                test=test,
                rate=alarms / len(values),
                low=float(interval.low),
                high=float(interval.high),
                attainable=attainable(test, size, permutations),
            )
        )
    return rates


def table_line(rate: Rate) -> str:
    """Rate and interval, and what the test can reach at most."""
    line = (
        f"{rate.size:>4} reference samples  {rate.test:<22} {rate.rate:.4f}"
        f"  [{rate.low:.3f}, {rate.high:.3f}]"
    )
    if rate.attainable is None:
        return line
    return f"{line}  attainable {rate.attainable:.4f} ({rate.attainable - LEVEL:+.4f})"


def parsed() -> argparse.Namespace:
    parser = common_arguments(__doc__, "random")
    parser.add_argument("--data", default="fashion-mnist", help="a known data set")
    parser.add_argument("--checks", type=int, default=2000)
    parser.add_argument("--sizes", default="20,50,500", help="reference samples")
    parser.add_argument(
        "--samples", type=int, help="of a class, for a fixed encoder; all by default"
    )
    parser.add_argument("--permutations", type=int, default=99)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-samples", type=int, default=100, help="per class, for a learner")
    parser.add_argument("--epochs", type=int, default=100, help="for a learner")
    parser.add_argument(
        "--trained-reference",
        action="store_true",
        help="draw the reference from samples that the learner was trained on",
    )
    arguments = parser.parse_args()
    if arguments.trained_reference and not learns(arguments.encoder):
        parser.error(f"{arguments.encoder} trains on nothing; use --encoder learner")
    return arguments


def main() -> int:
    arguments = parsed()
    torch.set_num_threads(1)
    say_load()
    checks = arguments.checks
    say(
        f"{arguments.data}, encoder {arguments.encoder}, {checks} checks, {NUM_CURRENT} current"
        f" samples, level {LEVEL}; above {stats.binom.ppf(0.999, checks, LEVEL) / checks:.3f} would be"
        " more than chance"
    )
    sides = sides_of(load_data(arguments.data), arguments)
    rates: list[Rate] = []
    for size in map(int, arguments.sizes.split(",")):
        if size > sides.largest():
            say(f"{size:>4} reference samples: classes have only {sides.largest()} to offer")
            continue
        some = rates_of(all_p_values(sides, size, arguments), size, arguments.permutations)
        for rate in some:
            say(table_line(rate))
        rates += some
    settings = {name: value for name, value in vars(arguments).items() if name != "json"}
    write_json(arguments.json, settings | {"rates": [asdict(rate) for rate in rates]})
    worst = max(rate.rate for rate in rates)
    if arguments.trained_reference:
        say(
            f"largest rate {worst:.4f} at level {LEVEL}: samples it was trained on are no reference"
        )
        return 0
    say(f"largest rate {worst:.4f}: {'within' if worst <= MOST else 'ABOVE'} {MOST}")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    raise SystemExit(main())
