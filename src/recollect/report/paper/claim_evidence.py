"""Numbers by place and adaptation, seed by seed: published ones and those of sweeps alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recollect.report.paper import published
from recollect.report.paper.intervals import Paired, paired
from recollect.report.paper.table import STANDARD, span
from recollect.report.run import Run
from recollect.report.sweeps import Sweep
from recollect.report.words import share_interval

SCALES = ("paper", "small", "smoke")
"""From what says most to what says least; others follow."""


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

MEASURES: Mapping[str, Callable[[Run], float | None]] = {
    "faa": lambda run: run.faa,
    "faa_stable": lambda run: run.faa_stable,
    "labels": lambda run: run.labels.get("adaptation"),
    "flops": lambda run: run.cost(run.flops),
}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known, from one source at one scale."""

    origin: str
    """for a sentence: "scale smoke", or empty for the published numbers"""
    measures: Mapping[tuple[str, str], Values]
    """(measure, adaptation) -> values"""

    def get(self, measure: str, adaptation: str) -> Values:
        """Empty where nothing is known."""
        return self.measures.get((measure, adaptation), {})


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many of how many."""

    found: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, at 95 %."""
        return share_interval(self.found, self.of)

    def __add__(self, other: Share) -> Share:
        return Share(found=self.found + other.found, of=self.of + other.of)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.found} of {self.of} ({self.found / self.of:.0%}; {low:.0%} to {high:.0%})"


def published_evidence(*tables: str) -> Evidence:
    """The published accuracies of some tables; they stand for one seed."""
    measures: defaultdict[tuple[str, str], dict[Where, dict[int, float]]] = defaultdict(dict)
    for name in tables:
        for cell in published.table(name):
            backbone = cell.backbone if name == "backbones" else ""
            where = Where(cell.benchmark, backbone, cell.buffer_size, cell.method, cell.num_drifts)
            measures["faa", cell.adaptation][where] = {0: cell.faa}
    return Evidence(origin="", measures=measures)


def by_scale(sweeps: Sequence[Sweep]) -> Iterator[tuple[str, list[Sweep]]]:
    """The sweeps of each scale, the scale that says most first."""
    names = dict.fromkeys(sweep.scale for sweep in sweeps)
    for name in sorted(names, key=lambda name: SCALES.index(name) if name in SCALES else 9):
        yield name, [sweep for sweep in sweeps if sweep.scale == name]


def evidence_of(scale: str, sweeps: Sequence[Sweep]) -> Evidence:
    """What finished runs of one scale say.

    Grids that vary anything but what the paper's tables vary (a transform, a detector's errors) are
    left out: their runs answer other questions.
    """
    measures: defaultdict[tuple[str, str], defaultdict[Where, dict[int, float]]]
    measures = defaultdict(lambda: defaultdict(dict))
    sizes: defaultdict[int, set[int]] = defaultdict(set)
    for sweep in sweeps:
        for entry in sweep.entries:
            place, run = entry.place, entry.run
            if run is None or not {*STANDARD} - {"backbone"} <= {*place} <= {*STANDARD}:
                continue
            where = Where(
                benchmark=str(place["benchmark"]),
                backbone=str(place.get("backbone", "")),
                buffer_size=int(place["buffer_size"] or 0),
                method=str(place["method"]),
                num_drifts=int(place["num_drifts"] or 0),
            )
            if run.buffer_size is not None:
                sizes[where.buffer_size].add(run.buffer_size)
            for measure, read in MEASURES.items():
                value = read(run)
                if value is not None:
                    measures[measure, str(place["adaptation"])][where][entry.seed] = value
    return Evidence(origin=f"scale {scale}{_real_buffers(sizes)}", measures=measures)


def _real_buffers(sizes: Mapping[int, Collection[int]]) -> str:
    """How many rows the buffers really hold, where it is not what they are called."""
    told = [
        f"{nominal} stands for {span(sorted(map(float, real)))} rows"
        for nominal, real in sorted(sizes.items())
        if real != {nominal}
    ]
    return f" (buffer {', '.join(told)})" if told else ""


def differences(
    ours: Values, theirs: Values, by: Callable[[float, float], float] = lambda a, b: a - b
) -> dict[Where, list[float]]:
    """What pairs of runs with the same place and seed differ by."""
    return {
        where: [
            by(value, theirs[where][seed])
            for seed, value in sorted(values.items())
            if seed in theirs[where]
        ]
        for where, values in ours.items()
        if where in theirs
    }


def gains(evidence: Evidence, over: str, measure: str = "faa") -> dict[Where, list[float]]:
    """AMR minus another adaptation, for each place and seed."""
    return differences(evidence.get(measure, "amr"), evidence.get(measure, over))


def only(found: Mapping[Where, Sequence[float]], **wanted: str | int) -> Paired | None:
    """The differences at the places with these coordinates; None if there are none."""
    return paired(
        values
        for where, values in found.items()
        if all(getattr(where, key) == value for key, value in wanted.items())
    )
