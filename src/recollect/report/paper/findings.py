"""What paired runs, or published means, say about each claim on accuracy, labels and compute."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from recollect.report.columns import compact
from recollect.report.paper import published
from recollect.report.paper.claim_evidence import Evidence, Values, Where, differences, gains, only
from recollect.report.paper.intervals import HOLDS, UNDECIDED, Paired, both, paired
from recollect.report.words import plural

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
    found = {where: v for where, v in gains(known, "fr").items() if not where.backbone}
    pairs = paired(found.values())
    if pairs is None:
        return None
    ahead = sum(mean >= 0 for mean in pairs.means)
    text = f"amr at or above fr in {ahead} of {plural(len(pairs.cells), 'cell')}; {points(pairs)}"
    return Finding(text=_told(text, known, pairs, found), verdict=pairs.interval.at_least(-MARGIN))


def factor(known: Evidence, measure: str) -> Finding | None:
    """How many times as much full relearning takes, for each buffer size, and how much that is."""
    fr, amr = (_positive(known.get(measure, name)) for name in ("fr", "amr"))
    found = differences(fr, amr, by=lambda theirs, ours: math.log10(theirs / ours))
    return _factor_of(found, fr, amr, known)


def _positive(values: Values) -> Values:
    return {
        where: {seed: value for seed, value in by_seed.items() if value > 0}
        for where, by_seed in values.items()
    }


def _factor_of(
    found: Mapping[Where, Sequence[float]], fr: Values, amr: Values, known: Evidence
) -> Finding | None:
    pairs = paired(found.values())
    if pairs is None:
        return None
    told, verdicts = [], []
    for size in sorted({where.buffer_size for where, values in found.items() if values}):
        places = [where for where, v in found.items() if v and where.buffer_size == size]
        members = only(found, buffer_size=size)
        assert members is not None
        verdicts.append(members.interval.at_least(math.log10(FACTOR)))
        told.append(
            f"buffer {size}: {_span(fr, places)} against {_span(amr, places)}, {_times(members)}, "
            f"{verdicts[-1]}"
        )
    text = f"fr against amr with {'; '.join(told)}"
    said = _told(text, known, pairs, found, spread=lambda sd: f"a factor of {10**sd:.3g}")
    return Finding(text=said, verdict=both(*verdicts))


def _span(values: Values, places: Sequence[Where]) -> str:
    """The smallest and the largest number itself, because a share alone depends on the scale."""
    numbers = sorted(value for where in places for value in values[where].values())
    ends = [compact(end) if end < 1e6 else f"{end:.2g}" for end in (numbers[0], numbers[-1])]
    return " to ".join(dict.fromkeys(ends))


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
    found, lower = {}, 0
    for place, sizes in by_size.items():
        small, large = min(sizes), max(sizes)
        if small == large:
            continue
        seeds = sorted(sizes[small].keys() & sizes[large].keys())
        found[place] = [sizes[large][seed] - sizes[small][seed] for seed in seeds]
        ends = [moved[place._replace(buffer_size=size)] for size in (small, large)]
        lower += sum(ends[1][s] - ends[0][s] for s in seeds) < 0
    pairs = paired(found.values())
    if pairs is None:
        return None
    more = sum(mean > 0 for mean in pairs.means)
    text = (
        f"the loss grows with the buffer in {more} of {plural(len(pairs.cells), 'cell')} (accuracy "
        f"under drift itself falls in {lower}); {points(pairs)}"
    )
    return Finding(text=_told(text, known, pairs, found), verdict=pairs.interval.at_least(MARGIN))


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
    found = {w: v for w, v in gains(known, "vanilla", "faa_stable").items() if w.num_drifts}
    pairs = paired(found.values())
    if pairs is None:
        return None
    text = f"on classes that never drifted, amr - vanilla: {points(pairs)}"
    return Finding(text=_told(text, known, pairs, found), verdict=pairs.interval.at_least(-MARGIN))


def small_buffers_suffice(known: Evidence) -> Finding | None:
    """What realignment gains with 500 rows, on few classes and on many."""
    found = gains(known, "vanilla")
    told, verdicts = [], []
    for benchmark, enough in (("cifar100-cd", True), ("tinyimagenet-cd", False)):
        pairs = only(found, benchmark=benchmark, buffer_size=500)
        if pairs is None:
            return None
        behind = sum(mean <= 0 for mean in pairs.means)
        interval = pairs.interval
        verdicts.append(interval.at_least(MARGIN) if enough else interval.below(MARGIN))
        told.append(
            f"{benchmark}: amr at or below vanilla in {behind} of "
            f"{plural(len(pairs.cells), 'cell')}, {points(pairs)}{_seeds(known, pairs)}"
        )
    origin = f"; {known.origin}" if known.origin else ""
    return Finding(text="; ".join(told) + origin, verdict=both(*verdicts))


def any_backbone(known: Evidence) -> Finding | None:
    """Realignment against full relearning on each of several backbones."""
    found = {where: v for where, v in gains(known, "fr").items() if where.backbone}
    names = dict.fromkeys(where.backbone for where, values in found.items() if values)
    pairs = paired(found.values())
    if pairs is None or len(names) < 2:
        return None
    told, worst = [], math.inf
    for name in names:
        members = only(found, backbone=name)
        assert members is not None
        worst = min(worst, members.interval.mean)
        told.append(f"{name} {members.interval.mean:+.2f}")
    text = f"amr - fr: {', '.join(told)}; all: {points(pairs)}"
    verdict = pairs.interval.at_least(-MARGIN)
    if verdict == HOLDS and worst < -MARGIN:
        verdict = UNDECIDED
    return Finding(text=_told(text, known, pairs, found), verdict=verdict)


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


def _told(
    text: str,
    known: Evidence,
    pairs: Paired,
    found: Mapping[Where, Sequence[float]],
    spread: Callable[[float], str] = _in_points,
) -> str:
    """The text with seeds, scale and benchmarks; of published means the text alone."""
    if not known.origin:
        return text
    names = dict.fromkeys(where.benchmark for where, values in found.items() if values)
    return f"{text}{_seeds(known, pairs, spread)}; {known.origin}, {', '.join(names)}"
