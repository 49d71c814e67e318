"""Tables and drawings of feature vectors: which features changed, and samples before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftwise.report.saved_run import clean
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
        meaning="In standard deviations of the reference; empty where the reference is constant.",
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


def drawing(view: Mapping[str, Any]) -> dict[str, Any]:
    """For the template: points of both sides, and histograms of the features that changed most."""
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
                "path": "".join(_place(point, ranges) + marker for point in view[name]),
            }
            for name, colour, marker in (
                ("reference", REFERENCE, _DOT),
                ("current", DRIFT, _SQUARE),
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
