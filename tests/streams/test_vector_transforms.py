"""Transforms of feature vectors: strengths in deviations, frozen by their seed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.streams import vector_transforms
from driftwise.streams.vector_transforms import VECTOR_TRANSFORMS

MEAN = torch.tensor([0.0, 100.0, -5.0, 1e4], dtype=torch.float64)
DEVIATION = torch.tensor([1.0, 10.0, 0.1, 1e3], dtype=torch.float64)
NORMAL = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0)).double()
VECTORS = (MEAN + DEVIATION * NORMAL).float()


def drifted(transform: str, severity: int = 5, seed: int = 3) -> Tensor:
    """The drifted vectors, in deviations from the mean."""
    found = vector_transforms.apply(
        VECTORS, transform, severity, seed=seed, mean=MEAN, deviation=DEVIATION
    )
    assert found.dtype == torch.float32
    return (found.double() - MEAN) / DEVIATION


@pytest.mark.parametrize("transform", VECTOR_TRANSFORMS)
def test_equal_arguments_give_equal_vectors_and_other_seeds_others(transform: str) -> None:
    first = drifted(transform)
    assert torch.equal(first, drifted(transform))
    other = drifted(transform, seed=4)
    assert torch.equal(first, other) == (transform == "identity")


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_each_strength_is_as_stated(severity: int) -> None:
    step = severity - 1
    shift = drifted("shift", severity) - NORMAL
    expected = vector_transforms.SHIFT_DEVIATIONS[step]
    torch.testing.assert_close(shift.abs(), torch.full_like(shift, expected), atol=1e-3, rtol=0)

    factor = vector_transforms.SCALE_FACTOR[step]
    spread = drifted("scale", severity).std(dim=0) / NORMAL.std(dim=0)
    assert all(min(abs(s - factor), abs(s - 1 / factor)) < 1e-3 for s in spread.tolist())

    noise = (drifted("gaussian-noise", severity) - NORMAL).std(dim=0)
    strength = vector_transforms.NOISE_DEVIATIONS[step]
    torch.testing.assert_close(noise, torch.full_like(noise, strength), atol=0, rtol=0.05)

    turned = drifted("rotation", severity)
    torch.testing.assert_close(turned.norm(dim=1), NORMAL.norm(dim=1), atol=1e-2, rtol=0)
    cos = (turned * NORMAL).sum(dim=1) / NORMAL.square().sum(dim=1)
    angle = math.radians(vector_transforms.ROTATION_DEGREES[step])
    torch.testing.assert_close(cos, torch.full_like(cos, math.cos(angle)), atol=1e-2, rtol=0)


def test_a_permutation_moves_features_in_their_own_deviations() -> None:
    shuffled = drifted("permutation", 5)
    torch.testing.assert_close(
        shuffled.sort(dim=1).values, NORMAL.sort(dim=1).values, atol=1e-3, rtol=0
    )
    few = drifted("permutation", 3) - NORMAL  # half of four features
    assert (few.abs().max(dim=0).values > 0.1).sum() in (0, 2)


def test_unknown_names_and_severities_are_refused() -> None:
    with pytest.raises(UserError, match="unknown transform of vectors 'defocus-blur'"):
        drifted("defocus-blur")
    with pytest.raises(UserError, match="severity must be 1 to 5; got 6"):
        drifted("shift", 6)
