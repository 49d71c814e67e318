"""All figures of a sweep, those of the paper among them: decided by what its places differ in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import matplotlib

from driftwise.report import style
from driftwise.report.facets import Drawing, RenderedFigure, render
from driftwise.report.sweeps import Sweep
from driftwise.reproduce.cost_figures import cost_scatter, radar_grid
from driftwise.reproduce.curve_figures import SEVERITY_NAMES, accuracy_grid, severity_panels
from driftwise.reproduce.detector_map import ERROR_NAMES, detector_map
from driftwise.reproduce.feature_maps import FeatureMaps, draw_feature_maps, projection
from driftwise.reproduce.gain import Published, gain_bars
from driftwise.reproduce.notes import scale_words
from driftwise.reproduce.places import GridPoint, Group, distinct, grid_points, groups_of

Named = tuple[str, Drawing | None]
"""a file name without its ending, and what goes into it"""


def draw_paper_figures(
    sweep: Sweep,
    styles: style.Styles | None = None,
    *,
    published: Published | None = None,
    features: FeatureMaps | None = None,
) -> tuple[RenderedFigure, ...]:
    """Every figure that a sweep has something for, finished or not; gaps stay visible.

    A sweep over severities gives accuracy by severity, one over a detector's errors their map, any
    other accuracy over tasks, gain over vanilla, cost against accuracy and cost relative to full
    relearning.

    Args:
        sweep: planned and finished runs.
        styles: by adaptation; those that are missing are chosen.
        published: the published accuracy of a place.
        features: maps of the first task's classes.
    """
    points = grid_points(sweep)
    complete = {**style.styles_of(point.adaptation for point in points), **(styles or {})}
    with matplotlib.rc_context(style.RC):
        named = list(_drawings(points, sweep, complete, published))
        if features is not None:
            named.append(("features", _features(features, points, sweep)))
        return tuple(
            render(re.sub(r"[^A-Za-z0-9+-]+", "-", kind).strip("-")[:100], drawing)
            for kind, drawing in named
            if drawing is not None
        )


def _drawings(
    points: Sequence[GridPoint], sweep: Sweep, styles: style.Styles, published: Published | None
) -> Iterator[Named]:
    if _is_over(SEVERITY_NAMES, points):
        for name, here in _by_setting("severity", points, SEVERITY_NAMES):
            yield name, severity_panels(here, sweep, styles)
    elif _is_over(ERROR_NAMES, points):
        for name, here in _by_setting("detector", points, ERROR_NAMES):
            yield name, detector_map(here, sweep)
    else:
        yield from _grids(groups_of(points), sweep, styles, published)


def _is_over(names: Sequence[str], points: Sequence[GridPoint]) -> bool:
    """Whether a sweep knows all these settings, and its places differ in one of them."""
    known = any(all(point.place.get(name) is not None for name in names) for point in points)
    return known and any(name in point.others for point in points for name in names)


def _grids(
    groups: Sequence[Group], sweep: Sweep, styles: style.Styles, published: Published | None
) -> Iterator[Named]:
    for group in groups:
        yield f"accuracy-{group.slug}", accuracy_grid(group, sweep, styles)
    for benchmark, part in distinct((group.benchmark, group.part) for group in groups):
        alike = [g for g in groups if (g.benchmark, g.part) == (benchmark, part)]
        suffix = f"-{part}" if part > 1 else ""
        yield f"gain-{benchmark}{suffix}", gain_bars(alike, sweep, styles, published)
    for group in groups:
        if group.num_drifts or len(group.adaptations) > 1:
            yield f"cost-{group.slug}", cost_scatter(group, sweep, styles)
            yield f"radar-{group.slug}", radar_grid(group, sweep, styles)


def _by_setting(
    kind: str, points: Sequence[GridPoint], names: Sequence[str]
) -> Iterator[tuple[str, list[GridPoint]]]:
    """A file name, and the places that are alike in all but `names` and the adaptation.

    A place without drift belongs to every number of drifts.
    """

    def setting(point: GridPoint) -> tuple[str, str, int | None]:
        return point.benchmark, point.variant(*names), point.buffer_size

    undrifted = [point for point in points if not point.num_drifts]
    drifted = [point for point in points if point.num_drifts]
    for key in distinct((setting(point), point.num_drifts) for point in drifted):
        here = [point for point in drifted if (setting(point), point.num_drifts) == key]
        (benchmark, variant, buffer_size), count = key
        name = f"{kind}-{benchmark}-{variant}-b{buffer_size or 0}-d{count}"
        yield name, [*here, *(point for point in undrifted if setting(point) == key[0])]


def _features(features: FeatureMaps, points: Sequence[GridPoint], sweep: Sweep) -> Drawing | None:
    done = next((point.cell.first for point in points if point.cell is not None), None)
    return draw_feature_maps(
        features,
        title=sweep.name if done is None else done.benchmark,
        notes=f"Two dimensions by {projection()}. {scale_words(sweep, points)}",
        class_names=() if done is None else done.class_names,
    )
