"""All figures of a setting, drawn and turned into files' contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import matplotlib

from driftwise.report import style
from driftwise.report.canvas import Drawing, print_below, to_png, to_svg
from driftwise.report.cells import Setting
from driftwise.report.costs import cost_bars, cost_radar
from driftwise.report.curves import accuracy_over_tasks, reliability
from driftwise.report.grids import accuracy_matrix, confusion, per_class
from driftwise.report.harms import harm_dots
from driftwise.report.images import sample_sheet
from driftwise.report.verdicts import verdict_grid

Drawer = Callable[[Setting, style.Looks], Drawing | None]
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


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A finished figure, ready to be written or put into a page."""

    kind: str
    """what it shows, fit for a file name; a key of DRAWERS where it shows a setting"""
    title: str
    caption: str
    alt: str
    png: bytes
    svg: bytes


def draw_all(setting: Setting, looks: style.Looks) -> tuple[Picture, ...]:
    """Every figure that the runs of a setting have something for."""
    images = []
    with matplotlib.rc_context(style.RC):
        for kind, draw in DRAWERS.items():
            drawing = draw(setting, looks)
            if drawing is not None:
                note = "" if kind == "samples" else setting.not_adapted
                images.append(image_of(kind, replace(drawing, note=note)))
    return tuple(images)


def image_of(kind: str, drawing: Drawing) -> Picture:
    """A drawing as files' contents."""
    figure, note = drawing.figure, drawing.note
    below = print_below(figure, note) if note else 0.0
    return Picture(
        kind=kind,
        title=drawing.title,
        caption=f"{drawing.caption} {note}.".removesuffix(" ."),
        alt=f"{drawing.alt} {note}.".removesuffix(" ."),
        png=to_png(figure, below=below),
        svg=to_svg(figure, below=below),
    )
