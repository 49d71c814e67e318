"""Numbers by place and adaptation, seed by seed: published ones and those of sweeps alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from driftwise.adaptation_counts import Adapted
from driftwise.report.run import Run
from driftwise.report.words import plural
from driftwise.reproduce import published
from driftwise.reproduce.claim_pools import Done, Pool, Where
from driftwise.reproduce.intervals import Paired, paired
from driftwise.reproduce.paper_table import span

Values = Mapping[Where, Mapping[int, float]]
"""by place and seed"""

MEASURES: Mapping[str, Callable[[Run], float | None]] = {
    "faa": lambda run: run.faa,
    "faa_stable": lambda run: run.faa_stable,
    "labels": lambda run: run.labels.get("adaptation"),
    "flops": lambda run: run.cost(run.flops) or None,  # none at all: nobody counted
}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known, from one source at one scale."""

    origin: str
    """for a sentence: "scale smoke", or empty for the published numbers"""
    measures: Mapping[tuple[str, str], Values]
    """(measure, adaptation) -> values"""
    idle: Mapping[tuple[str, Where, int], Adapted] = field(default_factory=dict)
    """(adaptation, place, seed) of runs that had nothing to adapt to -> what their checks found"""

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
    return Evidence(origin="", measures=measures)


def evidence_of(pool: Pool, keep: Callable[[Done], bool] | None = None) -> Evidence:
    """What the runs of a pool say, or those of them that are to be kept."""
    measures: defaultdict[tuple[str, str], defaultdict[Where, dict[int, float]]]
    measures = defaultdict(lambda: defaultdict(dict))
    sizes: defaultdict[int, set[int]] = defaultdict(set)
    idle = {}
    for done in filter(keep, pool.done):
        where, run = done.where, done.run
        if run.buffer_size is not None:
            sizes[where.buffer_size].add(run.buffer_size)
        if run.not_adapted:
            idle[done.adaptation, where, done.seed] = run.adapted
        for measure, read in MEASURES.items():
            value = read(run)
            if value is not None:
                measures[measure, done.adaptation][where][done.seed] = value
    return Evidence(origin=pool.origin + _real_buffers(sizes), measures=measures, idle=idle)


def _real_buffers(sizes: Mapping[int, Collection[int]]) -> str:
    """How many rows the buffers really hold, where it is not what they are called."""
    told = [
        f"{nominal} stands for {span(sorted(map(float, real)))} rows"
        for nominal, real in sorted(sizes.items())
        if real != {nominal}
    ]
    return f" (buffer {', '.join(told)})" if told else ""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What pairs of runs with the same place and seed differ by."""

    values: Values
    idle: tuple[tuple[Where, Adapted], ...] = ()
    """of each pair left out because one of the two, though it should have, never adapted"""

    def at(self, keep: Callable[[Where], bool]) -> Compared:
        """At some places only."""
        values = {where: by_seed for where, by_seed in self.values.items() if keep(where)}
        return Compared(values=values, idle=tuple(each for each in self.idle if keep(each[0])))

    def only(self, **wanted: str | int) -> Compared:
        """At the places with these coordinates."""
        return self.at(lambda where: wanted.items() <= where._asdict().items())

    @property
    def pairs(self) -> Paired | None:
        """Cell by cell; None if there are none."""
        return paired([*by_seed.values()] for by_seed in self.values.values())

    @property
    def left_out(self) -> str:
        """For the end of a sentence."""
        if not self.idle:
            return ""
        pairs = plural(len(self.idle), "pair")
        return f"; {pairs} left out in which a side never adapted ({self.obstacle})"

    @property
    def obstacle(self) -> str:
        """Why sides never adapted."""
        return sum((found for _, found in self.idle), Adapted()).obstacle

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
) -> Compared:
    """One adaptation against another, where there was drift and both did what they are for."""
    idle: list[tuple[Where, Adapted]] = []
    values: defaultdict[Where, dict[int, float]] = defaultdict(dict)
    other = evidence.get(measure, theirs)
    for where, by_seed in evidence.get(measure, ours).items():
        for seed in sorted(by_seed.keys() & other.get(where, {}).keys()):
            if not where.num_drifts:
                continue
            sides = [evidence.idle.get((name, where, seed)) for name in (ours, theirs)]
            if found := [side for side in sides if side is not None]:
                idle.append((where, found[0]))
                continue
            values[where][seed] = by(by_seed[seed], other[where][seed])
    return Compared(values=values, idle=tuple(idle))
