"""Where a class lies: bands that unchanged classes keep to, distances that changed ones show."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from driftwise.stats.position import position


def samples(count: int, seed: int, *, features: int = 20) -> Tensor:
    """Directions of unequal variance, as in real features."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, features, generator=draw) * torch.linspace(0.1, 2, features)


def test_an_unchanged_class_stays_within_its_bands_in_about_95_percent_of_cases() -> None:
    inside = []
    for seed in range(200):
        found = position(samples(60, 2 * seed), samples(40, 2 * seed + 1))
        assert found is not None
        low, high = 1 / found.spread_band, found.spread_band
        inside.append((found.moved < found.moved_band, low < found.spread < high))
    for share in torch.tensor(inside).float().mean(dim=0).tolist():
        assert 0.9 <= share <= 0.99


def test_a_shift_and_a_stretch_come_out_in_units_of_the_spread() -> None:
    reference, other = samples(4000, 0), samples(4000, 1)
    spread = float(reference.var(dim=0).sum()) ** 0.5
    shift = torch.zeros(20)
    shift[0] = 3 * spread
    moved = position(reference, other + shift)
    assert moved is not None
    assert moved.moved == pytest.approx(3, abs=0.05)
    assert moved.spread == pytest.approx(1, abs=0.05)
    stretched = position(reference, 2 * other)
    assert stretched is not None
    assert stretched.spread == pytest.approx(2, abs=0.05)
    assert stretched.spread > stretched.spread_band


@pytest.mark.parametrize("counts", [(1, 9), (9, 1), (0, 0)])
def test_too_few_samples_and_constant_ones_have_no_position(counts: tuple[int, int]) -> None:
    assert position(samples(counts[0], 0), samples(counts[1], 1)) is None
    assert position(torch.ones(5, 3), torch.zeros(5, 3)) is None
