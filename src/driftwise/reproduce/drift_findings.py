"""What sweeps say about natural drift, and about transforms that may do nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driftwise.report.run import Run
from driftwise.report.words import plural, share_interval
from driftwise.reproduce.claim_evidence import Compared
from driftwise.reproduce.claim_pools import Done, Pool, Where
from driftwise.reproduce.findings import MARGIN, Finding, points
from driftwise.reproduce.intervals import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, both

HALF, NEARLY_ALL = 0.75, 0.9
""" "About half" is less than this share, "nearly all" at least this one."""

HIGHEST = 5
"""The strongest drift that a transform has."""

HARMLESS = ("defocus-blur", "shot-noise")
HARMFUL = ("gaussian-noise", "rotation", "permutation")


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of how many."""

    found: int
    of: int

    def at_least(self, threshold: float) -> str:
        """Whether Wilson's 95 % interval is at or above a share, or below it."""
        low, high = share_interval(self.found, self.of)
        return HOLDS if low >= threshold else FAILS if high < threshold else UNDECIDED

    def below(self, threshold: float) -> str:
        """The opposite claim."""
        return {HOLDS: FAILS, FAILS: HOLDS}.get(told := self.at_least(threshold), told)

    def __add__(self, other: Share) -> Share:
        return Share(found=self.found + other.found, of=self.of + other.of)

    def __str__(self) -> str:
        low, high = share_interval(self.found, self.of)
        return f"{self.found} of {self.of} ({self.found / self.of:.0%}; {low:.0%} to {high:.0%})"


NONE = Share(found=0, of=0)


def is_natural(done: Done) -> bool:
    """Whether a run saw natural drift alone, and was looked at by one of the claim's detectors."""
    events = done.run.events
    natural = bool(events) and all(event.transform == "natural" for event in events)
    return natural and done.run.detector in ("ks", "mmd") and done.varies_only("detector")


def natural_drifts(pool: Pool) -> Finding | None:
    """Shares of the naturally drifted classes that two detectors found at once.

    Methods and adaptations see the same images, so one of them counts; of a class that drifts
    several times, its first drift.
    """
    by_place: defaultdict[tuple[str, Where], defaultdict[str, dict[int, Run]]]
    by_place = defaultdict(lambda: defaultdict(dict))
    for done in pool.done:
        by_place[done.adaptation, done.where][done.run.detector][done.seed] = done.run
    seeds = {place: sorted(r["ks"].keys() & r["mmd"].keys()) for place, r in by_place.items()}
    place = min(seeds, key=lambda p: (-len(seeds[p]), p[0] != "vanilla", p[1].method != "er", p))
    if not seeds[place]:
        return None
    ks, mmd = (
        sum((first_drifts(by_place[place][name][seed]) for seed in seeds[place]), NONE)
        for name in ("ks", "mmd")
    )
    adaptation, where = place
    text = (
        f"each class once a seed, at its first drift: ks {ks}, mmd {mmd}; {where.benchmark}, "
        f"{where.method} with {adaptation}; {plural(len(seeds[place]), 'seed')}; {pool.origin}"
    )
    return Finding(text=text, verdict=both(ks.below(HALF), mmd.at_least(NEARLY_ALL)))


def first_drifts(run: Run) -> Share:
    """How many of the classes that drifted raised an alarm at the task of their first drift."""
    first: dict[int, int] = {}
    for event in sorted(run.events, key=lambda event: event.task):
        for label in event.classes:
            first.setdefault(label, event.task)
    alarms = {(verdict.label, verdict.task) for verdict in run.verdicts if verdict.drifted}
    return Share(found=len(alarms & first.items()), of=len(first))


def is_of_transforms(done: Done) -> bool:
    """Whether a run says what a transform, or none, does to a learner that does nothing."""
    moved = "transform" in done.place or not done.where.num_drifts
    return done.adaptation == "vanilla" and moved and done.varies_only("transform", "severity")


def transforms(pool: Pool) -> Finding | None:
    """What vanilla loses to each transform at the highest severity, against no drift at all."""
    lost = _lost(pool.done)
    measured = {name: Compared(values=lost[name]).pairs for name in (*HARMLESS, *HARMFUL)}
    missing = [name for name, pairs in measured.items() if pairs is None]
    if len(missing) == len(measured):
        return None
    if missing:
        text = f"not measured: no runs of {', '.join(missing)} at severity {HIGHEST}"
        return Finding(text=f"{text}; {pool.origin}", verdict=NOT_MEASURED)
    said, verdicts, counts = [], [], set()
    for name, pairs in measured.items():
        assert pairs is not None
        interval = pairs.interval
        harmful = name in HARMFUL
        verdicts.append(interval.at_least(MARGIN) if harmful else interval.below(MARGIN))
        said.append(f"{name} {points(pairs)}")
        counts |= {*pairs.num_seeds}
    seeds = plural(min(counts), "seed")
    if len(counts) > 1:
        seeds = f"{min(counts)} to {plural(max(counts), 'seed')}"
    text = f"lost by vanilla at severity {HIGHEST}: {'; '.join(said)}; {seeds}; {pool.origin}"
    return Finding(text=text, verdict=both(*verdicts))


def _lost(runs: Sequence[Done]) -> Mapping[str, Mapping[Where, Mapping[int, float]]]:
    """By transform: accuracy without drift minus that under its strongest form."""
    still: dict[tuple[Where, int], float] = {}
    moved: defaultdict[str, dict[tuple[Where, int], float]] = defaultdict(dict)
    for done in runs:
        faa, transform = done.run.faa, done.place.get("transform")
        if faa is None:
            continue
        if not done.where.num_drifts or transform == "identity":
            still[done.where, done.seed] = faa
        elif done.setting("severity") == HIGHEST:
            moved[str(transform)][done.where, done.seed] = faa
    lost: defaultdict[str, defaultdict[Where, dict[int, float]]]
    lost = defaultdict(lambda: defaultdict(dict))
    for name, ends in moved.items():
        for (where, seed), faa in ends.items():
            # The identity at the same events if it has run, else a stream without events.
            calm = still.get((where, seed), still.get((where._replace(num_drifts=0), seed)))
            if calm is not None:
                lost[name][where][seed] = calm - faa
    return lost
