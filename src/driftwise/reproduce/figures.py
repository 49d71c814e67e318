"""All figures of a sweep, those of the paper among them: decided by what its places differ in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import matplotlib

from driftwise.report import style
from driftwise.report.canvas import Drawing
from driftwise.report.figures import Picture, image_of
from driftwise.report.sweeps import Sweep
from driftwise.reproduce import detector_map, severity
from driftwise.reproduce.cost_figures import cost_scatter
from driftwise.reproduce.curve_figures import accuracy_grid
from driftwise.reproduce.feature_maps import how
from driftwise.reproduce.feature_space import FeatureRows, feature_maps
from driftwise.reproduce.gain import Published, gain_bars
from driftwise.reproduce.places import Group, Spot, distinct, groups_of, spots_of
from driftwise.reproduce.plate import scale_words
from driftwise.reproduce.radar import radar_grid

Named = tuple[str, Drawing | None]
"""a file name without its ending, and what goes into it"""


def draw_paper_figures(
    sweep: Sweep,
    looks: style.Looks | None = None,
    *,
    published: Published | None = None,
    features: FeatureRows | None = None,
) -> tuple[Picture, ...]:
    """Every figure that a sweep has something for, finished or not; gaps stay visible.

    A sweep over severities gives accuracy by severity, one over a detector's errors their map, any
    other accuracy over tasks, gain over vanilla, cost against accuracy and cost relative to full
    relearning. `published` tells the published accuracy of a place, `features` the maps of the
    first task's classes.
    """
    spots = spots_of(sweep)
    complete = {**style.looks_of(spot.adaptation for spot in spots), **(looks or {})}
    with matplotlib.rc_context(style.RC):
        named = list(_drawings(spots, sweep, complete, published))
        if features is not None:
            named.append(("features", _features(features, spots, sweep)))
        return tuple(
            image_of(_file_name(kind), drawing) for kind, drawing in named if drawing is not None
        )


def _drawings(
    spots: Sequence[Spot], sweep: Sweep, looks: style.Looks, published: Published | None
) -> Iterator[Named]:
    if _is_over(severity.NAMES, spots):
        yield from _by_setting(
            "severity",
            spots,
            severity.NAMES,
            lambda here: severity.severity_panels(here, sweep, looks),
        )
    elif _is_over(detector_map.NAMES, spots):
        yield from _by_setting(
            "detector",
            spots,
            detector_map.NAMES,
            lambda here: detector_map.detector_map(here, sweep),
        )
    else:
        yield from _grids(groups_of(spots), sweep, looks, published)


def _is_over(names: Sequence[str], spots: Sequence[Spot]) -> bool:
    """Whether a sweep knows all these settings, and its places differ in one of them."""
    known = any(all(spot.place.get(name) is not None for name in names) for spot in spots)
    return known and any(name in spot.others for spot in spots for name in names)


def _grids(
    groups: Sequence[Group], sweep: Sweep, looks: style.Looks, published: Published | None
) -> Iterator[Named]:
    for group in groups:
        yield f"accuracy-{group.slug}", accuracy_grid(group, sweep, looks)
    for benchmark, part in distinct((group.benchmark, group.part) for group in groups):
        alike = [g for g in groups if (g.benchmark, g.part) == (benchmark, part)]
        suffix = f"-{part}" if part > 1 else ""
        yield f"gain-{benchmark}{suffix}", gain_bars(alike, sweep, looks, published)
    for group in groups:
        if group.num_drifts or len(group.adaptations) > 1:
            yield f"cost-{group.slug}", cost_scatter(group, sweep, looks)
            yield f"radar-{group.slug}", radar_grid(group, sweep, looks)


def _by_setting(
    kind: str,
    spots: Sequence[Spot],
    names: tuple[str, ...],
    draw: Callable[[Sequence[Spot]], Drawing | None],
) -> Iterator[Named]:
    """One figure for the places that are alike in all but `names`, the adaptation and being calm.

    A place without drift belongs to every number of drifts.
    """

    def setting(spot: Spot) -> tuple[str, str, int | None]:
        return spot.benchmark, spot.variant(*names), spot.buffer_size

    calm = [spot for spot in spots if not spot.num_drifts]
    drifted = [spot for spot in spots if spot.num_drifts]
    for key in distinct((setting(spot), spot.num_drifts) for spot in drifted):
        here = [spot for spot in drifted if (setting(spot), spot.num_drifts) == key]
        (benchmark, variant, buffer_size), count = key
        name = f"{kind}-{benchmark}-{variant}-b{buffer_size or 0}-d{count}"
        yield name, draw([*here, *(spot for spot in calm if setting(spot) == key[0])])


def _features(features: FeatureRows, spots: Sequence[Spot], sweep: Sweep) -> Drawing | None:
    done = next((spot.cell.first for spot in spots if spot.cell is not None), None)
    return feature_maps(
        features,
        title=sweep.name if done is None else done.benchmark,
        notes=f"Two dimensions by {how()}. {scale_words(sweep, spots)}",
        class_names=() if done is None else done.class_names,
    )


def _file_name(words: str) -> str:
    return re.sub(r"[^A-Za-z0-9+-]+", "-", words).strip("-")[:100]
