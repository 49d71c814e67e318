"""What paired runs, or published means, say about each claim on accuracy, labels and compute."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from driftwise.report.columns import compact
from driftwise.report.words import plural
from driftwise.reproduce import published
from driftwise.reproduce.claim_evidence import Compared, Evidence, Values, compare
from driftwise.reproduce.claim_pools import Where
from driftwise.reproduce.intervals import HOLDS, NOT_MEASURED, UNDECIDED, Paired, both

MARGIN = 1.0
"""Points of accuracy that count as a difference."""

FACTOR = 10.0
"""What an order of magnitude is."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one source says about a claim."""

    text: str
    verdict: str


def matches_relearning(known: Evidence) -> Finding | None:
    """Realignment against full relearning; backbones have a claim of their own."""
    found = compare(known, "faa", "amr", "fr").only(backbone="")
    pairs = found.pairs
    if pairs is None:
        return idle(known, found)
    ahead = sum(mean >= 0 for mean in pairs.means)
    text = f"amr at or above fr in {ahead} of {plural(len(pairs.cells), 'cell')}; {points(pairs)}"
    return Finding(text=told(text, known, pairs, found), verdict=pairs.interval.at_least(-MARGIN))


def idle(known: Evidence, found: Compared) -> Finding | None:
    """What is to be said where no pair is left; None if there never was one."""
    if not found.idle:
        return None
    text = f"{plural(len(found.idle), 'pair')} of runs, in each of which a side never adapted"
    text = f"not measured: {text} ({found.obstacle}); {known.origin}"
    return Finding(text=text, verdict=NOT_MEASURED)


def factor(known: Evidence, measure: str) -> Finding | None:
    """How many times as much full relearning takes, for each buffer size, and how much that is."""
    found = compare(known, measure, "fr", "amr", by=lambda fr, amr: math.log10(fr / amr))
    pairs = found.pairs
    if pairs is None:
        return idle(known, found)
    fr, amr = (known.get(measure, name) for name in ("fr", "amr"))
    said, verdicts = [], []
    for size in sorted({where.buffer_size for where in found.values}):
        here = found.only(buffer_size=size)
        members = here.pairs
        assert members is not None
        verdicts.append(members.interval.at_least(math.log10(FACTOR), fixed=True))
        said.append(
            f"buffer {size}: {_span(fr, here)} against {_span(amr, here)}, {_times(members)}, "
            f"{verdicts[-1]}"
        )
    verdict = both(*verdicts)
    absent = sorted(_SIZES - {where.buffer_size for where in found.values})
    if absent:
        said.append(f"not measured with {' and '.join(map(str, absent))}")
        verdict = "undecided" if verdict == "holds" else verdict
    text = f"fr against amr with {'; '.join(said)}"
    text = told(text, known, pairs, found, spread=lambda sd: f"a factor of {10**sd:.3g}")
    return Finding(text=text, verdict=verdict)


def _span(values: Values, pairs: Compared) -> str:
    """The smallest and the largest number itself, because a share alone depends on the scale."""
    numbers = sorted(values[where][seed] for where, by in pairs.values.items() for seed in by)
    ends = [compact(end) if end < 1e6 else f"{end:.2g}" for end in (numbers[0], numbers[-1])]
    return " to ".join(dict.fromkeys(ends))


_SIZES = {cell.buffer_size for name in published.MAIN for cell in published.table(name)}
"""of the buffers that the claims speak of"""
_STREAMS = {
    "fmnist-cd": (5, 2, 6000),
    "cifar10-cd": (5, 2, 5000),
    "cifar100-cd": (10, 10, 500),
    "tinyimagenet-cd": (10, 20, 500),
}
"""tasks, classes in each, training rows of a class"""


def labels_by_protocol() -> Finding:
    """Label counts are not published; the protocol fixes them if every drift is found.

    Relearning asks for all training rows of the classes that drift, realignment for their slots of
    a full buffer that holds as many rows of each class.
    """
    fr: dict[Where, dict[int, float]] = {}
    amr: dict[Where, dict[int, float]] = {}
    for cell in (cell for name in published.MAIN for cell in published.table(name)):
        if (cell.adaptation, cell.method) != ("amr", "er"):
            continue  # the counts are the same for every method
        tasks, classes, rows = _STREAMS[cell.benchmark]
        first = tasks // (cell.num_drifts + 1)
        step = (tasks - first) / cell.num_drifts
        events = [math.floor(first + step * event) for event in range(cell.num_drifts)]
        new = [end - start for start, end in pairwise([0, *events])]
        slots = [cell.buffer_size * n / end for n, end in zip(new, events, strict=True)]
        where = Where(cell.benchmark, "", cell.buffer_size, "any", cell.num_drifts)
        fr[where], amr[where] = {0: sum(new) * classes * rows}, {0: sum(slots)}
    known = Evidence(origin="", measures={("labels", "fr"): fr, ("labels", "amr"): amr})
    finding = factor(known, "labels")
    assert finding is not None
    text = f"not in the tables; by the protocol, if every drift is found, {finding.text}"
    return Finding(text=text, verdict=finding.verdict)


def larger_buffers_hurt(known: Evidence) -> Finding | None:
    """What vanilla loses by drift, with the largest buffer against the smallest."""
    still, moved = _losses(known)
    by_size: defaultdict[Where, dict[int, Mapping[int, float]]] = defaultdict(dict)
    for where, losses in still.items():
        by_size[where._replace(buffer_size=0)][where.buffer_size] = losses
    values: dict[Where, dict[int, float]] = {}
    lower = 0
    for place, sizes in by_size.items():
        small, large = min(sizes), max(sizes)
        if small == large:
            continue
        seeds = sorted(sizes[small].keys() & sizes[large].keys())
        values[place] = {seed: sizes[large][seed] - sizes[small][seed] for seed in seeds}
        ends = [moved[place._replace(buffer_size=size)] for size in (small, large)]
        lower += sum(ends[1][s] - ends[0][s] for s in seeds) < 0
    found = Compared(values=values)
    pairs = found.pairs
    if pairs is None:
        return None
    more = sum(mean > 0 for mean in pairs.means)
    text = (
        f"the loss grows with the buffer in {more} of {plural(len(pairs.cells), 'cell')} (accuracy "
        f"under drift itself falls in {lower}); {points(pairs)}"
    )
    return Finding(text=told(text, known, pairs, found), verdict=pairs.interval.at_least(MARGIN))


def _losses(known: Evidence) -> tuple[Values, Values]:
    """What vanilla loses by drift, and where it ends, by place and seed."""
    ends = known.get("faa", "vanilla")
    losses: dict[Where, dict[int, float]] = {}
    for where, by_seed in ends.items():
        without = ends.get(where._replace(num_drifts=0), {})
        if where.num_drifts and without:
            losses[where] = {s: without[s] - v for s, v in by_seed.items() if s in without}
    return losses, ends


def stable_classes_kept(known: Evidence) -> Finding | None:
    """Realignment against nothing, on the classes that never drifted."""
    found = compare(known, "faa_stable", "amr", "vanilla")
    pairs = found.pairs
    if pairs is None:
        return idle(known, found)
    text = f"on classes that never drifted, amr - vanilla: {points(pairs)}"
    return Finding(text=told(text, known, pairs, found), verdict=pairs.interval.at_least(-MARGIN))


def small_buffers_suffice(known: Evidence) -> Finding | None:
    """What realignment gains with 500 rows, on few classes and on many."""
    found = compare(known, "faa", "amr", "vanilla").only(backbone="", buffer_size=500)
    said, verdicts = [], []
    for benchmark, enough in (("cifar100-cd", True), ("tinyimagenet-cd", False)):
        here = found.only(benchmark=benchmark)
        pairs = here.pairs
        if pairs is None:
            return idle(known, here)
        behind = sum(mean <= 0 for mean in pairs.means)
        interval = pairs.interval
        verdicts.append(interval.at_least(MARGIN) if enough else interval.below(MARGIN))
        said.append(
            f"{benchmark}: amr at or below vanilla in {behind} of "
            f"{plural(len(pairs.cells), 'cell')}, {points(pairs)}{_seeds(known, pairs)}"
        )
    origin = f"; {known.origin}" if known.origin else ""
    return Finding(text="; ".join(said) + found.left_out + origin, verdict=both(*verdicts))


def any_backbone(known: Evidence) -> Finding | None:
    """Realignment against full relearning on each of several backbones."""
    found = compare(known, "faa", "amr", "fr").at(lambda where: bool(where.backbone))
    names = dict.fromkeys(where.backbone for where in found.values)
    pairs = found.pairs
    if pairs is None or len(names) < 2:
        return idle(known, found)
    said, worst = [], math.inf
    for name in names:
        members = found.only(backbone=name).pairs
        assert members is not None
        worst = min(worst, members.interval.mean)
        said.append(f"{name} {members.interval.mean:+.2f}")
    text = f"amr - fr: {', '.join(said)}; all: {points(pairs)}"
    verdict = pairs.interval.at_least(-MARGIN)
    if verdict == HOLDS and worst < -MARGIN:
        verdict = UNDECIDED
    return Finding(text=told(text, known, pairs, found), verdict=verdict)


def points(pairs: Paired) -> str:
    """Mean, interval and extremes of differences in accuracy."""
    interval = pairs.interval
    text = f"mean {interval.mean:+.2f} points"
    if interval.low is not None:
        text += f" (95 % interval {interval.low:+.2f} to {interval.high:+.2f})"
    means = pairs.means
    return text if len(means) == 1 else f"{text}, cells {min(means):+.2f} to {max(means):+.2f}"


def _times(pairs: Paired) -> str:
    interval, means = pairs.interval, pairs.means
    text = f"{10**interval.mean:.3g} times"
    if interval.low is not None and interval.high is not None:
        text += f" (95 % interval {10**interval.low:.3g} to {10**interval.high:.3g})"
    ends = f", cells {10 ** min(means):.3g} to {10 ** max(means):.3g}"
    return text + (ends if len(means) > 1 else "")


def _in_points(sd: float) -> str:
    return f"{sd:.2f} points"


def _seeds(known: Evidence, pairs: Paired, spread: Callable[[float], str] = _in_points) -> str:
    """How many seeds, and how far they lie apart; nothing of published means."""
    if not known.origin:
        return ""
    low, high = pairs.num_seeds
    count = plural(high, "seed") if low == high else f"{low} to {high} seeds"
    sd = pairs.seed_sd
    return f"; {count}" + ("" if sd is None else f", deviation over seeds {spread(sd)}")


def told(
    text: str,
    known: Evidence,
    pairs: Paired,
    found: Compared,
    spread: Callable[[float], str] = _in_points,
) -> str:
    """The text with seeds, what was left out, scale and benchmarks; of published means alone."""
    if not known.origin:
        return text
    seeds = _seeds(known, pairs, spread)
    return f"{text}{seeds}{found.left_out}; {known.origin}, {found.benchmarks}"
