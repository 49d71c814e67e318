"""Describes drift of feature vectors: which features changed, and what there is to draw of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from driftwise.detect.drift_report import (
    ClassReport,
    DriftReport,
    FeatureChange,
    Histogram,
    VectorView,
)
from driftwise.scaling import Scaling
from driftwise.stats.feature_shift import FeatureShifts, feature_shifts, histogram, mean_shifts
from driftwise.stats.projection import MAX_FITTED, Projection, spread_evenly

MAX_FEATURES = 20
"""features of a class that are reported"""
MAX_VIEWS = 20
"""classes that are drawn: those with the smallest p-values"""
MAX_POINTS = 150
"""samples on either side that are drawn as points"""
MAX_HISTOGRAMS = 3

Sides = Mapping[str, tuple[Tensor, Tensor]]
"""by class, the vectors of the reference and the current ones, (samples, features) each"""


def with_features(
    report: DriftReport, sides: Sides, scaling: Scaling, feature_names: Sequence[str]
) -> DriftReport:
    """The report with what is known of single features, of each class that was tested."""
    tested = [each for each in report.classes if each.p_value is not None]
    shifts = {each.name: feature_shifts(*sides[each.name]) for each in tested}
    if not shifts:
        return replace(report, scaling=scaling.kind)
    num_features = len(next(iter(shifts.values())).ks)
    names = feature_names or [f"feature {number}" for number in range(num_features)]
    drifted = [each for each in tested if each.verdict == "drifted"]
    shown = sorted(drifted or tested, key=lambda each: each.p_value or 0.0)
    share = max(2, MAX_FITTED // len(sides))
    some = torch.cat([spread_evenly(before, share) for before, _ in sides.values()])
    projection = Projection(scaling(some))
    drawn = {each.name for each in shown[:MAX_VIEWS]}

    def described(each: ClassReport) -> ClassReport:
        if each.name not in shifts:
            return each
        found = shifts[each.name]
        order = found.order()[:MAX_FEATURES].tolist()
        view = None
        if each.name in drawn:
            before, after = sides[each.name]
            view = VectorView(
                reference=projection.points(scaling(spread_evenly(before, MAX_POINTS))),
                current=projection.points(scaling(spread_evenly(after, MAX_POINTS))),
                histograms=tuple(
                    Histogram(
                        name=names[place],
                        **histogram(before[:, place], after[:, place])._asdict(),
                    )
                    for place in order[:MAX_HISTOGRAMS]
                ),
            )
        return replace(
            each,
            features=tuple(_change(found, place, names[place]) for place in order),
            num_features_changed=int((found.p_value * num_features <= report.level).sum()),
            view=view,
        )

    whole = mean_shifts([shifts[each.name] for each in shown])
    return replace(
        report,
        classes=tuple(map(described, report.classes)),
        scaling=scaling.kind,
        axes=projection.explained,
        features=tuple(
            replace(_change(whole, place, names[place]), p_value=None)
            for place in whole.order()[:MAX_FEATURES].tolist()
        ),
    )


def _change(found: FeatureShifts, place: int, name: str) -> FeatureChange:
    shift, spread, ks, p_value = (float(column[place]) for column in found)
    return FeatureChange(
        name=name,
        shift=None if np.isnan(shift) else shift,
        spread=None if np.isnan(spread) else spread,
        ks=ks,
        p_value=p_value,
    )
