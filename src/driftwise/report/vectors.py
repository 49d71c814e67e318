"""Tables and drawings of feature vectors: which features changed, and samples before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftwise.report.read import tensors_in
from driftwise.report.saved_run import Run, clean
from driftwise.report.style import DRIFT
from driftwise.report.table import Head, Item, Table

REFERENCE = "#0072B2"

WIDTH, HEIGHT = 320, 220
"""of the area of points; that of a histogram is a third as high"""
BARS = 72
_DOT = "m-2.6 0a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0 -5.2 0"
_SQUARE = "m-2.3 -2.3h4.6v4.6h-4.6z"
"""path data: either marker identifies its side without its colour"""

HEADS = (
    Head(
        title="feature",
        meaning="The features that changed most, the strongest first.",
        is_name=True,
    ),
    Head(
        title="KS distance",
        meaning="Largest difference between the two distributions of the feature, 0 to 1.",
    ),
    Head(
        title="shift of the mean",
        meaning="In standard deviations of the reference, the mean over classes, in which a way up and "
        "a way down cancel; empty where the reference is constant.",
    ),
    Head(
        title="ratio of spread",
        meaning="Standard deviation of the current samples, divided by that of the reference.",
    ),
)

Change = Mapping[str, Any]
"""name, shift, spread and ks of one feature"""


def feature_table(features: Sequence[Change], most: int = 10) -> Table | None:
    """How the features changed that changed most; None: there are none."""
    rows = [
        [
            Item(name := clean(each["name"]), name),
            Item(f"{each['ks']:.2f}", each["ks"], "bar", round(each["ks"], 3)),
            Item("" if each["shift"] is None else f"{each['shift']:+.2f}", each["shift"]),
            Item("" if each["spread"] is None else f"{each['spread']:.2f}", each["spread"]),
        ]
        for each in features[:most]
    ]
    return Table(heads=HEADS, rows=rows) if rows else None


def axes_words(axes: Sequence[float]) -> str:
    """What the directions of points are.

    >>> axes_words((0.5, 0.25))
    'across and up, the two directions in which samples varied most before (50% and 25% of the variance)'
    """
    across, up = (f"{share:.0%}" for share in axes)
    return (
        "across and up, the two directions in which samples varied most before"
        f" ({across} and {up} of the variance)"
    )


def drawing(
    view: Mapping[str, Any], names: tuple[str, str] = ("reference", "current")
) -> dict[str, Any]:
    """For the template: points of both sides, and histograms of the features that changed most.

    `names`: what the sides are called.
    """
    points = [*view["reference"], *view["current"]]
    ranges = [_range([point[axis] for point in points]) for axis in (0, 1)]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "bars": BARS,
        "sides": [
            {
                "name": name,
                "colour": colour,
                "marker": marker,
                "path": "".join(_place(point, ranges) + marker for point in view[side]),
            }
            for name, side, colour, marker in zip(
                names, ("reference", "current"), (REFERENCE, DRIFT), (_DOT, _SQUARE), strict=True
            )
        ],
        "histograms": [_histogram(each) for each in view["histograms"]],
    }


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.04 * (high - low) or 1.0
    return low - margin, high + margin


def _place(point: Sequence[float], ranges: Sequence[tuple[float, float]]) -> str:
    x, y = ((value - low) / (high - low) for value, (low, high) in zip(point, ranges, strict=True))
    return f"M{x * WIDTH:.1f} {(1 - y) * HEIGHT:.1f}"


def _histogram(each: Mapping[str, Any]) -> dict[str, Any]:
    edges = each["edges"]
    highest = max(*each["reference"], *each["current"]) or 1.0
    outlines = {}
    for side in ("reference", "current"):
        step = WIDTH / len(each[side])
        tops = [f"{BARS * (1 - value / highest):.1f}" for value in each[side]]
        path = "".join(
            f"L{place * step:.1f} {top}L{(place + 1) * step:.1f} {top}"
            for place, top in enumerate(tops)
        )
        outlines[side] = f"M0 {BARS}{path}L{WIDTH} {BARS}"
    return {
        "name": clean(each["name"]),
        "low": f"{edges[0]:.3g}",
        "high": f"{edges[-1]:.3g}",
        "outlines": outlines,
    }


# --- of a run -------------------------------------------------------------------------------------

MAX_GROUPS = 4
"""drifted classes of a run that are drawn"""
MAX_POINTS = 60
MAX_HISTOGRAMS = 2


@dataclass(frozen=True, kw_only=True)
class Drifted:
    """What there is to see of the drift in a run on vectors."""

    features: Sequence[Change]
    """those that changed most, on average over all drifted classes and their events"""
    num_classes: int
    """drifted classes, each counted at each event"""
    axes: tuple[float, float]
    """fraction of the variance before the drift along the two directions of the points"""
    views: Sequence[tuple[str, Mapping[str, Any]]]
    """names of some classes and tasks, and what to draw of them"""


def drift_in(run: Run) -> Drifted | None:
    """The drift of the vectors that a run has kept; None: it has kept none, or images."""
    if run.samples is None:
        return None
    with tensors_in(run.samples) as file:
        if len(file.get_slice("before").get_shape()) != 2:
            return None
        before, after, labels, tasks = (
            file.get_tensor(name) for name in ("before", "after", "labels", "tasks")
        )
        names = (
            bytes(file.get_tensor("feature_names").tolist()).decode(errors="replace").split("\n")
            if "feature_names" in file.keys()  # noqa: SIM118 (no mapping)
            else []
        )
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        return None
    # Late: the pages of images need no torch.
    import torch

    from driftwise.scaling import Scaling
    from driftwise.stats import feature_shift
    from driftwise.stats.projection import Projection, spread_evenly

    if len(names) != before.shape[1]:
        names = [f"feature {number}" for number in range(before.shape[1])]
    old, new = torch.from_numpy(before), torch.from_numpy(after)
    scaling = Scaling().fit(old)
    projection = Projection(scaling(old))
    shifts: list[feature_shift.FeatureShifts] = []
    views: list[tuple[str, Mapping[str, Any]]] = []
    for task, label in sorted(set(zip(tasks.tolist(), labels.tolist(), strict=True))):
        mine = torch.from_numpy((tasks == task) & (labels == label))
        sides = old[mine], new[mine]
        shifts.append(feature_shift.feature_shifts(*sides))
        if len(views) < MAX_GROUPS:
            reference, current = (
                projection.points(scaling(spread_evenly(side, MAX_POINTS))) for side in sides
            )
            histograms = [
                {
                    "name": names[place],
                    **feature_shift.histogram(sides[0][:, place], sides[1][:, place])._asdict(),
                }
                for place in shifts[-1].order()[:MAX_HISTOGRAMS].tolist()
            ]
            view = {"reference": reference, "current": current, "histograms": histograms}
            name = run.class_names[label] if 0 <= label < len(run.class_names) else str(label)
            views.append((f"{name}, task {task}", view))
    whole = feature_shift.mean_shifts(shifts)
    features = [
        {
            "name": names[place],
            "ks": float(whole.ks[place]),
            "shift": _known(whole.shift[place]),
            "spread": _known(whole.spread[place]),
        }
        for place in whole.order()[:20].tolist()
    ]
    return Drifted(
        features=features, num_classes=len(shifts), axes=projection.explained, views=views
    )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
