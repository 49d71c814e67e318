"""All figures of a setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import matplotlib

from driftwise.report import style
from driftwise.report.cells import Setting
from driftwise.report.costs import cost_bars, cost_radar
from driftwise.report.curves import accuracy_over_tasks, reliability
from driftwise.report.facets import Drawing, RenderedFigure, render
from driftwise.report.heat_maps import accuracy_matrix, confusion, per_class, sample_sheet
from driftwise.report.verdicts import harm_dots, verdict_grid

Drawer = Callable[[Setting, style.Styles], Drawing | None]
"""Draws a setting; None if its runs hold nothing to draw."""

DRAWERS: Mapping[str, Drawer] = {
    "accuracy": accuracy_over_tasks,
    "matrix": lambda setting, _: accuracy_matrix(setting),
    "per-class": lambda setting, _: per_class(setting),
    "samples": lambda setting, _: sample_sheet(setting),
    "verdicts": lambda setting, _: verdict_grid(setting),
    "harm": lambda setting, _: harm_dots(setting),
    "confusion": lambda setting, _: confusion(setting),
    "cost": cost_bars,
    "radar": cost_radar,
    "reliability": reliability,
}
"""In the order of the page: what happened, why, and what it cost."""


def draw_all(setting: Setting, styles: style.Styles) -> tuple[RenderedFigure, ...]:
    """Every figure that the runs of a setting have something for."""
    figures = []
    with matplotlib.rc_context(style.RC):
        for kind, draw in DRAWERS.items():
            drawing = draw(setting, styles)
            if drawing is not None:
                figures.append(render(kind, replace(drawing, notes=notes_of(setting, kind))))
    return tuple(figures)


def notes_of(setting: Setting, kind: str) -> str:
    """What stands below a figure: which cells were not adapted, and why."""
    return f"{setting.not_adapted}." if setting.not_adapted and kind != "samples" else ""
