"""Which finished runs a claim may compare, and what paired runs differ by.

Only runs of one scale and equal settings are compared, paired by place and seed.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from driftwise.adaptation_counts import Adapted
from driftwise.report.saved_run import Run
from driftwise.report.sweeps import Place, Sweep
from driftwise.report.words import plural
from driftwise.reproduce import published
from driftwise.reproduce.paper_table import STANDARD, span
from driftwise.reproduce.places import grouped

SCALES = ("paper", "small", "tables", "smoke")
"""The larger comes first; others follow."""

OF_A_PLACE = (*STANDARD, "seed")
"""Config keys, with all below them, in which the runs of a pool may differ."""

OF_A_MACHINE = ("data", "device", "threads", "keep_features")
"""Config keys that do not change what is measured."""

TUNED = (
    *("preset", "frozen_encoder", "scaling", "precision", "memory_format"),
    *("data_identity", "max_per_class", "num_tasks", "class_order", "tasks", "domains"),
    *("first_domain", "scope", "recurring_in_training"),
    *("permutation_unit", "channels", "epochs", "batch_size", "minibatch_size", "lr"),
    *("scheduler", "lr_milestones", "options.benchmark", "options.method", "options.backbone"),
    *("encoder", "reference"),
)
"""Config keys that presets and scales choose by benchmark, network, method and buffer: runs that
share these four must agree in them, others need not."""

PAPER_BENCHMARKS = frozenset(c.benchmark for name in published.NAMES for c in published.table(name))

CONFIDENCE = 0.95
MOST_SEEDS = 200
"""that anybody would run"""
NO_WIDTH = 1e-9
"""An interval narrower than this differs from a point by rounding alone."""

HOLDS, FAILS, UNDECIDED, NOT_MEASURED = "holds", "does not hold", "undecided", "not measured"

Settings = dict[str, str]
"""Config keys joined by dots, values as JSON."""


class Where(NamedTuple):
    """All that two runs must share for their difference to mean something."""

    benchmark: str
    backbone: str
    """empty where the grid does not vary it, as in the paper's main tables"""
    buffer_size: int
    """nominal"""
    method: str
    num_drifts: int


Values = Mapping[Where, Mapping[int, float]]
"""by place and seed"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Done:
    """A finished run at its place in a sweep's grid."""

    place: Place
    seed: int
    run: Run

    @property
    def adaptation(self) -> str:
        """The name of its adaptation."""
        return str(self.setting("adaptation"))

    @property
    def where(self) -> Where:
        """The place without the adaptation."""
        return Where(
            benchmark=str(self.setting("benchmark")),
            backbone=str(self.place.get("backbone", "")),
            buffer_size=int(self.setting("buffer_size") or 0),
            method=str(self.setting("method")),
            num_drifts=int(self.setting("num_drifts") or 0),
        )

    @property
    def tuning(self) -> tuple[str, str, int, str]:
        """Benchmark, network, nominal buffer and method: they decide how it trains."""
        where = self.where
        return where.benchmark, str(self.setting("backbone")), where.buffer_size, where.method

    @property
    def on_paper_data(self) -> bool:
        """Whether the paper has numbers on this benchmark."""
        return self.where.benchmark in PAPER_BENCHMARKS

    def setting(self, key: str) -> Any:
        """The value in the grid, or in the config where the grid does not name it."""
        return self.place[key] if key in self.place else self.run.config.get(key)

    def varies_only(self, *keys: str) -> bool:
        """Whether the grid names nothing but what the paper's tables vary, and these."""
        return {*self.place} <= {*STANDARD, *keys}


@dataclass(kw_only=True, eq=False)
class Pool:
    """Runs that may be compared, from one sweep or from several that agree."""

    scale: str
    on_paper_data: bool
    settings: Settings
    """in which it differs from other pools"""
    tuned: dict[tuple[str, str, int, str], Settings]
    done: list[Done]
    sweeps: list[str]
    is_plain: bool
    """one of the sweeps has its target's default name, which implies default settings"""

    @property
    def origin(self) -> str:
        """For a sentence."""
        return f"scale {self.scale}" + ("" if self.on_paper_data else ", not on the paper's data")

    @property
    def rank(self) -> tuple[object, ...]:
        """Sorts pools: other data never come before the paper's, however many they are."""
        scale = SCALES.index(self.scale) if self.scale in SCALES else len(SCALES)
        return not self.on_paper_data, scale, not self.is_plain, -len(self.done), self.sweeps

    def is_beside(self, other: Pool) -> bool:
        """Whether nothing but settings separates the two."""
        return (self.on_paper_data, self.scale) == (other.on_paper_data, other.scale)

    def differs_in(self, other: Pool) -> list[str]:
        """The settings that separate the two."""
        pairs = [(self.settings, other.settings)]
        pairs += [(self.tuned[key], other.tuned[key]) for key in self.tuned if key in other.tuned]
        keys = [key for ours, theirs in pairs for key in ours if ours[key] != theirs[key]]
        return [key.removeprefix("options.") for key in dict.fromkeys(keys)]

    def add(self, other: Pool) -> None:
        """Take the runs of a pool with equal settings."""
        self.done += other.done
        self.tuned |= other.tuned
        self.sweeps += other.sweeps
        self.is_plain |= other.is_plain


def pools(
    sweeps: Sequence[Sweep], wanted: Callable[[Done], bool], varied: Sequence[str] = ()
) -> list[Pool]:
    """The finished runs that are wanted, in pools, the most informative first.

    `varied` names config keys, with all below them, that the question itself is about.
    """
    batches = [
        (sweep, [done for done in _done(sweep) if wanted(done)])
        for sweep in sorted(sweeps, key=lambda sweep: sweep.name)
    ]
    configs = {done: _flat(done.run.config) for _, batch in batches for done in batch}
    values: defaultdict[str, set[str]] = defaultdict(set)
    for config in configs.values():
        for key, value in config.items():
            values[key].add(value)
    # A key that an older version did not know may be missing: that alone makes no difference.
    free = (*OF_A_PLACE, *OF_A_MACHINE, *varied)
    differing = [key for key, found in values.items() if len(found) > 1 and not _is_in(key, free)]

    def settings(done: Done, *, tuned: bool) -> Settings:
        config = configs[done]
        return {key: config.get(key, "") for key in differing if _is_in(key, TUNED) == tuned}

    found: list[Pool] = []
    for sweep, batch in batches:
        default = f"{sweep.reproduces}-{sweep.scale}"
        parts = grouped(batch, lambda d: (d.on_paper_data, *settings(d, tuned=False).values()))
        for members in parts.values():
            first = members[0]
            pool = Pool(
                scale=sweep.scale,
                on_paper_data=first.on_paper_data,
                settings=settings(first, tuned=False),
                tuned={done.tuning: settings(done, tuned=True) for done in members},
                done=members,
                sweeps=[sweep.name],
                is_plain=sweep.name.removesuffix("-fast")
                in (default, f"{default}-{first.where.benchmark}"),
            )
            agreeing = (p for p in found if p.is_beside(pool) and not p.differs_in(pool))
            if same := next(agreeing, None):
                same.add(pool)
            else:
                found.append(pool)
    return sorted(found, key=lambda pool: pool.rank)


def _done(sweep: Sweep) -> list[Done]:
    return [
        Done(place=entry.place, seed=entry.seed, run=entry.run)
        for entry in sweep.entries
        if entry.run is not None
    ]


def _flat(config: Mapping[str, Any], prefix: str = "") -> Settings:
    flat: Settings = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, sort_keys=True)
    return flat


def _is_in(key: str, branches: Sequence[str]) -> bool:
    return any(key == branch or key.startswith(f"{branch}.") for branch in branches)


MEASURES: Mapping[str, Callable[[Run], float | None]] = {
    "faa": lambda run: run.faa,
    "faa_stable": lambda run: run.faa_stable,
    "labels": lambda run: run.labels.get("adaptation"),
    "flops": lambda run: run.cost(run.flops) or None,  # zero: nobody counted
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Numbers by place and adaptation, seed by seed, from one source at one scale."""

    plain_origin: str = ""
    """for a sentence: "scale smoke"; empty for the published numbers"""
    origin: str = ""
    """the same, with the real sizes of the buffers"""
    measures: Mapping[tuple[str, str], Values]
    """(measure, adaptation) -> values"""
    idle: Mapping[tuple[str, Where, int], Adapted] = field(default_factory=dict)
    """(adaptation, place, seed) of runs that had nothing to adapt to -> what their checks found"""
    done: Sequence[Done] = ()
    """the runs; empty for the published numbers"""

    def get(self, measure: str, adaptation: str) -> Values:
        """Empty where nothing is known."""
        return self.measures.get((measure, adaptation), {})


def published_evidence(*tables: str) -> Evidence:
    """The published accuracies of some tables; they stand for one seed."""
    measures: defaultdict[tuple[str, str], dict[Where, dict[int, float]]] = defaultdict(dict)
    for name in tables:
        for cell in published.table(name):
            backbone = cell.backbone if name == "backbones" else ""
            where = Where(cell.benchmark, backbone, cell.buffer_size, cell.method, cell.num_drifts)
            measures["faa", cell.adaptation][where] = {0: cell.faa}
    return Evidence(measures=measures)


def evidence_of(runs: Sequence[Done], origin: str = "") -> Evidence:
    """The measures of finished runs."""
    measures: defaultdict[tuple[str, str], defaultdict[Where, dict[int, float]]]
    measures = defaultdict(lambda: defaultdict(dict))
    sizes: defaultdict[int, set[int]] = defaultdict(set)
    idle = {}
    for done in runs:
        where, run = done.where, done.run
        if run.buffer_size is not None:
            sizes[where.buffer_size].add(run.buffer_size)
        if run.not_adapted:
            idle[done.adaptation, where, done.seed] = run.adapted
        for measure, read in MEASURES.items():
            value = read(run)
            if value is not None:
                measures[measure, done.adaptation][where][done.seed] = value
    return Evidence(
        plain_origin=origin,
        origin=origin + _real_buffers(sizes),
        measures=measures,
        idle=idle,
        done=runs,
    )


def _real_buffers(sizes: Mapping[int, Collection[int]]) -> str:
    """How many samples the buffers really hold, where that differs from the nominal size."""
    words = [
        f"{nominal} stands for {span(real)} samples"
        for nominal, real in sorted(sizes.items())
        if real != {nominal}
    ]
    return f" (buffer {', '.join(words)})" if words else ""


class Interval(NamedTuple):
    """A mean and where it may lie; without ends if there is one value alone."""

    mean: float
    low: float | None
    high: float | None

    def at_least(self, threshold: float, *, fixed: bool = False) -> str:
        """Holds if the whole interval is at or above the threshold, fails if it is below.

        Accuracies that do not vary at all decide nothing: something did not happen. Counts that the
        protocol may fix (`fixed`) do.
        """
        if self.low is None or self.high is None:
            return UNDECIDED
        if not fixed and self.high - self.low < NO_WIDTH:
            return UNDECIDED
        return HOLDS if self.low >= threshold else FAILS if self.high < threshold else UNDECIDED

    def below(self, threshold: float) -> str:
        """The opposite claim."""
        verdict = self.at_least(threshold)
        return {HOLDS: FAILS, FAILS: HOLDS}.get(verdict, verdict)


def interval_of(values: Sequence[float]) -> Interval:
    """Student's interval for the mean.

    >>> found = interval_of([1.0, 2.0, 3.0])
    >>> round(found.low, 2), found.mean, round(found.high, 2)
    (-0.48, 2.0, 4.48)
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    half = _quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


@functools.cache
def _quantile(degrees: int) -> float:
    """Student's, for both sides."""
    from scipy.special import stdtrit  # late: no other part of a report needs scipy

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def all_of(*verdicts: str) -> str:
    """The verdict on several claims together: the worst."""
    return next((each for each in (FAILS, NOT_MEASURED, UNDECIDED) if each in verdicts), HOLDS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Differences:
    """What pairs of runs with the same place and seed differ by; false if there are none."""

    values: Values
    idle: tuple[tuple[Where, Adapted], ...] = ()
    """of each pair left out because one of the two, though it should have, never adapted"""

    def __bool__(self) -> bool:
        return bool(self.cells)

    def at(self, keep: Callable[[Where], bool]) -> Differences:
        """At some places only."""
        values = {where: by_seed for where, by_seed in self.values.items() if keep(where)}
        return Differences(values=values, idle=tuple(each for each in self.idle if keep(each[0])))

    def only(self, **wanted: str | int) -> Differences:
        """At the places with these coordinates."""
        return self.at(lambda where: wanted.items() <= where._asdict().items())

    @property
    def cells(self) -> list[list[float]]:
        """One per place, the differences of its seeds."""
        return [[*by_seed.values()] for by_seed in self.values.values() if by_seed]

    @property
    def means(self) -> list[float]:
        """One per cell, over its seeds."""
        return [statistics.fmean(cell) for cell in self.cells]

    @property
    def num_seeds(self) -> tuple[int, int]:
        """Fewest and most seeds in a cell."""
        counts = [len(cell) for cell in self.cells]
        return min(counts), max(counts)

    @property
    def seed_sd(self) -> float | None:
        """Spread over seeds within a cell, pooled; None: no cell has two seeds."""
        spreads = [(len(cell) - 1, statistics.variance(cell)) for cell in self.cells if cell[1:]]
        weight = sum(degrees for degrees, _ in spreads)
        return math.sqrt(sum(d * v for d, v in spreads) / weight) if weight else None

    @property
    def interval(self) -> Interval:
        """Student's interval over cells, each with its mean over seeds; of one cell, over seeds."""
        return interval_of(self.means if len(self.cells) > 1 else self.cells[0])

    def seeds_to_decide(self, threshold: float) -> int | None:
        """About how many seeds a cell would need for the interval to end at the threshold.

        None: not known, for want of a second seed; 0: no number, as the cells themselves lie too far
        apart. The mean and both variances, over seeds and between cells, are taken to stay.
        """
        if (deviation := self.seed_sd) is None:
            return None
        count, gap = len(self.cells), abs(self.interval.mean - threshold)
        within = deviation**2
        between = 0.0
        if count > 1:
            mean_seeds = statistics.harmonic_mean([len(cell) for cell in self.cells])
            between = max(0.0, statistics.variance(self.means) - within / mean_seeds)
        for seeds in range(max(2, *self.num_seeds), MOST_SEEDS + 1):
            degrees = count - 1 if count > 1 else seeds - 1
            if _quantile(degrees) * math.sqrt((between + within / seeds) / count) <= gap:
                return seeds
        return 0

    @property
    def obstacle(self) -> str:
        """Why sides never adapted."""
        return sum((found for _, found in self.idle), Adapted()).obstacle

    @property
    def left_out(self) -> str:
        """For the end of a sentence."""
        if not self.idle:
            return ""
        pairs = plural(len(self.idle), "pair")
        return f"; {pairs} left out in which a side never adapted ({self.obstacle})"

    @property
    def benchmarks(self) -> str:
        """By name."""
        return ", ".join(dict.fromkeys(w.benchmark for w, known in self.values.items() if known))


def compare(
    evidence: Evidence,
    measure: str,
    ours: str,
    theirs: str,
    by: Callable[[float, float], float] = lambda a, b: a - b,
) -> Differences:
    """One adaptation against another, where there was drift and both adapted if they should."""
    idle: list[tuple[Where, Adapted]] = []
    values: defaultdict[Where, dict[int, float]] = defaultdict(dict)
    other = evidence.get(measure, theirs)
    for where, by_seed in evidence.get(measure, ours).items():
        for seed in sorted(
            by_seed.keys() & other.get(where, {}).keys() if where.num_drifts else ()
        ):
            sides = [evidence.idle.get((name, where, seed)) for name in (ours, theirs)]
            found = next((side for side in sides if side is not None), None)
            if found is None:
                values[where][seed] = by(by_seed[seed], other[where][seed])
            else:
                idle.append((where, found))
    return Differences(values=values, idle=tuple(idle))
