"""What sweeps say about natural drift, and about transforms that may do nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from recollect.report.paper.claim_evidence import Share
from recollect.report.paper.findings import MARGIN, Finding, points
from recollect.report.paper.intervals import FAILS, HOLDS, UNDECIDED, both, paired
from recollect.report.sweeps import Sweep
from recollect.report.words import plural

HALF, NEARLY_ALL = 0.75, 0.9
""" "About half" is less than this share, "nearly all" at least this one."""


def natural_drifts(
    scale: str, sweeps: Sequence[Sweep], extra: Mapping[str, Share]
) -> Finding | None:
    """Shares of natural drifts found at once, from runs or from elsewhere."""
    shares = dict(_found_by_runs(sweeps)) | dict(extra)
    ks, mmd = shares.get("ks"), shares.get("mmd")
    if ks is None or mmd is None or not ks.of or not mmd.of:
        return None
    few, many = (_at_least(share, bar) for share, bar in ((ks, HALF), (mmd, NEARLY_ALL)))
    few = {HOLDS: FAILS, FAILS: HOLDS}.get(few, few)
    origin = f"; scale {scale}" if scale and not {"ks", "mmd"} <= extra.keys() else ""
    return Finding(text=f"ks {ks}, mmd {mmd}{origin}", verdict=both(few, many))


def _at_least(share: Share, threshold: float) -> str:
    low, high = share.interval
    return HOLDS if low >= threshold else FAILS if high < threshold else UNDECIDED


def _found_by_runs(sweeps: Sequence[Sweep]) -> Iterator[tuple[str, Share]]:
    runs = {e.run.folder: e.run for sweep in sweeps for e in sweep.entries if e.run is not None}
    totals: defaultdict[str, Share] = defaultdict(lambda: Share(found=0, of=0))
    for run in runs.values():
        found, of = run.detection.get("num_detected"), run.detection.get("num_drifts")
        natural = bool(run.events) and all(event.transform == "natural" for event in run.events)
        if natural and found is not None and of:
            totals[run.detector] += Share(found=int(found), of=int(of))
    yield from totals.items()


Cell = tuple[str | int | float | None, ...]
"""What runs under different transforms must share."""

_HARMLESS = ("defocus-blur", "shot-noise")
_HARMFUL = ("gaussian-noise", "rotation", "permutation")


def transforms(scale: str, sweeps: Sequence[Sweep]) -> Finding | None:
    """What vanilla loses to each transform at its highest severity, against no drift at all."""
    lost = _lost_at_most(sweeps)
    told, verdicts, counts = [], [], set()
    for name in (*_HARMLESS, *_HARMFUL):
        pairs = paired(lost.get(name, {}).values())
        if pairs is None:
            return None
        interval = pairs.interval
        harmful = name in _HARMFUL
        verdicts.append(interval.at_least(MARGIN) if harmful else interval.below(MARGIN))
        told.append(f"{name} {points(pairs)}")
        counts |= {*pairs.num_seeds}
    seeds = plural(min(counts), "seed")
    if len(counts) > 1:
        seeds = f"{min(counts)} to {plural(max(counts), 'seed')}"
    text = f"lost by vanilla: {'; '.join(told)}; {seeds}; scale {scale}"
    return Finding(text=text, verdict=both(*verdicts))


def _lost_at_most(sweeps: Sequence[Sweep]) -> Mapping[str, Mapping[Cell, Sequence[float]]]:
    """By transform and cell, seed by seed: accuracy without drift minus at its highest severity."""
    still: dict[tuple[Cell, int], float] = {}
    moved: dict[tuple[str, Cell], dict[float, dict[int, float]]] = {}
    for entry in (entry for sweep in sweeps for entry in sweep.entries):
        place, run = entry.place, entry.run
        if run is None or run.faa is None or place.get("adaptation") != "vanilla":
            continue
        cell = tuple(place.get(key) for key in ("benchmark", "method", "buffer_size", "backbone"))
        transform = place.get("transform")
        if place.get("num_drifts") == 0 or transform == "identity":
            still[cell, entry.seed] = run.faa
        elif transform is not None:
            by_severity = moved.setdefault((str(transform), cell), {})
            by_severity.setdefault(float(place.get("severity") or 0), {})[entry.seed] = run.faa
    lost: defaultdict[str, dict[Cell, list[float]]] = defaultdict(dict)
    for (name, cell), by_severity in moved.items():
        worst = by_severity[max(by_severity)]
        lost[name][cell] = [
            still[cell, seed] - faa for seed, faa in sorted(worst.items()) if (cell, seed) in still
        ]
    return lost
