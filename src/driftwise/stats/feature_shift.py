"""Which features of vectors have moved: each feature's change by itself.

These describe a drift that a test has found; they are no test of the whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from driftwise.stats.ks import asymptotic_kolmogorov_smirnov

Floats = npt.NDArray[np.float64]

BINS = 24
CONSTANT = 1e-6
"""deviation, as a fraction of the mean, below which a feature is constant up to rounding"""


class FeatureShifts(NamedTuple):
    """The change of each feature, (features,) each."""

    shift: Floats
    """of the mean, in deviations of the reference; NaN where the reference is constant"""
    spread: Floats
    """deviation of the current samples, by that of the reference; NaN likewise"""
    ks: Floats
    """largest difference of the two distribution functions, 0 to 1"""
    p_value: Floats
    """how often two samples of one distribution would differ as much in this feature (asymptotic)"""

    def order(self) -> npt.NDArray[np.int64]:
        """The features, those that changed most first: by KS distance, ties by the shift."""
        size = np.nan_to_num(np.abs(self.shift), nan=np.inf)
        return np.lexsort((np.arange(len(size)), -size, -self.ks))


def feature_shifts(reference: Tensor, current: Tensor) -> FeatureShifts:
    """Compare reference (n, features) and current samples (m, features), feature by feature.

    >>> import torch
    >>> before = torch.tensor([[0.0, 1.0], [2.0, 1.0]])
    >>> found = feature_shifts(before, before + torch.tensor([4.0, 0.0]))
    >>> found.shift[0], found.spread[0], found.ks, found.order()
    (np.float64(4.0), np.float64(1.0), array([1., 0.]), array([0, 1]))
    """
    before, after = reference.double(), current.double()
    pairs = list(zip(before.T, after.T, strict=True))
    evidence = asymptotic_kolmogorov_smirnov(pairs)
    old, new = before.numpy(), after.numpy()
    mean, deviation = old.mean(axis=0), old.std(axis=0)
    deviation[deviation <= CONSTANT * np.abs(mean)] = np.nan
    return FeatureShifts(
        shift=(new.mean(axis=0) - mean) / deviation,
        spread=new.std(axis=0) / deviation,
        ks=np.array([each.statistic for each in evidence]),
        p_value=np.array([each.p_value for each in evidence]),
    )


def mean_shifts(found: Sequence[FeatureShifts]) -> FeatureShifts:
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


class Histogram(NamedTuple):
    """The values of one feature on two sides; values beyond the edges lie in the outer bins."""

    edges: tuple[float, ...]
    reference: tuple[float, ...]
    """fraction of the samples in each bin"""
    current: tuple[float, ...]


def histogram(reference: Tensor, current: Tensor) -> Histogram:
    """Bins over nearly all of the values of one feature, (n,) and (m,)."""
    sides = [side.double().numpy() for side in (reference, current)]
    low, high = np.quantile(np.concatenate(sides), [0.01, 0.99])
    if high <= low:
        margin = max(abs(low), 1.0) / 2
        low, high = low - margin, high + margin
    edges = np.linspace(low, high, BINS + 1)
    before, after = (
        np.histogram(side.clip(low, high), bins=edges)[0] / len(side) for side in sides
    )
    return Histogram(
        tuple(edges.tolist()), tuple(before.round(4).tolist()), tuple(after.round(4).tolist())
    )
