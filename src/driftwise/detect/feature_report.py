"""Describes drift of feature vectors: which features changed, and what there is to draw of it."""

from __future__ import annotations

import warnings
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
    Point,
    VectorView,
)
from driftwise.scaling import Scaling
from driftwise.stats.feature_shift import FeatureShifts, feature_shifts

MAX_FEATURES = 20
"""features of a class that are reported"""
MAX_VIEWS = 20
"""classes that are drawn: those with the smallest p-values"""
MAX_POINTS = 150
"""samples on either side that are drawn as points"""
MAX_HISTOGRAMS = 3
BINS = 24
_MAX_FITTED = 1000
"""reference samples that the directions are fitted to: bounds the work at any number of features"""

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
    projection = _Projection({name: before for name, (before, _) in sides.items()}, scaling)
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
                reference=projection.points(before),
                current=projection.points(after),
                histograms=tuple(
                    _histogram(names[place], before[:, place].numpy(), after[:, place].numpy())
                    for place in order[:MAX_HISTOGRAMS]
                ),
            )
        return replace(
            each,
            features=tuple(_change(found, place, names[place]) for place in order),
            num_features_changed=int((found.p_value * num_features <= report.level).sum()),
            view=view,
        )

    whole = _mean([shifts[each.name] for each in shown])
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


def _mean(found: Sequence[FeatureShifts]) -> FeatureShifts:
    """The mean over classes; of ratios the geometric one."""
    shift, spread, ks, p_value = (np.stack(column) for column in zip(*found, strict=True))
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # a feature that is constant everywhere
        return FeatureShifts(
            shift=np.nanmean(shift, axis=0),
            spread=np.exp(np.nanmean(np.log(spread), axis=0)),
            ks=ks.mean(axis=0),
            p_value=p_value.min(axis=0),
        )


def _histogram(name: str, before: np.ndarray, after: np.ndarray) -> Histogram:
    low, high = np.quantile(np.concatenate([before, after]).astype(np.float64), [0.01, 0.99])
    if high <= low:
        margin = max(abs(low), 1.0) / 2
        low, high = low - margin, high + margin
    edges = np.linspace(low, high, BINS + 1)
    fractions = [
        np.histogram(side.astype(np.float64).clip(low, high), bins=edges)[0] / len(side)
        for side in (before, after)
    ]
    return Histogram(
        name=name,
        edges=tuple(edges.tolist()),
        reference=tuple(fractions[0].round(4).tolist()),
        current=tuple(fractions[1].round(4).tolist()),
    )


class _Projection:
    """The two directions in which the scaled reference varies most (PCA), all classes together."""

    def __init__(self, reference: Mapping[str, Tensor], scaling: Scaling) -> None:
        share = max(2, _MAX_FITTED // len(reference))
        parts = [_spread_evenly(vectors, share) for vectors in reference.values()]
        fitted = scaling(torch.cat(parts)[:_MAX_FITTED]).double()
        self._scaling = scaling
        self._centre = fitted.mean(dim=0)
        centred = fitted - self._centre
        wide = centred.shape[1] > centred.shape[0]
        gram = centred @ centred.T if wide else centred.T @ centred
        values, directions = torch.linalg.eigh(gram)
        values, directions = values.flip(0)[:2].clamp(min=0), directions.flip(1)[:, :2]
        if wide:  # from the samples' to the features' side
            directions = centred.T @ directions / values.sqrt().clamp(min=1e-12)
        # An eigenvector has no sign: its largest entry is made positive.
        largest = directions.abs().argmax(dim=0, keepdim=True)
        directions = directions * directions.gather(0, largest).sign()
        self._directions = torch.zeros(centred.shape[1], 2, dtype=torch.float64)
        self._directions[:, : directions.shape[1]] = directions
        explained = torch.zeros(2, dtype=torch.float64)
        explained[: len(values)] = values / gram.diagonal().sum().clamp(min=1e-12)
        self.explained: Point = (float(explained[0]), float(explained[1]))

    def points(self, vectors: Tensor) -> tuple[Point, ...]:
        """Some of the vectors along the two directions."""
        some = self._scaling(_spread_evenly(vectors, MAX_POINTS)).double()
        points = ((some - self._centre) @ self._directions).numpy().round(3)
        return tuple((x, y) for x, y in points.tolist())


def _spread_evenly(vectors: Tensor, most: int) -> Tensor:
    """At most so many of the samples."""
    return (
        vectors
        if len(vectors) <= most
        else vectors[torch.linspace(0, len(vectors) - 1, most).long()]
    )
