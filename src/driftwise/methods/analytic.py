"""Analytic methods: classifiers computed from class statistics, without gradients or samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError
from driftwise.memory.statistics import ClassStatistics, Scatter
from driftwise.stats.class_means import shrinkage

PENALTIES = tuple(10.0**exponent for exponent in range(-4, 5))
"""of ridge regression, times the mean squared feature: the grid of generalised cross-validation"""


@dataclass(frozen=True, kw_only=True)
class LinearClassifier:
    """Scores of classes that are linear in the features."""

    weights: Tensor
    """float64 (classes, d)"""
    bias: Tensor
    """float64 (classes,)"""

    def __call__(self, features: Tensor) -> Tensor:
        """(samples, d) -> (samples, classes)."""
        return torch.addmm(self.bias, features.double(), self.weights.T)


class AnalyticMethod(ABC):
    """Turns class statistics into a classifier; the same one for any order of arrival.

    >>> import driftwise as dw
    >>> class Signs(AnalyticMethod):  # compares with the signs of each mean, a class per row
    ...     def classifier(self, statistics):
    ...         means = statistics.means()  # (classes, d)
    ...         return LinearClassifier(weights=means.sign(), bias=-means.abs().sum(dim=1) / 2)
    >>> learner = dw.AnalyticLearner(Signs())
    """

    scatter: ClassVar[Scatter] = "class"
    """what the statistics must keep"""

    def features(self, vectors: Tensor) -> Tensor:
        """What statistics are kept of, (samples, d) -> (samples, D); by default the vectors."""
        return vectors

    @abstractmethod
    def classifier(self, statistics: ClassStatistics) -> LinearClassifier:
        """The classifier of the classes in `statistics.labels`, in that order."""


class NearestMean(AnalyticMethod):
    """Predicts the class whose mean is nearest.

    >>> import torch
    >>> import driftwise as dw
    >>> learner = dw.AnalyticLearner(dw.methods.NearestMean())
    """

    scatter: ClassVar[Scatter] = "none"

    def classifier(self, statistics: ClassStatistics) -> LinearClassifier:
        """Minus half the squared distance to each mean, up to a constant of the sample."""
        means = statistics.means()
        return LinearClassifier(weights=means, bias=-0.5 * means.square().sum(dim=1))


@dataclass(frozen=True, kw_only=True)
class SLDA(AnalyticMethod):
    """Streaming linear discriminant analysis: class means and one covariance for all classes.

    All classes count as equally likely: how often a class came does not say how often it will.

    >>> import torch
    >>> import driftwise as dw
    >>> learner = dw.AnalyticLearner(dw.methods.SLDA(shrinkage=None))
    """

    shrinkage: float | None = 0.1
    """the covariance's fraction that is replaced by a multiple of the identity; None: estimated
    from the statistics"""

    def __post_init__(self) -> None:
        if self.shrinkage is not None and not 0 <= self.shrinkage <= 1:
            raise UserError(f"shrinkage must be 0 to 1; got {self.shrinkage}")

    def classifier(self, statistics: ClassStatistics) -> LinearClassifier:
        """Log-posteriors under normal distributions, up to a constant of the sample."""
        means = statistics.means()
        scatter, freedom = statistics.pooled()
        covariance = scatter / max(freedom, 1.0)
        variance = covariance.diagonal().mean()
        if not variance > 0:  # one sample of each class, or constant features
            variance, covariance = torch.ones_like(variance), torch.zeros_like(covariance)
        # Enough to make the matrix regular, where somebody asks for no shrinkage.
        share = max(self.fraction(covariance, freedom), 1e-9)
        covariance.mul_(1 - share).diagonal().add_(share * variance)
        weights = torch.cholesky_solve(means.T, torch.linalg.cholesky(covariance)).T
        return LinearClassifier(weights=weights, bias=-0.5 * (weights * means).sum(dim=1))

    def fraction(self, covariance: Tensor, freedom: float) -> float:
        """The shrinkage of a covariance, (d, d), estimated from so many deviations."""
        return shrinkage(covariance, freedom) if self.shrinkage is None else self.shrinkage


@dataclass(frozen=True, kw_only=True)
class Ridge(AnalyticMethod):
    """Ridge regression on one-hot labels, over random features that are fixed by a seed.

    Each class has the same weight, however many samples it has.

    >>> import torch
    >>> import driftwise as dw
    >>> learner = dw.AnalyticLearner(dw.methods.Ridge(penalty=1.0))
    """

    width: int = 1000
    """random features, the positive parts of random projections; 0: the vectors themselves"""
    penalty: float | None = None
    """times the mean squared feature; None: by generalised cross-validation, from the statistics"""
    seed: int = 0
    """what the random features are drawn from"""
    _projections: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.width < 0:
            raise UserError(f"width must be 0 or more random features; got {self.width}")
        if self.penalty is not None and not self.penalty > 0:
            raise UserError(f"penalty must be above 0; got {self.penalty}")

    def features(self, vectors: Tensor) -> Tensor:
        """Positive parts of random projections and a constant, (samples, d) -> float64 (samples, D).

        In single precision a product depends in its last digits on the batch that a sample is in.
        """
        vectors = vectors.double()
        constant = torch.ones(len(vectors), 1, dtype=torch.float64)
        if not self.width:
            return torch.cat([vectors, constant], dim=1)
        dimension = vectors.shape[1]
        if dimension not in self._projections:
            generator = rng.fork(self.seed, "random features", str(dimension))
            drawn = torch.randn(dimension, self.width, generator=generator)
            self._projections[dimension] = (drawn / dimension**0.5).double()
        return torch.cat([(vectors @ self._projections[dimension]).relu_(), constant], dim=1)

    def classifier(self, statistics: ClassStatistics) -> LinearClassifier:
        """The weights that minimise the penalised squared error, a class at a time."""
        means = statistics.means()
        second = means.T @ means
        for label in statistics.labels:
            second += statistics.covariance(label)
        values, vectors = torch.linalg.eigh(second)
        values.clamp_(min=0)
        rotated = vectors.T @ means.T
        unit = float(values.mean()) or 1.0
        penalty = self._penalty(values, rotated, sum(statistics.counts().values()), unit)
        weights = vectors @ (rotated / (values[:, None] + penalty))
        return LinearClassifier(
            weights=weights.T, bias=torch.zeros(len(means), dtype=weights.dtype)
        )

    def _penalty(self, values: Tensor, rotated: Tensor, samples: float, unit: float) -> float:
        """The penalty with the least generalised cross-validation error."""
        if self.penalty is not None:
            return self.penalty * unit

        def error(penalty: float) -> float:
            kept = values / (values + penalty)
            weights = rotated / (values[:, None] + penalty)
            # |Y - XW|² from X'X, X'Y and Y'Y, all classes weighted alike.
            residual = rotated.shape[1] - 2 * (weights * rotated).sum()
            residual += (weights.square() * values[:, None]).sum()
            freedom = 1 - float(kept.sum()) / max(samples, 1.0)
            return float(residual) / max(freedom, 1e-3) ** 2

        return min((factor * unit for factor in PENALTIES), key=error)
