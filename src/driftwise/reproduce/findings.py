"""What finished runs, or published means, show about each claim of the paper."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from driftwise.report.comparison import compact
from driftwise.report.saved_run import Run
from driftwise.report.words import plural, share_interval
from driftwise.reproduce import published
from driftwise.reproduce.evidence import (
    HOLDS,
    MOST_SEEDS,
    NOT_MEASURED,
    UNDECIDED,
    Differences,
    Done,
    Evidence,
    Interval,
    Values,
    Where,
    all_of,
    compare,
    evidence_of,
)
from driftwise.reproduce.places import grouped

MARGIN = 1.0
"""Points of accuracy that count as a difference."""

FACTOR = 10.0
"""An order of magnitude."""

HALF, NEARLY_ALL = 0.75, 0.9
""" "About half" is less than this fraction, "nearly all" at least this one."""

HIGHEST = 5
"""The highest severity of a transform."""

HARMLESS = ("defocus-blur", "shot-noise")
HARMFUL = ("gaussian-noise", "rotation", "permutation")
RATES = ("tpr", "fpr")

SeedValues = dict[Where, dict[int, float]]


class Finding(NamedTuple):
    """What one source shows about a claim."""

    text: str
    verdict: str


def matches_relearning(known: Evidence) -> Finding | None:
    """Realignment against full relearning; backbones have a claim of their own."""
    found = compare(known, "faa", "amr", "fr").only(backbone="")
    if not found:
        return _idle(known, found)
    ahead = sum(mean >= 0 for mean in found.means)
    text = f"amr at or above fr in {ahead} of {plural(len(found.cells), 'cell')}; {_points(found)}"
    return _decided(text, known, found, -MARGIN)


def factor(known: Evidence, measure: str) -> Finding | None:
    """How many times as much full relearning takes, for each buffer size, and how much that is."""
    found = compare(known, measure, "fr", "amr", by=lambda fr, amr: math.log10(fr / amr))
    if not found:
        return _idle(known, found)
    fr, amr = (known.get(measure, name) for name in ("fr", "amr"))
    parts, verdicts = [], []
    sizes = {where.buffer_size for where in found.values}
    for size in sorted(sizes):
        here = found.only(buffer_size=size)
        verdicts.append(here.interval.at_least(math.log10(FACTOR), fixed=True))
        parts.append(
            f"buffer {size}: {_range(fr, here)} against {_range(amr, here)}, {_times(here)}, "
            f"{verdicts[-1]}"
        )
    verdict = all_of(*verdicts)
    published_sizes = {c.buffer_size for name in published.MAIN for c in published.table(name)}
    if absent := sorted(published_sizes - sizes):
        parts.append(f"not measured with {' and '.join(map(str, absent))}")
        verdict = UNDECIDED if verdict == HOLDS else verdict
    source = _source(known, found, spread=lambda sd: f"a factor of {10**sd:.3g}")
    return Finding(f"fr against amr with {'; '.join(parts)}{source}", verdict)


def _range(values: Values, pairs: Differences) -> str:
    """The smallest and the largest number itself, because a ratio alone depends on the scale."""
    numbers = sorted(values[where][seed] for where, by in pairs.values.items() for seed in by)
    ends = [compact(end) if end < 1e6 else f"{end:.2g}" for end in (numbers[0], numbers[-1])]
    return " to ".join(dict.fromkeys(ends))


_STREAMS = {
    "fmnist-cd": (5, 2, 6000),
    "cifar10-cd": (5, 2, 5000),
    "cifar100-cd": (10, 10, 500),
    "tinyimagenet-cd": (10, 20, 500),
}
"""tasks, classes in each, training samples of a class"""


def labels_by_protocol() -> Finding:
    """Label counts are not published; the protocol fixes them if every drift is found.

    Relearning requests all training samples of the classes that drift, realignment their part of a
    full buffer that holds as many samples of each class.
    """
    fr: SeedValues = {}
    amr: SeedValues = {}
    for cell in (cell for name in published.MAIN for cell in published.table(name)):
        if (cell.adaptation, cell.method) != ("amr", "er"):
            continue  # the counts are the same for every method
        tasks, classes, samples = _STREAMS[cell.benchmark]
        first = tasks // (cell.num_drifts + 1)
        step = (tasks - first) / cell.num_drifts
        events = [math.floor(first + step * event) for event in range(cell.num_drifts)]
        new = [end - start for start, end in pairwise([0, *events])]
        realigned = [cell.buffer_size * n / end for n, end in zip(new, events, strict=True)]
        where = Where(cell.benchmark, "", cell.buffer_size, "any", cell.num_drifts)
        fr[where], amr[where] = {0: sum(new) * classes * samples}, {0: sum(realigned)}
    known = Evidence(measures={("labels", "fr"): fr, ("labels", "amr"): amr})
    finding = factor(known, "labels")
    assert finding is not None
    text = f"not in the tables; by the protocol, if every drift is found, {finding.text}"
    return Finding(text, finding.verdict)


def larger_buffers_hurt(known: Evidence) -> Finding | None:
    """What vanilla loses by drift, with the largest buffer against the smallest."""
    ends = known.get("faa", "vanilla")
    losses: defaultdict[Where, dict[int, dict[int, float]]] = defaultdict(dict)
    for where, by_seed in ends.items():
        without = ends.get(where._replace(num_drifts=0), {})
        if where.num_drifts and without:
            lost = {seed: without[seed] - v for seed, v in by_seed.items() if seed in without}
            losses[where._replace(buffer_size=0)][where.buffer_size] = lost
    values: SeedValues = {}
    lower = 0
    for place, sizes in losses.items():
        small, large = min(sizes), max(sizes)
        if small == large:
            continue
        seeds = sorted(sizes[small].keys() & sizes[large].keys())
        values[place] = {seed: sizes[large][seed] - sizes[small][seed] for seed in seeds}
        drifted = [ends[place._replace(buffer_size=size)] for size in (small, large)]
        lower += sum(drifted[1][s] - drifted[0][s] for s in seeds) < 0
    found = Differences(values=values)
    if not found:
        return None
    more = sum(mean > 0 for mean in found.means)
    text = (
        f"the loss grows with the buffer in {more} of {plural(len(found.cells), 'cell')} (accuracy "
        f"under drift itself falls in {lower}); {_points(found)}"
    )
    return _decided(text, known, found, MARGIN)


def stable_classes_kept(known: Evidence) -> Finding | None:
    """Realignment against nothing, on the classes that never drifted."""
    found = compare(known, "faa_stable", "amr", "vanilla")
    if not found:
        return _idle(known, found)
    text = f"on classes that never drifted, amr - vanilla: {_points(found)}"
    return _decided(text, known, found, -MARGIN)


def small_buffers_suffice(known: Evidence) -> Finding | None:
    """What realignment gains with 500 samples, on few classes and on many."""
    found = compare(known, "faa", "amr", "vanilla").only(backbone="", buffer_size=500)
    parts, verdicts = [], []
    for benchmark, enough in (("cifar100-cd", True), ("tinyimagenet-cd", False)):
        here = found.only(benchmark=benchmark)
        if not here:
            return _idle(known, here)
        behind = sum(mean <= 0 for mean in here.means)
        interval = here.interval
        verdicts.append(interval.at_least(MARGIN) if enough else interval.below(MARGIN))
        parts.append(
            f"{benchmark}: amr at or below vanilla in {behind} of "
            f"{plural(len(here.cells), 'cell')}, {_points(here)}"
            + (_seeds(here) if known.origin else "")
            + (_to_decide(known, [here], MARGIN) if verdicts[-1] == UNDECIDED else "")
        )
    origin = f"; {known.origin}" if known.origin else ""
    return Finding("; ".join(parts) + found.left_out + origin, all_of(*verdicts))


def any_backbone(known: Evidence) -> Finding | None:
    """Realignment against full relearning on each of several backbones."""
    found = compare(known, "faa", "amr", "fr").at(lambda where: bool(where.backbone))
    names = dict.fromkeys(where.backbone for where in found.values)
    if len(names) < 2:
        return _idle(known, found)
    means = {name: found.only(backbone=name).interval.mean for name in names}
    each = ", ".join(f"{name} {mean:+.2f}" for name, mean in means.items())
    verdict = found.interval.at_least(-MARGIN)
    if verdict == HOLDS and min(means.values()) < -MARGIN:
        verdict = UNDECIDED
    text = f"amr - fr: {each}; all: {_points(found)}{_source(known, found)}"
    more = _to_decide(known, [found], -MARGIN) if verdict == UNDECIDED else ""
    return Finding(text + more, verdict)


def is_natural(done: Done) -> bool:
    """Whether a run had natural drift alone, and one of the claim's detectors."""
    events = done.run.events
    natural = bool(events) and all(event.transform == "natural" for event in events)
    return natural and done.run.detector in ("ks", "mmd") and done.varies_only("detector")


def natural_drifts(known: Evidence) -> Finding | None:
    """Fractions of the naturally drifted classes that two detectors found at once, by benchmark.

    Methods and adaptations see the same images, so one of them counts; of a class that drifts
    several times, its first drift.
    """
    by_benchmark = grouped(known.done, lambda done: done.where.benchmark)
    found = [each for runs in by_benchmark.values() if (each := _found_by_both(runs))]
    if not found:
        return None
    text = "; ".join(each.text for each in found)
    return Finding(
        f"each class once a seed, at its first drift: {text}; {known.plain_origin}",
        all_of(*(each.verdict for each in found)),
    )


def _found_by_both(done: list[Done]) -> Finding | None:
    """On one benchmark; None as long as no seed has both detectors."""
    runs: dict[tuple[str, Where], dict[str, dict[int, Run]]] = {}
    for each in done:
        by_detector = runs.setdefault((each.adaptation, each.where), {"ks": {}, "mmd": {}})
        by_detector[each.run.detector][each.seed] = each.run
    seeds = {place: sorted(r["ks"].keys() & r["mmd"].keys()) for place, r in runs.items()}
    place = min(seeds, key=lambda p: (-len(seeds[p]), p[0] != "vanilla", p[1].method != "er", p))
    if not seeds[place]:
        return None
    words, intervals = [], []
    for name, by_seed in runs[place].items():
        counts = [_first_drifts(by_seed[seed]) for seed in seeds[place]]
        found, of = (sum(column) for column in zip(*counts, strict=True))
        low, high = share_interval(found, of)
        intervals.append(Interval(found / of, low, high))
        words.append(f"{name} {found} of {of} ({found / of:.0%}; {low:.0%} to {high:.0%})")
    adaptation, where = place
    text = (
        f"{', '.join(words)} on {where.benchmark}, {where.method} with {adaptation}; "
        f"{plural(len(seeds[place]), 'seed')}"
    )
    verdict = all_of(intervals[0].below(HALF), intervals[1].at_least(NEARLY_ALL))
    if verdict == UNDECIDED:
        sides = zip(intervals, (HALF, NEARLY_ALL), strict=True)
        needed = [_seeds_for(share.mean, of / len(seeds[place]), limit) for share, limit in sides]
        text += _in_seeds(max(needed) if all(needed) else 0)
    return Finding(text, verdict)


def _seeds_for(share: float, per_seed: float, threshold: float) -> int:
    """With how many seeds a fraction that stays would lie beside a threshold; 0: with no number."""
    for seeds in range(1, MOST_SEEDS + 1):
        low, high = share_interval(share * per_seed * seeds, per_seed * seeds)
        if low >= threshold or high < threshold:
            return seeds
    return 0


def _first_drifts(run: Run) -> tuple[int, int]:
    """How many of how many drifted classes raised an alarm at the task of their first drift."""
    first: dict[int, int] = {}
    for event in sorted(run.events, key=lambda event: event.task):
        for label in event.classes:
            first.setdefault(label, event.task)
    alarms = {(verdict.label, verdict.task) for verdict in run.verdicts if verdict.drifted}
    return len(alarms & first.items()), len(first)


def is_of_transforms(done: Done) -> bool:
    """Whether a run shows what a transform, or none, does to a learner without adaptation."""
    has_drift = "transform" in done.place or not done.where.num_drifts
    return done.adaptation == "vanilla" and has_drift and done.varies_only("transform", "severity")


def transforms(known: Evidence) -> Finding | None:
    """What vanilla loses to each transform at the highest severity, against no drift at all."""
    losses = _losses(known)
    lost = {name: Differences(values=losses[name]) for name in (*HARMLESS, *HARMFUL)}
    missing = [name for name, found in lost.items() if not found]
    if len(missing) == len(lost):
        return None
    if missing:
        text = f"not measured: no runs of {', '.join(missing)} at severity {HIGHEST}"
        return Finding(f"{text}; {known.plain_origin}", NOT_MEASURED)
    verdicts = [
        found.interval.at_least(MARGIN) if name in HARMFUL else found.interval.below(MARGIN)
        for name, found in lost.items()
    ]
    each = "; ".join(f"{name} {_points(found)}" for name, found in lost.items())
    counts = {count for found in lost.values() for count in found.num_seeds}
    text = f"lost by vanilla at severity {HIGHEST}: {each}; {_seed_count(counts)}; {known.plain_origin}"
    verdict = all_of(*verdicts)
    if verdict == UNDECIDED:
        pairs = zip(lost.values(), verdicts, strict=True)
        text += _to_decide(known, [found for found, each in pairs if each == UNDECIDED], MARGIN)
    return Finding(text, verdict)


def _losses(known: Evidence) -> Mapping[str, SeedValues]:
    """By transform: accuracy without drift minus that at the highest severity."""
    undrifted: dict[tuple[Where, int], float] = {}
    drifted: list[tuple[str, Where, int, float]] = []
    for done in known.done:
        faa, transform = done.run.faa, done.place.get("transform")
        if faa is None:
            continue
        if not done.where.num_drifts or transform == "identity":
            undrifted[done.where, done.seed] = faa
        elif done.setting("severity") == HIGHEST:
            drifted.append((str(transform), done.where, done.seed, faa))
    losses: defaultdict[str, SeedValues] = defaultdict(dict)
    for name, where, seed, faa in drifted:
        # The identity at the same events if it has run, else a stream without events.
        level = undrifted.get((where._replace(num_drifts=0), seed))
        level = undrifted.get((where, seed), level)
        if level is not None:
            losses[name].setdefault(where, {})[seed] = level - faa
    return losses


def is_of_own_concepts(done: Done) -> bool:
    """Whether a run is part of the control in which every class drifts by its own concept."""
    return "concept_per_class" in done.place and done.varies_only("concept_per_class")


def own_concepts(known: Evidence) -> Finding | None:
    """Realignment against relearning where classes share no concept, beside where they do."""
    shared, own = (
        compare(
            evidence_of([d for d in known.done if bool(d.place["concept_per_class"]) == is_own]),
            *("faa", "amr", "fr"),
        )
        for is_own in (False, True)
    )
    values = {
        where: {seed: gap - other[seed] for seed, gap in sorted(gaps.items()) if seed in other}
        for where, gaps in own.values.items()
        if (other := shared.values.get(where))
    }
    found = Differences(values=values, idle=own.idle + shared.idle)
    if not found:
        return _idle(known, found)
    text = (
        f"amr - fr with concepts of their own: {_points(own)}; with a shared one: "
        f"{_points(shared)}; own - shared: {_points(found)}"
    )
    return _decided(text, known, found, -MARGIN)


def is_of_detector_errors(done: Done) -> bool:
    """Whether a run realigned after a detector whose errors were injected."""
    return done.adaptation == "amr" and {*RATES} <= {*done.place} and done.varies_only(*RATES)


def detector_errors(known: Evidence) -> Finding | None:
    """What realignment loses to misses and to false alarms: a plane through each seed's runs."""
    runs = [done for done in known.done if done.run.faa is not None]
    missed: SeedValues = {}
    mistaken: SeedValues = {}
    labels: SeedValues = {}
    for (where, seed), members in grouped(runs, lambda done: (done.where, done.seed)).items():
        if slopes := _slopes(members):
            for values, slope in zip((missed, mistaken, labels), slopes, strict=True):
                values.setdefault(where, {})[seed] = slope
    misses, alarms, requests = (Differences(values=v) for v in (missed, mistaken, labels))
    if not misses:
        return None
    text = (
        f"amr's accuracy per lost TPR (from all drifts found to none): {_points(misses)}; per FPR "
        f"(from no false alarm to all): {_points(alarms)}, and {requests.interval.mean:+.0f} labels"
    )
    sides = (misses.interval.below(-MARGIN), misses), (alarms.interval.at_least(-MARGIN), alarms)
    verdict = all_of(*(each for each, _ in sides))
    open_ones = [found for each, found in sides if each == UNDECIDED]
    more = _to_decide(known, open_ones, -MARGIN) if verdict == UNDECIDED else ""
    return Finding(text + _source(known, misses) + more, verdict)


def _slopes(runs: list[Done]) -> tuple[float, float, float] | None:
    """Points per lost true-positive rate, points and labels per false-positive rate.

    By least squares; None as long as no run has one of the ends, 0 or 1, of both rates.
    """
    if any({0, 1} - {done.place[name] for done in runs} for name in RATES):
        return None
    rates = np.array([[_rate(done, name) for name in RATES] for done in runs])
    design = np.column_stack([np.ones(len(runs)), 1 - rates[:, 0], rates[:, 1]])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    ends = [[done.run.faa, done.run.labels.get("adaptation") or 0.0] for done in runs]
    plane = np.linalg.lstsq(design, np.array(ends, dtype=float), rcond=None)[0]
    return float(plane[1, 0]), float(plane[2, 0]), float(plane[2, 1])


def _rate(done: Done, name: str) -> float:
    """The rate that was reached, or that was planned where no class could show it."""
    reached = done.run.detection.get(name)
    return float(done.place[name] or 0) if reached is None else reached


def _decided(text: str, known: Evidence, found: Differences, threshold: float) -> Finding:
    """The finding that differences are at least a threshold, or what it takes to know."""
    verdict = found.interval.at_least(threshold)
    more = _to_decide(known, [found], threshold) if verdict == UNDECIDED else ""
    return Finding(text + _source(known, found) + more, verdict)


def _to_decide(known: Evidence, undecided: Sequence[Differences], threshold: float) -> str:
    """How many seeds would decide all of them; nothing of published means."""
    if not known.origin:
        return ""
    needed = [found.seeds_to_decide(threshold) for found in undecided]
    counts = [count for count in needed if count is not None]
    if len(counts) < len(needed):
        return "; a second seed would show how many are needed"
    return _in_seeds(max(counts) if all(counts) else 0)


def _in_seeds(count: int) -> str:
    if not count:
        return "; more seeds alone would not decide it"
    return f"; about {count} seeds would decide it"


def _idle(known: Evidence, found: Differences) -> Finding | None:
    """The finding where no pair is left; None if there never was one."""
    if not found.idle:
        return None
    text = f"{plural(len(found.idle), 'pair')} of runs, in each of which a side never adapted"
    return Finding(f"not measured: {text} ({found.obstacle}); {known.origin}", NOT_MEASURED)


def _points(found: Differences) -> str:
    """Mean, interval and extremes of differences in accuracy."""
    interval, means = found.interval, found.means
    text = f"mean {interval.mean:+.2f} points"
    if interval.low is not None:
        text += f" (95 % interval {interval.low:+.2f} to {interval.high:+.2f})"
    return text if len(means) == 1 else f"{text}, cells {min(means):+.2f} to {max(means):+.2f}"


def _times(found: Differences) -> str:
    interval, means = found.interval, found.means
    text = f"{10**interval.mean:.3g} times"
    if interval.low is not None and interval.high is not None:
        text += f" (95 % interval {10**interval.low:.3g} to {10**interval.high:.3g})"
    ends = f", cells {10 ** min(means):.3g} to {10 ** max(means):.3g}"
    return text + (ends if len(means) > 1 else "")


def _in_points(sd: float) -> str:
    return f"{sd:.2f} points"


def _seed_count(counts: set[int] | tuple[int, int]) -> str:
    low, high = min(counts), max(counts)
    return plural(high, "seed") if low == high else f"{low} to {high} seeds"


def _seeds(found: Differences, spread: Callable[[float], str] = _in_points) -> str:
    """How many seeds, and how far they lie apart."""
    sd = found.seed_sd
    deviation = "" if sd is None else f", deviation over seeds {spread(sd)}"
    return f"; {_seed_count(found.num_seeds)}{deviation}"


def _source(
    known: Evidence, found: Differences, spread: Callable[[float], str] = _in_points
) -> str:
    """Seeds, what was left out, scale and benchmarks; nothing of published means."""
    if not known.origin:
        return ""
    return f"{_seeds(found, spread)}{found.left_out}; {known.origin}, {found.benchmarks}"
