"""Where a class lies in feature space: how far its mean has moved and how its spread has changed.

Distances are in units of the class's own spread, the root mean squared distance of a reference sample
from the reference mean. The bands are what samples of an unchanged class would show in 95 % of cases,
if features were normal: from the trace of the squared covariance, without permutations. They are a
guide for the eye; whether a class has drifted is the detector's decision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

__all__ = ["Position", "position"]


@dataclass(frozen=True, kw_only=True)
class Position:
    """Current samples of a class against its reference samples."""

    moved: float
    """distance of the means, in spreads of the reference"""
    moved_band: float
    """what an unchanged class stays below in 95 % of cases"""
    spread: float
    """spread of the current samples, over that of the reference"""
    spread_band: float
    """an unchanged class lies from 1 / band to band in 95 % of cases"""


def position(reference: Tensor, current: Tensor) -> Position | None:
    """Where current features, (samples, d), lie; None: fewer than two samples, or all alike.

    >>> import torch
    >>> draw = torch.Generator().manual_seed(0)
    >>> reference, current = torch.randn(2, 50, 8, generator=draw)
    >>> quiet = position(reference, current)
    >>> quiet.moved < quiet.moved_band, position(reference, current + 2).moved > quiet.moved_band
    (True, True)
    """
    if min(len(reference), len(current)) < 2:
        return None
    sides = [side.detach().double() for side in (reference, current)]
    means = [side.mean(dim=0) for side in sides]
    apart = [side - mean for side, mean in zip(sides, means, strict=True)]
    freedom = [len(side) - 1 for side in sides]
    variances = [float(each.square().sum()) / n for each, n in zip(apart, freedom, strict=True)]
    if not variances[0] > 0:
        return None
    # tr(S²) / tr(S)² of the reference's covariance: one over the number of directions that matter.
    gram = apart[0] @ apart[0].T
    concentration = min(1.0, float(gram.square().sum()) / float(gram.diagonal().sum()) ** 2)
    size = sum(1 / len(side) for side in sides)
    deviation = math.sqrt(2 * concentration)
    ratio = math.sqrt(variances[1] / variances[0])
    return Position(
        moved=math.sqrt(float((means[1] - means[0]).square().sum()) / variances[0]),
        moved_band=math.sqrt(size * (1 + 1.645 * deviation)),
        spread=ratio,
        spread_band=math.exp(1.96 * 0.5 * deviation * math.sqrt(sum(1 / n for n in freedom))),
    )
