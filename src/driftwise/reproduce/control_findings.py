"""What controls say: every class with a concept of its own, and detectors that err on purpose."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from driftwise.reproduce.claim_evidence import Compared, compare, evidence_of
from driftwise.reproduce.claim_pools import Done, Pool, Where
from driftwise.reproduce.findings import MARGIN, Finding, idle, points, told
from driftwise.reproduce.intervals import both

RATES = ("tpr", "fpr")

Slopes = tuple[float, float, float]
"""Points per lost true-positive rate, points and labels per false-positive rate."""


def is_of_own_concepts(done: Done) -> bool:
    """Whether a run is part of the control in which every class drifts by its own concept."""
    return "concept_per_class" in done.place and done.varies_only("concept_per_class")


def own_concepts(pool: Pool) -> Finding | None:
    """Realignment against relearning where classes share no concept, beside where they do."""
    known = evidence_of(pool)
    own, shared = _gaps(pool, own=True), _gaps(pool, own=False)
    values: defaultdict[Where, dict[int, float]] = defaultdict(dict)
    for where, gaps in own.values.items():
        others = shared.values.get(where, {})
        for seed in sorted(gaps.keys() & others.keys()):
            values[where][seed] = gaps[seed] - others[seed]
    found = Compared(values=values, idle=own.idle + shared.idle)
    pairs = found.pairs
    if pairs is None or own.pairs is None or shared.pairs is None:
        return idle(known, found)
    text = (
        f"amr - fr with concepts of their own: {points(own.pairs)}; with a shared one: "
        f"{points(shared.pairs)}; own - shared: {points(pairs)}"
    )
    return Finding(text=told(text, known, pairs, found), verdict=pairs.interval.at_least(-MARGIN))


def _gaps(pool: Pool, *, own: bool) -> Compared:
    known = evidence_of(pool, lambda done: bool(done.place["concept_per_class"]) == own)
    return compare(known, "faa", "amr", "fr")


def is_of_detector_errors(done: Done) -> bool:
    """Whether a run realigned after a detector whose errors were injected."""
    return done.adaptation == "amr" and {*RATES} <= {*done.place} and done.varies_only(*RATES)


def detector_errors(pool: Pool) -> Finding | None:
    """What realignment loses to misses and to false alarms: a plane through each seed's runs."""
    runs: defaultdict[Where, defaultdict[int, list[Done]]]
    runs = defaultdict(lambda: defaultdict(list))
    for done in pool.done:
        if done.run.faa is not None:
            runs[done.where][done.seed].append(done)
    slopes: dict[Where, dict[int, Slopes]] = {}
    for where, by_seed in runs.items():
        fitted = {seed: _slopes(members) for seed, members in by_seed.items()}
        slopes[where] = {seed: found for seed, found in fitted.items() if found is not None}
    missed, mistaken, labels = (
        Compared(values={w: {s: each[i] for s, each in by.items()} for w, by in slopes.items()})
        for i in range(3)
    )
    misses, alarms, asked = missed.pairs, mistaken.pairs, labels.pairs
    if misses is None or alarms is None or asked is None:
        return None
    text = (
        f"amr's accuracy per lost TPR (from all drifts found to none): {points(misses)}; per FPR "
        f"(from no false alarm to all): {points(alarms)}, and {asked.interval.mean:+.0f} labels"
    )
    known = evidence_of(pool)
    costly, harmless = misses.interval.below(-MARGIN), alarms.interval.at_least(-MARGIN)
    return Finding(text=told(text, known, misses, missed), verdict=both(costly, harmless))


def _slopes(runs: list[Done]) -> Slopes | None:
    """By least squares; None as long as no run has one of the ends, 0 or 1, of both rates."""
    if any({0, 1} - {done.place[name] for done in runs} for name in RATES):
        return None
    rates = np.array([[_rate(done, "tpr"), _rate(done, "fpr")] for done in runs])
    design = np.column_stack([np.ones(len(runs)), 1 - rates[:, 0], rates[:, 1]])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    ends = [[done.run.faa, done.run.labels.get("adaptation") or 0.0] for done in runs]
    plane = np.linalg.lstsq(design, np.array(ends, dtype=float), rcond=None)[0]
    return float(plane[1, 0]), float(plane[2, 0]), float(plane[2, 1])


def _rate(done: Done, name: str) -> float:
    """As it was reached, or as it was asked for where no class could show it."""
    reached = done.run.detection.get(name)
    return float(done.place[name] or 0) if reached is None else reached
