"""Draws the pictures of docs/explanations/concept_drift.md and how_amr_works.md.

python benchmarks/concept_figures.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

import driftwise as dw
from driftwise.report import style
from driftwise.streams.transforms import apply

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
TRANSFORMS = (
    "permutation",
    "rotation",
    "defocus-blur",
    "gaussian-noise",
    "shot-noise",
    "speckle-noise",
)
OLD, NEW, OTHER = "#9aa5b1", style.DRIFT, "#cfe3f3"
SEVERITY = 3


def kinds() -> Figure:
    """The fraction of a class that has drifted, over time, for each kind of drift."""
    time = np.linspace(0, 10, 400)
    curves = {
        "sudden": (time > 4).astype(float),
        "gradual": np.clip((time - 3) / 5, 0, 1),
        "partial": 0.5 * (time > 4),
        "recurring": ((time > 3) & (time < 6)).astype(float),
    }
    figure = Figure(figsize=(9, 2.3), layout="constrained")
    for axes, (name, curve) in zip(figure.subplots(1, 4, sharey=True), curves.items(), strict=True):
        axes.fill_between(time, 0, curve, color=NEW, alpha=0.35, lw=0)
        axes.plot(time, curve, color=NEW, lw=2)
        axes.set(title=name, xticks=[], xlabel="time", ylim=(-0.04, 1.08), yticks=[0, 0.5, 1])
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set(ylabel="fraction drifted", yticklabels=["0", "½", "1"])
    return figure


def looks() -> Figure:
    """A zero, one, two and three before the drift, and after each transform."""
    data = dw.datasets.load("digits")
    first = torch.from_numpy(data.images[[np.flatnonzero(data.labels == c)[0] for c in range(4)]])
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    columns = ("before", *TRANSFORMS)
    grid = figure.subplots(4, len(columns))
    for column, name in enumerate(columns):
        images = _drifted(first, None if name == "before" else name)
        for row in range(4):
            axes = grid[row, column]
            axes.imshow(images[row], cmap="gray_r", vmin=0, vmax=255)
            axes.set(xticks=[], yticks=[])
        grid[0, column].set_title(name, size=10, color=style.INK if column == 0 else NEW)
    return figure


def _drifted(images: Tensor, transform: str | None) -> np.ndarray:
    if transform is not None:
        images = apply(images, transform, SEVERITY, seed=0)
    found: np.ndarray = images[..., 0].numpy()
    return found


def slots(axes: Axes, left: float, colours: Sequence[str], title: str) -> None:
    for number, colour in enumerate(colours):
        place = left + number % 4, 2 - number // 4
        axes.add_patch(Rectangle(place, 0.9, 0.9, facecolor=colour, edgecolor="white"))
    axes.text(left + 1.95, 3.15, title, ha="center", va="bottom", size=12, color=style.INK)


def realigned() -> Figure:
    """The replay buffer before a drift, after it, and realigned."""
    figure = Figure(figsize=(9, 3.0), layout="constrained")
    axes = figure.subplots()
    before = [OLD] * 4 + [OTHER] * 8
    slots(axes, 0, before, "before the drift")
    slots(axes, 6.5, [OLD] * 4 + [OTHER] * 8, "after it: outdated")
    slots(axes, 13, [NEW] * 4 + [OTHER] * 8, "realigned")
    for number in range(4):
        axes.text(6.95 + number, 2.45, "×", ha="center", va="center", size=22, color=NEW)
    for start, text in ((4.1, "the class\ndrifts"), (10.6, "4 labels")):
        axes.add_patch(
            FancyArrowPatch(
                (start, 1.4),
                (start + 2.2, 1.4),
                arrowstyle="-|>",
                mutation_scale=18,
                color=style.MUTED,
            )
        )
        axes.text(start + 1.1, 1.6, text, ha="center", va="bottom", size=11, color=style.MUTED)
    axes.text(
        1.95,
        -0.5,
        "grey: samples of the class as it was; blue: other classes",
        ha="left",
        size=11,
        color=style.MUTED,
    )
    axes.text(17.0, -0.5, "orange: as it is now", ha="right", size=11, color=NEW)
    axes.set(xlim=(-0.3, 17.3), ylim=(-0.9, 4), aspect="equal")
    axes.axis("off")
    return figure


def main() -> None:
    with mpl.rc_context(style.RC):
        for name, draw in {
            "drift-kinds": kinds,
            "drift-looks": looks,
            "amr-buffer": realigned,
        }.items():
            draw().savefig(IMAGES / f"{name}.png", dpi=130)
            print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
