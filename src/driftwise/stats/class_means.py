"""Classes by their means and one covariance, and the units in which distances to them are measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ClassMeans:
    """What is known of classes: how many samples, their mean, and how samples scatter about it."""

    by_label: Mapping[int, tuple[float, Tensor]] = field(default_factory=dict)
    """number of samples and mean, float64 (d,)"""
    scatter: Tensor | None = None
    """the sum of the outer products of deviations from class means, float64 (d, d); None: not known"""
    freedom: float = 0.0
    """the degrees of freedom of the scatter"""

    def without(self, labels: Collection[int]) -> ClassMeans:
        """All but these classes; the scatter stays."""
        left = {label: known for label, known in self.by_label.items() if label not in labels}
        return replace(self, by_label=left)


@dataclass(frozen=True, kw_only=True)
class Whitening:
    """Turns vectors so that a class scatters alike in all directions: by a covariance, shrunk."""

    root: Tensor
    """the Cholesky factor of the shrunk covariance, (d, d)"""
    trace: float
    """the mean squared length of a whitened deviation"""

    @staticmethod
    def of(deviations: Tensor, num_means: int, known: ClassMeans) -> Whitening:
        """From deviations, (samples, d), from so many means, and the scatter of known classes."""
        scatter, freedom = deviations.T @ deviations, float(len(deviations) - num_means)
        if known.scatter is not None:
            scatter, freedom = scatter + known.scatter, max(freedom, 0.0) + known.freedom
        freedom = max(freedom, 1.0)
        covariance = scatter / freedom
        variance = float(covariance.diagonal().mean()) or 1.0
        share = max(shrinkage(covariance, freedom), 1e-3)
        shrunk = (1 - share) * covariance
        shrunk.diagonal().add_(share * variance)
        root = torch.linalg.cholesky(shrunk)
        trace = float(torch.cholesky_solve(covariance, root).diagonal().sum())
        return Whitening(root=root, trace=max(trace, 1e-9))

    def __call__(self, vectors: Tensor) -> Tensor:
        """(samples, d) -> (samples, d)."""
        turned: Tensor = torch.linalg.solve_triangular(self.root, vectors.T, upper=False)
        return turned.T


def shrinkage(covariance: Tensor, freedom: float) -> float:
    """The fraction of a covariance, (d, d), to replace by a multiple of the identity.

    The estimate of Chen et al. (2010), "oracle approximating shrinkage", takes the deviations for
    normal ones, and falls as they become more.
    """
    squared_mean = float(covariance.diagonal().mean()) ** 2
    mean_square = float(covariance.square().mean())
    spread = (freedom + 1) * (mean_square - squared_mean / len(covariance))
    return min(1.0, (mean_square + squared_mean) / spread) if spread > 0 else 1.0
