"""A sheet of a data set of vectors: its classes in two directions, a panel for each domain."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes

from driftwise.cli.contact_sheet import check_sheet, saved_sheet, spread
from driftwise.report import style
from driftwise.report.facets import facets, short, to_png
from driftwise.scaling import Scaling
from driftwise.stats.projection import Projection, spread_evenly
from driftwise.types import Dataset

MAX_PANELS = 9
MAX_POINTS = 80
"""samples of a class in a panel"""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osv^DPX*"


def vector_sheet(dataset: Dataset, *, classes: int = 10, out: Path) -> Path:
    """Draw a PNG of up to that many classes, a panel for each domain.

    The directions are those in which the samples of the first domain vary most, features in
    their deviations there.
    """
    check_sheet(classes, out)
    domains = np.zeros(len(dataset.labels), int) if dataset.domains is None else dataset.domains
    present = np.unique(domains)
    chosen = spread(np.unique(dataset.labels), classes)
    first = torch.from_numpy(dataset.images[domains == present[0]])
    scaling = Scaling().fit(first)
    projection = Projection(scaling(first))
    with mpl.rc_context(style.RC):
        shown = spread(present, MAX_PANELS)
        grid = facets(len(shown), (2.6, 2.3))
        for panel, domain in zip(grid.panels, shown, strict=True):
            panel.sharex(grid.panels[0])
            panel.sharey(grid.panels[0])
            if dataset.domains is not None:
                panel.set_title(short(dataset.domain_names[domain], 24), loc="left")
            for number, label in enumerate(chosen):
                vectors = dataset.images[(domains == domain) & (dataset.labels == label)]
                scaled = scaling(spread_evenly(torch.from_numpy(vectors), MAX_POINTS))
                _points(panel, projection.points(scaled), number, dataset.class_names[label])
        along = [f"direction {i}, {share:.0%}" for i, share in enumerate(projection.explained, 1)]
        grid.label(*along)
        grid.add_legend(grid.panels[0].get_legend_handles_labels()[0])
        return saved_sheet(to_png(grid.figure), out)


def _points(
    panel: Axes, points: tuple[tuple[float, float], ...], number: int, class_name: str
) -> None:
    panel.plot(
        [x for x, _ in points],
        [y for _, y in points],
        linestyle="none",
        marker=MARKERS[number % len(MARKERS)],
        markersize=3,
        alpha=0.6,
        color=COLOURS[number % len(COLOURS)],
        label=short(class_name),
    )
