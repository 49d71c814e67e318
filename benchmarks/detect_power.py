"""How often each test finds drift, by transform, severity and reference size; what drift costs.

    python benchmarks/detect_power.py [--data fashion-mnist] [--encoder random] [--num-seeds 3]
                                      [--sizes 20:7,50:7,500:3] [--json PATH] [--figure PATH]

Reference samples and 100 current samples of a class are drawn from the test part, without overlap; the
current ones are shown transformed. A size comes with its number of redraws per class and seed. A
seed makes the encoder, the noise, the permutation and a learner, which never sees a drifted row:
what it loses on all test samples of the class is what the drift costs. Shares are at level 0.05 for
one class by itself, not corrected for the number of classes; Holm's correction is over all classes
of a check, once with all of them drifted and once ("alone") with the class the only one; it needs
more permutations than the level by itself (`--permutations 1000 --sizes 50:7` does).

The goal: of the drifts that cost a class more than 5 points of accuracy, the combined detector
finds 99 % with 50 reference samples. What it reaches is printed, whatever it is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import matplotlib
import numpy as np
import torch
from detect_common import (
    COSTLY,
    LEVEL,
    NUM_CURRENT,
    STYLES,
    accuracy_by_class,
    common_arguments,
    encoded,
    encoder_named,
    images_of,
    learns,
    load_data,
    merged,
    p_values,
    save_figure,
    say,
    say_load,
    tests_on,
    trained,
    trained_and_fresh,
    write_json,
)
from matplotlib.axes import Axes
from torch import Tensor

from driftwise import rng
from driftwise.detect import Comparison
from driftwise.report import style
from driftwise.report.facets import facets
from driftwise.stats.multiplicity import holm
from driftwise.streams import transforms
from driftwise.types import Dataset, Encoding

TRANSFORMS = tuple(name for name in transforms.TRANSFORMS if name != "identity")
SCORES = ("entropy", "energy")
DECISIONS = ("ks-entropy", "ks-energy", "mmd", "c2st", "combined", "combined, holm")
ALONE = "combined, alone"
GOAL, GOAL_SIZE = 0.99, 50

Draws = Mapping[int, Tensor]
"""by reference size, (classes, redraws, reference + current samples): places within a class"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One class under one drift, seen with one reference size."""

    seed: int
    transform: str
    severity: int
    label: int
    size: int
    cost: float
    """points of accuracy that a learner loses which does not adapt"""
    found: dict[str, float]
    """share of the redraws that each test flags"""


# Measuring


def cases_of(dataset: Dataset, seed: int, arguments: argparse.Namespace) -> Iterator[Case]:
    """Every case of one seed."""
    sizes: Mapping[int, int] = arguments.sizes
    known, fresh = trained_and_fresh(dataset, arguments.train_samples, seed)
    learner = trained(dataset, known, epochs=arguments.epochs, seed=seed)
    encoder = encoder_named(arguments.encoder, learner, dataset.images.shape[1:], seed)
    rows = np.concatenate(fresh)
    images, labels = images_of(dataset, rows), dataset.labels[rows]
    starts = np.cumsum([0, *map(len, fresh)])
    num_samples = min(arguments.samples, *map(len, fresh))
    # Encoders may be slow: no more images than samples are drawn from.
    part = torch.cat([torch.arange(start, start + num_samples) for start in starts[:-1].tolist()])

    def encode_all(images: Tensor) -> tuple[Encoding, np.ndarray]:
        """What is drawn from, class after class, and the learner's accuracy on each class."""
        said = encoded(learner, images)
        seen = said[part] if learns(arguments.encoder) else encoded(encoder, images[part])
        return seen, accuracy_by_class(said, labels, len(fresh))

    clean, before = encode_all(images)
    say(f"seed {seed}: the learner is right in {before.mean():.1f} % of the test samples")
    draws = draws_of(len(fresh), num_samples, sizes, seed)
    tests = tests_on(SCORES, arguments.permutations)
    for transform, severity in product(TRANSFORMS, transforms.SEVERITIES):
        drifted, after = encode_all(
            transforms.apply(images, transform, severity, seed=seed, unit=arguments.unit)
        )
        costs = before - after
        line = f"seed {seed} {transform} {severity}: costs {costs.mean():5.1f} points; found"
        for size in sizes:
            path = (seed, transform, severity, size)
            found = shares(tests, clean, drifted, draws[size], num_samples, path)
            line += f"  {size}: {found['combined'].mean():.2f}"
            for label, cost in enumerate(costs.tolist()):
                yield Case(
                    seed=seed,
                    transform=transform,
                    severity=severity,
                    label=label,
                    size=size,
                    cost=cost,
                    found={name: float(share[label]) for name, share in found.items()},
                )
        say(line)


def draws_of(num_classes: int, num_samples: int, sizes: Mapping[int, int], seed: int) -> Draws:
    """The same for all drifts, so that what differs between them is not the luck of the draw."""
    draws = {}
    for size, redraws in sizes.items():
        if size + NUM_CURRENT > num_samples:
            raise SystemExit(
                f"{size} + {NUM_CURRENT} samples of a class are wanted, of {num_samples}"
            )
        draw = rng.fork(seed, "power", size)
        order = torch.rand(num_classes, redraws, num_samples, generator=draw).argsort(dim=2)
        draws[size] = order[:, :, : size + NUM_CURRENT]
    return draws


def shares(
    tests: Sequence[Comparison],
    clean: Encoding,
    drifted: Encoding,
    draws: Tensor,
    num_samples: int,
    path: tuple[str | int, ...],
) -> dict[str, np.ndarray]:
    """Which share of a class's redraws each test flags, (classes,)."""
    num_classes, redraws, _ = draws.shape
    places = draws + num_samples * torch.arange(num_classes)[:, None, None]
    pairs = [
        (clean[each[:-NUM_CURRENT]], drifted[each[-NUM_CURRENT:]]) for each in places.flatten(0, 1)
    ]
    columns = p_values(tests, pairs, *path)
    columns["combined"] = merged(columns)
    values = {name: of.reshape(num_classes, redraws) for name, of in columns.items()}
    together = values["combined"]
    thresholds = np.array([holm(check.tolist(), LEVEL) for check in together.T])
    found = {name: (of <= LEVEL).mean(axis=1) for name, of in values.items()}
    found["combined, holm"] = (together <= thresholds).mean(axis=1)
    found[ALONE] = (together <= LEVEL / num_classes).mean(axis=1)
    return found


def least_alone(permutations: int) -> float:
    """What is left of the strongest evidence when one test on features sees the drift alone."""
    smallest, blind = np.array(1 / (1 + permutations)), np.array(1.0)
    return float(merged({"ks-entropy": blind, "mmd": blind, "c2st": smallest}))


# Showing


def show(cases: Sequence[Case], sizes: Sequence[int], names: Sequence[str]) -> None:
    """The tables, and the goal."""
    columns = (*DECISIONS, ALONE)
    for size in sizes:
        say(
            f"\n{size} reference samples, share found at level {LEVEL}; means over classes and seeds"
        )
        say(f"{'':<17}{'cost':>6}" + "".join(f"{name:>16}" for name in columns) + "  sd of seeds")
        for transform, severity in product(TRANSFORMS, transforms.SEVERITIES):
            some = [
                case
                for case in cases
                if (case.size, case.transform, case.severity) == (size, transform, severity)
            ]
            cost = np.mean([case.cost for case in some])
            found = "".join(f"{mean_found(some, name):16.3f}" for name in columns)
            spread = spread_over_seeds(some, "combined")
            say(f"{transform:<15}{severity:>2}{cost:6.1f}{found}  {spread:.3f}")
    for size in sizes:
        tell_goal([case for case in cases if case.size == size], size, names)


def tell_goal(cases: Sequence[Case], size: int, names: Sequence[str]) -> None:
    """What is found of the drifts that cost more than the goal allows to be missed."""
    costly = [case for case in cases if case.cost > COSTLY]
    cheap = [case for case in cases if case.cost <= COSTLY]
    if not costly:
        say(f"\n{size} reference samples: no drift cost more than {COSTLY:g} points")
        return
    say(
        f"\n{size} reference samples: of {len(costly)} drifts (class, transform, severity, seed) that"
        f" cost more than {COSTLY:g} points, and of {len(cheap)} others, are found"
    )
    for name in (*DECISIONS, ALONE):
        others = f"{mean_found(cheap, name):.3f}" if cheap else "-"
        spread = spread_over_seeds(costly, name)
        say(f"  {name:<16} {mean_found(costly, name):.3f} (sd of seeds {spread:.3f})   {others}")
    missed = [case for case in costly if case.found["combined"] < 1]
    for case in sorted(missed, key=lambda case: case.found["combined"])[:5]:
        say(
            f"  hardest: {names[case.label]}, {case.transform} {case.severity}, seed {case.seed}:"
            f" costs {case.cost:.1f} points, found in {case.found['combined']:.2f}"
        )
    if size == GOAL_SIZE:
        reached = mean_found(costly, "combined")
        verdict = "reached" if reached >= GOAL else "MISSED"
        say(
            f"  goal {GOAL:.0%} with {size} against {NUM_CURRENT} samples: {reached:.1%}, {verdict}"
        )


def mean_found(cases: Sequence[Case], name: str) -> float:
    return float(np.mean([case.found[name] for case in cases]))


def spread_over_seeds(cases: Sequence[Case], name: str) -> float:
    """Standard deviation of the seeds' means; 0 for one seed."""
    means = means_by_seed(cases, name)
    return float(np.std(means, ddof=1)) if len(means) > 1 else 0.0


def means_by_seed(cases: Sequence[Case], name: str) -> list[float]:
    seeds = sorted({case.seed for case in cases})
    return [mean_found([case for case in cases if case.seed == seed], name) for seed in seeds]


# Drawing


def draw(
    cases: Sequence[Case], sizes: Sequence[int], names: Sequence[str], title: str, path: Path
) -> None:
    """A grid of small panels: transforms downwards, reference sizes across, a line per name."""
    with matplotlib.rc_context(style.RC):
        grid = facets(len(TRANSFORMS) * len(sizes), (2.7, 1.6), columns=len(sizes))
        places = product(TRANSFORMS, sizes)
        for panel, (transform, size) in zip(grid.panels, places, strict=True):
            some = [case for case in cases if (case.transform, case.size) == (transform, size)]
            draw_panel(panel, some, names)
        for panel, size in zip(grid.panels, sizes, strict=False):
            panel.set_title(f"{size} reference samples")
        grid.label("severity", [f"{transform}\n%" for transform in TRANSFORMS])
        grid.add_legend(grid.panels[0].get_legend_handles_labels()[0], title)
        save_figure(path, grid.figure)


def draw_panel(panel: Axes, cases: Sequence[Case], names: Sequence[str]) -> None:
    """Shares of classes found over severity, with what the drift costs behind them."""
    severities = np.array(transforms.SEVERITIES)
    by_severity = [[case for case in cases if case.severity == each] for each in severities]
    costs = [max(0.0, float(np.mean([case.cost for case in some]))) for some in by_severity]
    panel.bar(severities, costs, width=0.6, color=style.FAINT, label="accuracy lost (points)")
    panel.axhline(100 * LEVEL, color=style.MUTED, linewidth=0.6, linestyle=":", label="level")
    for name in names:
        line = STYLES[name]
        seeds = 100 * np.array([means_by_seed(some, name) for some in by_severity])
        panel.plot(
            severities,
            seeds.mean(axis=1),
            color=line.colour,
            linestyle=line.line,
            marker=line.marker,
            markersize=4.2,
            markerfacecolor=line.face,
            linewidth=1.8 if name == "combined" else 1.2,
            label=name,
            zorder=3 if name == "combined" else 2,
        )
        if name == "combined":
            panel.fill_between(
                severities,
                seeds.min(axis=1),
                seeds.max(axis=1),
                color=line.colour,
                alpha=0.18,
                linewidth=0,
            )
    panel.set(xlim=(0.55, 5.45), ylim=(0, 105), xticks=severities, yticks=(0, 25, 50, 75, 100))
    panel.grid(axis="y")


# The command line


def sizes_and_redraws(text: str) -> dict[int, int]:
    """Redraws by reference size.

    >>> sizes_and_redraws("20:7,50:3")
    {20: 7, 50: 3}
    """
    return {
        int(size): int(redraws) for size, redraws in (each.split(":") for each in text.split(","))
    }


def parsed() -> argparse.Namespace:
    parser = common_arguments(__doc__, "random")
    parser.add_argument("--data", default="fashion-mnist", help="a known data set")
    parser.add_argument("--num-seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--sizes",
        type=sizes_and_redraws,
        default="20:7,50:7,500:3",
        help="reference samples, each with its redraws per class and seed",
    )
    parser.add_argument("--samples", type=int, default=1000, help="test samples encoded per class")
    parser.add_argument("--permutations", type=int, default=399, help="of the tests on features")
    parser.add_argument("--unit", default="pixel", choices=transforms.UNITS, help="permuted")
    parser.add_argument(
        "--train-samples", type=int, default=1000, help="per class, for the learner"
    )
    parser.add_argument("--epochs", type=int, default=10, help="for the learner")
    parser.add_argument("--figure", type=Path, metavar="PATH", help=".png or .svg")
    parser.add_argument(
        "--again", type=Path, metavar="PATH", help="show and draw what --json wrote, same settings"
    )
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    torch.set_num_threads(1)
    say_load()
    dataset = load_data(arguments.data)
    names = list(DECISIONS)
    if least_alone(arguments.permutations) > LEVEL / len(dataset.class_names):
        say(
            f"{arguments.permutations} permutations are few for Holm's correction: what one test on"
            " features sees alone cannot pass it, however plain; it is not drawn"
        )
        names.remove("combined, holm")
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.num_seeds)
    say(
        f"{arguments.data}, encoder {arguments.encoder}, {NUM_CURRENT} current samples,"
        f" seeds {seeds[0]} to {seeds[-1]}"
    )
    if arguments.again is None:
        cases = [case for seed in seeds for case in cases_of(dataset, seed, arguments)]
    else:
        cases = [Case(**case) for case in json.loads(arguments.again.read_text())["cases"]]
    sizes = sorted({case.size for case in cases})
    show(cases, sizes, dataset.class_names)
    if arguments.json is not None:
        hidden = ("json", "figure", "again")
        settings = {name: value for name, value in vars(arguments).items() if name not in hidden}
        write_json(arguments.json, settings | {"cases": [asdict(case) for case in cases]})
    if arguments.figure is not None:
        title = f"Share of drifts found: {arguments.data}, encoder {arguments.encoder}"
        draw(cases, sizes, names, title, arguments.figure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
