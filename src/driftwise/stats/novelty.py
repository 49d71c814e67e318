"""How unlike all known classes a sample is, with conformal p-values, and repeats of one reading.

Reference features of all classes are whitened by their common covariance within classes, shrunk
towards a multiple of the identity. In that space a sample has a distance from the mean of every
class (Mahalanobis) and from its nearest reference samples (kNN). Reference samples are scored as if
each had been left out of the means and of the covariance (by Sherman and Morrison's formula, so that
nothing is fitted twice); the rank of a current sample among them is its p-value.

References:
    K. Lee, K. Lee, H. Lee, J. Shin. A simple unified framework for detecting out-of-distribution
    samples and adversarial attacks. NeurIPS, 2018 (Mahalanobis).
    Y. Sun, Y. Ming, X. Zhu, Y. Li. Out-of-distribution detection with deep nearest neighbors. ICML,
    2022 (kNN).
    Y. Chen, A. Wiesel, Y. Eldar, A. Hero. Shrinkage algorithms for MMSE covariance estimation. IEEE
    Transactions on Signal Processing 58, 2010 (the amount of shrinkage).
    S. Bates, E. Candes, L. Lei, Y. Romano, M. Sesia. Testing for outliers with conformal p-values.
    Annals of Statistics 51, 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError
from driftwise.stats.c2st import held_out_scores
from driftwise.stats.permutation import observed_split, refuse_infinite

__all__ = ["KnownClasses", "Scored", "novelty_in_window", "repeats", "upper_p_values"]

NEIGHBOURS = 5
"""reference samples whose mean distance is the kNN score"""
_WINDOW_RIDGE = 100.0
"""so strong that the classifier follows the difference of the two means"""
_SHARED = 21
"""current samples, itself included, whose scores a sample shares"""
_SAME = 1e-4
"""of the median squared distance to the nearest reference sample: nearer ones are one reading"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scored:
    """Samples beside the known classes."""

    distances: Tensor
    """squared, to the mean of each class, (samples, classes)"""
    neighbours: Tensor
    """mean squared distance to the nearest reference samples, (samples,)"""

    @property
    def nearest(self) -> Tensor:
        """The place of the class with the nearest mean, (samples,)."""
        return self.distances.argmin(dim=1)

    @property
    def novelty(self) -> Tensor:
        """How unlike all classes, (samples,): distance to the nearest mean and to neighbours."""
        return self.distances.amin(dim=1) + self.neighbours


class KnownClasses:
    """Reference samples of all classes in one whitened space."""

    def __init__(self, reference: Mapping[int, Tensor], *, neighbours: int = NEIGHBOURS) -> None:
        """Fit to features (samples, d) by class, two samples of each at least."""
        few = [label for label, features in reference.items() if len(features) < 2]
        if few or not reference:
            raise UserError(f"expected two reference samples of each class at least; not of {few}")
        self.classes = tuple(reference)
        parts = [features.double() for features in reference.values()]
        pooled = torch.cat(parts)
        refuse_infinite(pooled.square().sum(dim=1))
        self.places = torch.cat(
            [torch.full((len(part),), place) for place, part in enumerate(parts)]
        )
        """of the class of each reference sample, (reference samples,)"""
        self._neighbours = neighbours
        self._centre = pooled.mean(dim=0)
        means = torch.stack([part.mean(dim=0) for part in parts])
        residuals = pooled - means[self.places]
        covariance, self._kept = _shrunk(residuals, len(parts))
        self._factor = torch.linalg.cholesky(covariance)
        self.means = self.whitened(means)
        self.reference = self.whitened(pooled)
        """the reference samples, whitened, (reference samples, d)"""
        self.scored = self._left_out_scores()
        """the reference samples, each as if it had not been fitted to"""

    def whitened(self, features: Tensor) -> Tensor:
        """(samples, d) -> (samples, d), variance about 1 in every direction within a class."""
        centred = (features.double() - self._centre).mT
        white: Tensor = torch.linalg.solve_triangular(self._factor, centred, upper=False)
        return white.mT

    def score(self, features: Tensor) -> Scored:
        """Score samples that are no reference samples."""
        white = self.whitened(features)
        to_reference = _squared_distances(white, self.reference)
        return Scored(
            distances=_squared_distances(white, self.means),
            neighbours=self._mean_of_nearest(to_reference),
        )

    def p_values(self, scored: Scored) -> Tensor:
        """Of each sample's novelty among that of the reference, (samples,); small: novel."""
        return upper_p_values(self.scored.novelty, scored.novelty)

    def own_p_values(self, scored: Scored, places: Tensor) -> Tensor:
        """The same for the distance from one class, given the place of each sample's class."""
        own = self.scored.distances.gather(1, self.places[:, None])[:, 0]
        now = scored.distances.gather(1, places[:, None])[:, 0]
        p_values = torch.ones(len(places), dtype=torch.float64)
        for place in torch.unique(places).tolist():
            here = places == place
            p_values[here] = upper_p_values(own[self.places == place], now[here])
        return p_values

    def _mean_of_nearest(self, squared: Tensor) -> Tensor:
        count = min(self._neighbours, squared.shape[1])
        return squared.topk(count, dim=1, largest=False).values.mean(dim=1)

    def _left_out_scores(self) -> Scored:
        """Leaving sample i out lowers its class's scatter by a multiple of e e', e its residual.

        With Q the inverse covariance, v' Q v then grows by w (v' Q e)^2 / (1 - w e' Q e).
        """
        counts = torch.bincount(self.places).double()[self.places]
        residuals = self.reference - self.means[self.places]
        lengths = residuals.square().sum(dim=1)
        weight = self._kept / (len(residuals) - len(self.means)) * counts / (counts - 1)
        gain = weight / (1 - weight * lengths).clamp(min=1e-6)
        # To the means: that of the own class moves away from the sample.
        inner = (residuals * self.reference).sum(dim=1, keepdim=True) - residuals @ self.means.mT
        distances = _squared_distances(self.reference, self.means)
        distances = distances + gain[:, None] * inner.square()
        own = counts / (counts - 1)
        mine = own.square() * (lengths + gain * lengths.square())
        distances.scatter_(1, self.places[:, None], mine[:, None])
        # To the neighbours, without the sample itself.
        inner = (residuals * self.reference).sum(
            dim=1, keepdim=True
        ) - residuals @ self.reference.mT
        squared = _squared_distances(self.reference, self.reference)
        squared = squared + gain[:, None] * inner.square()
        squared.fill_diagonal_(torch.inf)
        count = min(self._neighbours, len(squared) - 1)
        nearest = squared.topk(count, dim=1, largest=False).values.mean(dim=1)
        return Scored(distances=distances, neighbours=nearest)


def upper_p_values(reference: Tensor, current: Tensor) -> Tensor:
    """How often a reference score is at least as large, the current one counted, (current,)."""
    ordered = reference.sort().values
    below = torch.searchsorted(ordered, current.contiguous())
    return (1 + len(ordered) - below).double() / (1 + len(ordered))


def novelty_in_window(reference: Mapping[int, Tensor], current: Tensor, *, seed: int = 0) -> Tensor:
    """How much each current sample belongs to what only the current samples have, (samples,).

    Samples of a class that nobody knows resemble one another. A classifier learns to separate current
    from reference samples; each sample is scored by one that has not seen it, and shares its score with
    the current samples nearest to it. Single samples need not be outliers: with 50 samples of a near
    class, this finds what distances miss. Half as much counts how little a sample has of any known class
    (the energy of a linear discriminant), which shows far classes. Ranks samples of one window; its size
    means nothing.

    Args:
        reference: features (samples, d) by class.
        current: features (samples, d) of all classes together, known or not.
        seed: of the classifier's folds.
    """
    known = KnownClasses(reference)
    current = current.double()
    pooled = torch.cat([*(each.double() for each in reference.values()), current])[None]
    old = pooled.shape[1] - len(current)
    order = torch.randperm(pooled.shape[1], generator=rng.fork(seed, "novelty in window"))
    is_current = observed_split(1, (old, len(current)))
    scores = held_out_scores(pooled, is_current, order=order, folds=10, ridge=_WINDOW_RIDGE)
    apart = _squared_distances(current, current)
    nearest = apart.topk(min(_SHARED, len(current)), dim=1, largest=False).indices
    means = known.means - known.means.mean(dim=0)
    fits = known.whitened(current) @ means.mT - means.square().sum(dim=1) / 2
    return _standard(scores[0, 0, old:][nearest].mean(dim=1)) - _standard(fits.logsumexp(dim=1)) / 2


def repeats(white: Tensor, known: KnownClasses) -> Tensor:
    """Which samples repeat a reading: at least two others lie at the same point, bool (samples,).

    Two equal samples may be a copy; a broken sensor gives many.
    """
    if len(white) < 3:
        return torch.zeros(len(white), dtype=torch.bool)
    usual = known.scored.neighbours.median()
    squared = _squared_distances(white, white)
    return (squared <= _SAME * usual).sum(dim=1) > 2


def _shrunk(residuals: Tensor, num_classes: int) -> tuple[Tensor, float]:
    """The covariance within classes, shrunk, and the weight that the empirical one keeps."""
    freedom = max(1, len(residuals) - num_classes)
    covariance = residuals.mT @ residuals / freedom
    width = covariance.shape[0]
    trace, squares = float(covariance.diagonal().sum()), float(covariance.square().sum())
    if trace <= 0:  # all samples of each class are equal
        return torch.eye(width, dtype=torch.float64), 0.0
    numerator = (1 - 2 / width) * squares + trace**2
    denominator = (freedom + 1 - 2 / width) * (squares - trace**2 / width)
    shrinkage = 1.0 if denominator <= 0 else min(1.0, max(1e-3, numerator / denominator))
    shrunk = (1 - shrinkage) * covariance
    shrunk.diagonal().add_(shrinkage * trace / width)
    return shrunk, 1 - shrinkage


def _squared_distances(one: Tensor, other: Tensor) -> Tensor:
    products = one @ other.mT
    norms = one.square().sum(dim=1)[:, None] + other.square().sum(dim=1)[None]
    return (norms - 2 * products).clamp(min=0)


def _standard(values: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1; constant values become 0."""
    centred = values - values.mean()
    deviation = centred.square().mean().sqrt()
    is_constant = bool(deviation <= 1e-9 * values.abs().mean())  # but for rounding
    return torch.zeros_like(values) if is_constant else centred / deviation
