"""Describes drift: which features or image statistics changed, and what there is to draw of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.stats import chi2_contingency
from torch import Tensor

from driftwise.detect.drift_report import (
    ClassReport,
    DriftReport,
    FeatureChange,
    FrequencyShift,
    Histogram,
    VectorView,
)
from driftwise.scaling import Scaling
from driftwise.stats.feature_shift import FeatureShifts, feature_shifts, histogram, mean_shifts
from driftwise.stats.image_statistics import NAMES
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


def with_statistics(report: DriftReport, sides: Sides) -> DriftReport:
    """The report with how statistics of images changed, of each class that was tested.

    Args:
        report: of images
        sides: by class, `image_statistics` of both sides
    """
    tested = [each for each in report.classes if each.p_value is not None]
    known = [each for each in tested if all(side.shape[1] for side in sides[each.name])]
    if not known:  # a reference of an earlier version has none
        return report
    shifts = {each.name: feature_shifts(*sides[each.name]) for each in known}
    drifted = [each for each in known if each.verdict == "drifted"]
    whole = mean_shifts([shifts[each.name] for each in drifted or known])
    return replace(
        report,
        classes=tuple(
            replace(each, image_statistics=_statistics(shifts[each.name]))
            if each.name in shifts
            else each
            for each in report.classes
        ),
        image_statistics=tuple(replace(each, p_value=None) for each in _statistics(whole)),
    )


def _statistics(found: FeatureShifts) -> tuple[FeatureChange, ...]:
    return tuple(_change(found, place, NAMES[place]) for place in found.order().tolist())


def frequency_shift(classes: Sequence[ClassReport]) -> FrequencyShift | None:
    """Compare how often classes occur on both sides; None where there is but one class."""
    counts = np.array([[each.num_reference, each.num_current] for each in classes], dtype=float)
    if len(counts) < 2 or not counts.sum(axis=0).all():
        return None
    fractions = counts / counts.sum(axis=0)
    return FrequencyShift(
        p_value=float(chi2_contingency(counts, correction=False).pvalue),
        distance=float(np.abs(fractions[:, 0] - fractions[:, 1]).sum() / 2),
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
