"""How far each class has moved in feature space, and how its spread has changed, check by check."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from driftwise.report.saved_run import Run, Verdict

MOST_CLASSES = 24
"""panels; the classes that moved farthest come first"""
WIDTH, UPPER, LOWER, GAP = 210.0, 64.0, 26.0, 12.0
"""of a panel: the distance of the mean above, the spread below"""


def time_lines(run: Run) -> list[dict[str, object]]:
    """A panel of each class that was checked more than once, for the template."""
    by_class: dict[int, list[Verdict]] = defaultdict(list)
    for verdict in run.verdicts:
        if verdict.moved is not None and verdict.moved_band is not None:
            by_class[verdict.label].append(verdict)
    farthest = {
        label: max((v.moved or 0.0) / (v.moved_band or 1.0) for v in verdicts)
        for label, verdicts in by_class.items()
        if len(verdicts) > 1
    }
    shown = sorted(sorted(farthest, key=lambda c: -farthest[c])[:MOST_CLASSES])
    return [_panel(run, label, by_class[label]) for label in shown]


def _panel(run: Run, label: int, verdicts: Sequence[Verdict]) -> dict[str, object]:
    most = 1.15 * max(max(v.moved or 0.0, v.moved_band or 0.0) for v in verdicts)
    ratios = [abs(math.log2(x)) for v in verdicts for x in (v.spread, v.spread_band) if x]
    reach = 1.15 * max([*ratios, 0.1])

    def across(verdict: Verdict) -> float:
        return round(4 + (WIDTH - 8) * (verdict.task - 0.5) / run.num_tasks, 1)

    def height(value: float) -> float:
        return round(UPPER * (1 - value / most), 1)

    def depth(ratio: float) -> float:
        middle = UPPER + GAP + LOWER / 2
        return round(middle - math.log2(max(ratio, 1e-9)) / reach * LOWER / 2, 1)

    moved = [(across(v), height(v.moved or 0.0)) for v in verdicts]
    edge = [(across(v), height(v.moved_band or 0.0)) for v in verdicts]
    spreads = [v for v in verdicts if v.spread is not None and v.spread_band is not None]
    above = [(across(v), depth(v.spread_band or 1.0)) for v in spreads]
    below = [(across(v), depth(1 / (v.spread_band or 1.0))) for v in spreads]
    ends = [(edge[-1][0], UPPER), (edge[0][0], UPPER)]
    last = verdicts[-1]
    at_last, usual = f"{last.moved or 0.0:.2f}", f"{last.moved_band or 0.0:.2f}"
    return {
        "name": f"class {label}: {at_last} at the last check, band {usual}",
        "label": f"class {label}: its mean is {at_last} spreads from the reference at its last check; "
        f"an unchanged class stays below {usual}",
        "band": _points([*edge, *ends]),
        "moved": _points(moved),
        "spread_band": _points([*above, *below[::-1]]),
        "spread": _points([(across(v), depth(v.spread or 1.0)) for v in spreads]),
        "found": [(across(v), height(v.moved or 0.0)) for v in verdicts if v.drifted],
    }


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
