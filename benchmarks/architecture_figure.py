"""Draws the flow of docs/explanations/architecture.md.

python benchmarks/architecture_figure.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "architecture.png"
INK, EDGE, STEP, STORE = "#1a1a1a", "#555555", "#d6e8f5", "#fdeccb"
WIDTH, HEIGHT = 2.15, 1.15
"""of a box"""

STEPS = {
    "streams": (0.0, "batch"),
    "detect": (2.75, "which classes\nhave drifted?"),
    "adapt": (5.5, "realign\nor relearn"),
    "learner": (8.25, "train step"),
    "metrics": (11.0, "accuracy,\ncosts"),
}
"""package -> left edge, and what it does"""
STORES = {
    "datasets": (0.0, -2.1),
    "reference\nsamples": (2.75, -2.1),
    "replay\nbuffer": (6.875, -2.1),
    "labels": (5.5, 2.35),
}
"""what the steps read and write -> left edge, bottom"""


def box(axes: Axes, left: float, bottom: float, name: str, note: str, colour: str) -> None:
    shape = "round,pad=0,rounding_size=0.12"
    axes.add_patch(
        FancyBboxPatch(
            (left, bottom), WIDTH, HEIGHT, boxstyle=shape, facecolor=colour, edgecolor=EDGE, lw=2
        )
    )
    centre = left + WIDTH / 2, bottom + HEIGHT / 2
    axes.text(*centre, name, ha="center", va="center", size=23, weight="bold", color=INK)
    axes.text(centre[0], bottom + HEIGHT + 0.1, note, ha="center", va="bottom", size=18, color=INK)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], *, both: bool) -> None:
    style = "<|-|>" if both else "-|>"
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle=style,
            mutation_scale=28,
            lw=2.6,
            color=EDGE,
            shrinkA=3,
            shrinkB=3,
        )
    )


def draw() -> Figure:
    figure = Figure(figsize=(13, 6.4), dpi=100)
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set_axis_off()
    axes.set_xlim(-0.55, 13.3)
    axes.set_ylim(-3.15, 3.65)
    lefts = {name: left for name, (left, _) in STEPS.items()}
    for name, (left, note) in STEPS.items():
        box(axes, left, 0, name, "" if name == "adapt" else note, STEP)
    for name, (left, bottom) in STORES.items():
        box(axes, left, bottom, name, "", STORE)
    middle = HEIGHT / 2
    for before, after in zip(list(lefts)[:-1], list(lefts)[1:], strict=True):
        arrow(axes, (lefts[before] + WIDTH, middle), (lefts[after], middle), both=False)
    centre = WIDTH / 2
    arrow(axes, (centre, -2.1 + HEIGHT), (centre, 0), both=False)
    arrow(axes, (2.75 + centre, -2.1 + HEIGHT), (2.75 + centre, 0), both=True)
    arrow(axes, (6.875 + 0.5, -2.1 + HEIGHT), (5.5 + 1.5, 0), both=True)
    arrow(axes, (6.875 + 1.65, -2.1 + HEIGHT), (8.25 + 0.65, 0), both=True)
    arrow(axes, (5.5 + centre, 2.35), (5.5 + centre, HEIGHT), both=False)
    axes.text(5.5 + centre + 0.15, 1.75, STEPS["adapt"][1], size=18, color=INK, va="center")
    # The loop goes back: the next task, or in a live learner the next batch.
    corner = -2.75
    right, left = 11.0 + centre, -0.45
    path = [right, right, left, left], [0, corner, corner, middle]
    axes.plot(*path, color=EDGE, lw=2.6, solid_joinstyle="round", zorder=0)
    arrow(axes, (left, middle), (0, middle), both=False)
    axes.text(10.2, corner + 0.13, "next task or batch", size=18, color=INK, ha="center")
    return figure


def main() -> None:
    mpl.rcParams["font.family"] = "DejaVu Sans"
    draw().savefig(FIGURE)


if __name__ == "__main__":
    main()
