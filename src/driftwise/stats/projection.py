"""Feature vectors as points of a plane, for drawings."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_FITTED = 1000
"""vectors that directions are fitted to: bounds the work at any number of features"""

Point = tuple[float, float]


class Projection:
    """The two directions in which some vectors, (samples, features), vary most (PCA)."""

    def __init__(self, vectors: Tensor) -> None:
        fitted = spread_evenly(vectors, MAX_FITTED).double()
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
        """the fraction of the variance along each"""

    def points(self, vectors: Tensor) -> tuple[Point, ...]:
        """Vectors along the two directions."""
        points = ((vectors.double() - self._centre) @ self._directions).numpy().round(3)
        return tuple((x, y) for x, y in points.tolist())


def spread_evenly(vectors: Tensor, most: int) -> Tensor:
    """At most so many of the vectors, from the first to the last."""
    if len(vectors) <= most:
        return vectors
    return vectors[torch.linspace(0, len(vectors) - 1, most).long()]
