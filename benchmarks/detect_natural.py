"""How often each test finds drift that nobody made: other kinds of image, other decades.

    python benchmarks/detect_natural.py [--data pacs] [--encoder random learner] [--num-seeds 3]
                                        [--json PATH] [--figure PATH]

pacs: photos against paintings, cartoons and sketches. yearbook: portraits of the 1930s (the first
decade with hundreds of samples of either class) against each later decade, and each decade against the
one before it. A learner is trained on one half of the first domain; the reference is the other half
or another domain, which it never sees. Every class is tested by itself at level 0.05, not corrected
for the number of classes, with 50 reference and 100 current samples, redrawn several times, and with
all samples (1,000 of a side at most). Holm's correction is over the classes of a check. The control
splits the held-out half of the first domain in two, anew every time: what it flags are false
alarms.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path

import matplotlib
import numpy as np
import torch
from detect_common import (
    COSTLY,
    LEVEL,
    NUM_CURRENT,
    STYLES,
    by_class,
    common_arguments,
    drawn,
    encoded,
    encoder_named,
    images_of,
    load_data,
    merged,
    p_values,
    save_figure,
    say,
    say_load,
    tests_on,
    trained,
    write_json,
)
from matplotlib.axes import Axes

from driftwise import rng
from driftwise.report import style
from driftwise.report.facets import facets
from driftwise.stats.multiplicity import holm
from driftwise.types import Dataset, Encoding

FIRST = {"pacs": "photo", "yearbook": "1930s"}
CONTROL = "control"
SCORES = ("entropy", "energy")
DECISIONS = ("ks-entropy", "ks-energy", "mmd", "c2st", "combined", "combined, holm")
NUM_REFERENCE = 50
FEW, ALL = f"{NUM_REFERENCE} against {NUM_CURRENT} samples", "all samples"


@dataclass(frozen=True, kw_only=True)
class Step:
    """From one domain to another."""

    story: str
    """what the step belongs to"""
    source: int
    target: int


@dataclass(frozen=True, kw_only=True)
class Case:
    """One class on one step, seen through one encoder with so many samples."""

    encoder: str
    seed: int
    story: str
    source: str
    target: str
    label: int
    rows: str
    num_reference: int
    num_current: int
    cost: float
    """points of accuracy that a learner of the first domain loses on the step"""
    found: dict[str, float]
    """share of the redraws that each test flags"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was made of the samples of all domains, by one learner and by one encoder."""

    rows: dict[int, list[np.ndarray]]
    """by domain and class, none that the learner was trained on"""
    correct: np.ndarray
    """bool by sample number: whether the learner is right"""
    place: np.ndarray
    """by sample number, where it stands in the encoding"""
    encoding: Encoding

    def side(self, rows: np.ndarray) -> Encoding:
        """Encodings of some samples."""
        return self.encoding[torch.from_numpy(self.place[rows])]

    def cost(self, step: Step, label: int) -> float:
        """Points of accuracy on a class, lost from source to target."""
        source, target = (self.rows[domain][label] for domain in (step.source, step.target))
        return 100 * float(self.correct[source].mean() - self.correct[target].mean())


# Measuring


def steps_of(dataset: Dataset, name: str) -> list[Step]:
    """Every drift of a data set, after the control."""
    first = dataset.domain_names.index(FIRST[name])
    others = [domain for domain in range(len(dataset.domain_names)) if domain != first]
    steps = [Step(story=CONTROL, source=first, target=first)]
    if name == "yearbook":
        others = [domain for domain in others if domain > first]
        steps += [
            Step(story="from the decade before", source=source, target=target)
            for source, target in pairwise([first, *others])
        ]
    story = f"from {FIRST[name]}"
    return steps + [Step(story=story, source=first, target=other) for other in others]


def looked_at(
    dataset: Dataset, steps: Sequence[Step], seed: int, arguments: argparse.Namespace
) -> Iterator[tuple[str, Seen]]:
    """All samples but those of the learner, through each encoder."""
    assert dataset.domains is not None
    first = steps[0].source
    rows = {
        domain: by_class(
            dataset.labels, np.flatnonzero(dataset.domains == domain), len(dataset.class_names)
        )
        for domain in sorted({step.target for step in steps})
    }
    draw = rng.fork(seed, "natural", "halves")
    mixed = [drawn(of, len(of), draw) for of in rows[first]]
    rows[first] = [of[len(of) // 2 :] for of in mixed]
    learner = trained(
        dataset, [of[: len(of) // 2] for of in mixed], epochs=arguments.epochs, seed=seed
    )
    used = np.concatenate([of for by_label in rows.values() for of in by_label])
    place = np.full(len(dataset.labels), -1)
    place[used] = np.arange(len(used))
    images = images_of(dataset, used)
    said = encoded(learner, images).logits.argmax(dim=1).numpy()
    correct = np.zeros(len(dataset.labels), dtype=bool)
    correct[used] = said == dataset.labels[used]
    for name in arguments.encoder:
        encoder = encoder_named(name, learner, dataset.images.shape[1:], seed)
        yield name, Seen(rows=rows, correct=correct, place=place, encoding=encoded(encoder, images))


def sample(
    seen: Seen, step: Step, label: int, amount: str, max_samples: int, draw: torch.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Reference samples and current samples of a class; fewer, where there are no more."""
    few = amount == FEW
    reference = seen.rows[step.source][label]
    most = (NUM_REFERENCE, NUM_CURRENT) if few else (max_samples, max_samples)
    if step.story != CONTROL:
        return drawn(reference, most[0], draw), drawn(seen.rows[step.target][label], most[1], draw)
    mixed = drawn(reference, len(reference), draw)
    cut = NUM_REFERENCE if few else len(mixed) // 2
    return mixed[:cut][: most[0]], mixed[cut:][: most[1]]


def cases_of(
    dataset: Dataset,
    steps: Sequence[Step],
    seed: int,
    arguments: argparse.Namespace,
) -> Iterator[Case]:
    """Every case of one seed."""
    tests = tests_on(SCORES, arguments.permutations)
    labels = range(len(dataset.class_names))
    for name, seen in looked_at(dataset, steps, seed, arguments):
        for step, amount in product(steps, (FEW, ALL)):
            if step.story == CONTROL:
                redraws = arguments.control_redraws
            else:  # all samples against all samples, drawn anew, would be the same ones
                redraws = arguments.redraws if amount == FEW else 1
            path = (seed, step.story, step.source, step.target, amount)
            draw = rng.fork(0, "natural", *path)
            drawn_rows = [
                sample(seen, step, label, amount, arguments.max_samples, draw)
                for label, _ in product(labels, range(redraws))
            ]
            pairs = [(seen.side(kept), seen.side(now)) for kept, now in drawn_rows]
            columns = p_values(tests, pairs, *path)
            columns["combined"] = merged(columns)
            values = {test: of.reshape(len(labels), redraws) for test, of in columns.items()}
            thresholds = np.array([holm(check.tolist(), LEVEL) for check in values["combined"].T])
            flagged = {test: of <= LEVEL for test, of in values.items()}
            flagged["combined, holm"] = values["combined"] <= thresholds
            for label in labels:
                kept, now = drawn_rows[label * redraws]
                yield Case(
                    encoder=name,
                    seed=seed,
                    story=step.story,
                    source=dataset.domain_names[step.source],
                    target=dataset.domain_names[step.target],
                    label=label,
                    rows=amount,
                    num_reference=len(kept),
                    num_current=len(now),
                    cost=seen.cost(step, label),
                    found={test: float(of[label].mean()) for test, of in flagged.items()},
                )
        say(f"seed {seed}, encoder {name}: {len(steps)} steps tested")


# Showing


def show(cases: Sequence[Case], encoders: Sequence[str]) -> None:
    """A table for each encoder and amount of samples, then the comparison that the paper made."""
    for encoder, amount in product(encoders, (FEW, ALL)):
        some = [case for case in cases if (case.encoder, case.rows) == (encoder, amount)]
        say(f"\nencoder {encoder}, {amount}: share of classes flagged; means over seeds")
        say(f"{'':<28}{'cost':>6}" + "".join(f"{name:>16}" for name in DECISIONS))
        for story, source, target in dict.fromkeys((c.story, c.source, c.target) for c in some):
            of_step = [c for c in some if (c.story, c.source, c.target) == (story, source, target)]
            what = story if story == CONTROL else f"{source} -> {target}"
            say(f"{what:<28}{np.mean([c.cost for c in of_step]):6.1f}{shares_line(of_step)}")
    for encoder, amount in product(encoders, (FEW, ALL)):
        some = [case for case in cases if (case.encoder, case.rows) == (encoder, amount)]
        drifts = [case for case in some if case.story != CONTROL]
        costly = [case for case in drifts if case.cost > COSTLY]
        groups = {
            story: [case for case in some if case.story == story]
            for story in dict.fromkeys(case.story for case in some)
        }
        say(f"\nencoder {encoder}, {amount}: class by class")
        say(f"{'':<34}" + "".join(f"{name:>16}" for name in DECISIONS))
        for story, group in groups.items():
            say(f"{f'{story} ({len(group)})':<34}{shares_line(group)}")
        if costly:
            say(f"{f'cost over {COSTLY:g} points ({len(costly)})':<34}{shares_line(costly)}")
        say(
            f"KS on entropy finds {mean_found(drifts, 'ks-entropy'):.0%} of the drifts, MMD"
            f" {mean_found(drifts, 'mmd'):.0%}, the classifier {mean_found(drifts, 'c2st'):.0%},"
            f" combined {mean_found(drifts, 'combined'):.0%}"
            " (published, on CLEAR-10: KS about half, MMD nearly all)"
        )


def shares_line(cases: Sequence[Case]) -> str:
    return "".join(f"{mean_found(cases, name):16.3f}" for name in DECISIONS)


def mean_found(cases: Sequence[Case], name: str) -> float:
    return float(np.mean([case.found[name] for case in cases]))


# Drawing


def draw_figure(cases: Sequence[Case], encoders: Sequence[str], title: str, path: Path) -> None:
    """Bars: encoders and stories downwards, few and all samples across."""
    stories = [story for story in dict.fromkeys(c.story for c in cases) if story != CONTROL]
    groups = max(len({c.target for c in cases if c.story in (CONTROL, s)}) for s in stories)
    with matplotlib.rc_context(style.RC):
        places = list(product(encoders, stories, (FEW, ALL)))
        grid = facets(len(places), (max(3.4, 0.55 * groups), 2.1), columns=2)
        for panel, (encoder, story, amount) in zip(grid.panels, places, strict=True):
            some = [
                case
                for case in cases
                if (case.encoder, case.rows) == (encoder, amount) and case.story in (CONTROL, story)
            ]
            draw_panel(panel, some)
            panel.set_title(f"{story}, {amount}")
        rows = [f"encoder {encoder}\n% of classes" for encoder, _ in product(encoders, stories)]
        grid.label("", rows, share_x=False)
        grid.add_legend(grid.panels[0].get_legend_handles_labels()[0], title)
        save_figure(path, grid.figure)


def draw_panel(panel: Axes, cases: Sequence[Case]) -> None:
    """A group of bars for each domain, the control first; lines span the seeds."""
    groups = list(dict.fromkeys((case.story, case.target) for case in cases))
    width = 0.8 / len(DECISIONS)
    panel.axhline(100 * LEVEL, color=style.MUTED, linewidth=0.8, linestyle=":", label="level")
    for number, name in enumerate(DECISIONS):
        at = np.arange(len(groups)) + (number - (len(DECISIONS) - 1) / 2) * width
        seeds = 100 * np.array([means_by_seed(cases, group, name) for group in groups])
        panel.bar(
            at,
            seeds.mean(axis=1),
            width=0.9 * width,
            facecolor=STYLES[name].face,
            edgecolor=STYLES[name].colour,
            linewidth=0.8,
            label=name,
        )
        panel.vlines(at, seeds.min(axis=1), seeds.max(axis=1), color=style.INK, linewidth=0.8)
    names = [story if story == CONTROL else target.replace("_", "\n") for story, target in groups]
    panel.set(ylim=(0, 104), yticks=(0, 25, 50, 75, 100))
    panel.set_xticks(np.arange(len(groups)), names)
    panel.tick_params(axis="x", length=0)
    panel.grid(axis="y")


def means_by_seed(cases: Sequence[Case], group: tuple[str, str], name: str) -> list[float]:
    mine = [case for case in cases if (case.story, case.target) == group]
    seeds = sorted({case.seed for case in mine})
    return [mean_found([case for case in mine if case.seed == seed], name) for seed in seeds]


# The command line


def parsed() -> argparse.Namespace:
    parser = common_arguments(__doc__, "random", "learner")
    parser.add_argument("--data", default="pacs", choices=tuple(FIRST))
    parser.add_argument("--num-seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--redraws", type=int, default=10, help="per class and seed")
    parser.add_argument("--control-redraws", type=int, default=100, help="per class and seed")
    parser.add_argument("--max-samples", type=int, default=1000, help="of a side, of all samples")
    parser.add_argument("--permutations", type=int, default=399, help="of the tests on features")
    parser.add_argument("--epochs", type=int, default=30, help="for the learner")
    parser.add_argument("--figure", type=Path, metavar="PATH", help=".png or .svg")
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    torch.set_num_threads(1)
    say_load()
    dataset = load_data(arguments.data)
    steps = steps_of(dataset, arguments.data)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.num_seeds)
    say(
        f"{arguments.data}, encoders {', '.join(arguments.encoder)}, {len(steps)} steps,"
        f" seeds {seeds[0]} to {seeds[-1]}"
    )
    cases = [case for seed in seeds for case in cases_of(dataset, steps, seed, arguments)]
    show(cases, arguments.encoder)
    if arguments.json is not None:
        hidden = ("json", "figure")
        settings = {name: value for name, value in vars(arguments).items() if name not in hidden}
        write_json(arguments.json, settings | {"cases": [asdict(case) for case in cases]})
    if arguments.figure is not None:
        title = f"Natural drift found: {arguments.data} (lines: least and most of the seeds)"
        draw_figure(cases, arguments.encoder, title, arguments.figure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
