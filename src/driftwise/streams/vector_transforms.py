"""Drift transforms of feature vectors, at five severities.

Strengths are in deviations of each feature over the training samples of the first task. A drifted set
is computed once and frozen, so equal arguments give equal vectors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError, unknown_name
from driftwise.streams.transforms import PERMUTED_PERCENT, SEVERITIES, permuted

SHIFT_DEVIATIONS = (0.25, 0.5, 1.0, 2.0, 3.0)
SCALE_FACTOR = (1.1, 1.25, 1.5, 2.0, 3.0)
ROTATION_DEGREES = (15, 30, 45, 60, 90)
NOISE_DEVIATIONS = (0.25, 0.5, 1.0, 1.5, 2.0)

VECTOR_TRANSFORMS: tuple[str, ...] = (
    "identity",
    "permutation",
    "rotation",
    "shift",
    "scale",
    "gaussian-noise",
)


def apply(
    vectors: Tensor, transform: str, severity: int, *, seed: int, mean: Tensor, deviation: Tensor
) -> Tensor:
    """A drifted copy of vectors, float32 (samples, features) -> the same shape.

    `shift` adds or subtracts so many deviations; `scale` multiplies or divides the distance from the
    mean by a factor; which of the two is drawn for each feature. `rotation` rotates random pairs of
    features about the mean. `gaussian-noise` adds noise of so many deviations. `permutation` shuffles
    a fraction of the features, each in its own deviations.

    Args:
        vectors: the samples.
        transform: one of `VECTOR_TRANSFORMS`.
        severity: 1 to 5.
        seed: draws directions, pairs, permutation and noise.
        mean: (features,), of the first task's training samples.
        deviation: (features,), of the same.

    >>> one = torch.ones(3, dtype=torch.float64)
    >>> moved = apply(torch.zeros(1, 3), "shift", 4, seed=0, mean=0 * one, deviation=one)
    >>> moved.abs()
    tensor([[2., 2., 2.]])
    """
    if transform not in VECTOR_TRANSFORMS:
        raise unknown_name("transform of vectors", transform, VECTOR_TRANSFORMS)
    if severity not in SEVERITIES:
        raise UserError(f"severity must be 1 to 5; got {severity}")
    if transform == "identity":
        return vectors
    step, draw, width = severity - 1, rng.fork(seed, transform), vectors.shape[1]
    if transform == "gaussian-noise":
        noise = torch.randn(vectors.shape, generator=draw)
        return vectors + noise * (NOISE_DEVIATIONS[step] * deviation).float()
    normal = (vectors.double() - mean) / deviation
    signs = 2 * torch.randint(2, (width,), generator=draw) - 1
    if transform == "shift":
        normal += SHIFT_DEVIATIONS[step] * signs
    elif transform == "scale":
        normal *= SCALE_FACTOR[step] ** signs.double()
    elif transform == "permutation":
        normal = normal[:, torch.from_numpy(permuted(width, PERMUTED_PERCENT[step], seed))]
    else:
        normal = _rotated(normal, ROTATION_DEGREES[step], draw)
    return (normal * deviation + mean).float()


def _rotated(vectors: Tensor, degrees: int, draw: torch.Generator) -> Tensor:
    """Random pairs of features rotated by an angle; of an odd number one stays as it is."""
    pairs = torch.randperm(vectors.shape[1], generator=draw)
    first, second = pairs[0 : len(pairs) // 2 * 2 : 2], pairs[1::2]
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    rotated = vectors.clone()
    rotated[:, first] = cos * vectors[:, first] - sin * vectors[:, second]
    rotated[:, second] = sin * vectors[:, first] + cos * vectors[:, second]
    return rotated
