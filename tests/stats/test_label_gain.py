"""Learning curves of fresh samples: their slopes, and labels spent by them."""

from __future__ import annotations

import pytest
import torch

from driftwise.stats.class_means import ClassMeans
from driftwise.stats.label_gain import label_slopes, labels_by_gain

WIDTH = 40
KNOWN = ClassMeans(
    by_label={c: (100.0, torch.zeros(WIDTH, dtype=torch.float64)) for c in range(4)},
    scatter=100 * torch.eye(WIDTH, dtype=torch.float64),
    freedom=100.0,
)


def fresh(apart: float, samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes 0 to 3 where none of them was, so far apart."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(4).repeat_interleave(samples)
    features = torch.randn(len(labels), WIDTH, generator=draw, dtype=torch.float64)
    features[torch.arange(len(labels)), labels] += apart
    return features, labels


@pytest.mark.parametrize("seed", range(5))
def test_classes_that_overlap_gain_from_labels_and_those_far_apart_do_not(seed: int) -> None:
    near = label_slopes(*fresh(3.0, 12, seed), KNOWN)
    far = label_slopes(*fresh(30.0, 12, seed), KNOWN)
    assert sum(near.values()) / 4 > 0.2
    assert max(far.values()) < 0.02


def test_the_slope_foretells_the_error_with_more_labels() -> None:
    """e + a / n: what 24 samples more bring to classes of 12, against twelve samples elsewhere."""
    test, names = fresh(3.0, 500, 99)

    def error(seed: int, samples: int) -> float:
        features, labels = fresh(3.0, 36, seed)
        means = torch.stack([features[labels == c][:samples].mean(dim=0) for c in range(4)])
        return float((torch.cdist(test, means).argmin(dim=1) != names).double().mean())

    gained = torch.tensor([error(seed, 12) - error(seed, 36) for seed in range(10)]).mean()
    slopes = [sum(label_slopes(*fresh(3.0, 12, seed), KNOWN).values()) / 4 for seed in range(10)]
    foretold = sum(slopes) / len(slopes) * (1 / 12 - 1 / 36)
    assert foretold == pytest.approx(float(gained), rel=0.6)


def test_few_samples_of_a_class_take_the_slope_of_the_others() -> None:
    features, labels = fresh(3.0, 12, 0)
    kept = (labels > 0) | (torch.arange(len(labels)) < 2)
    slopes = label_slopes(features[kept], labels[kept], KNOWN)
    assert slopes[0] == pytest.approx(sum(slopes[c] for c in (1, 2, 3)) / 3, rel=0.5)


@pytest.mark.parametrize("samples", [0, 1, 3])
def test_nothing_is_foretold_from_almost_nothing(samples: int) -> None:
    slopes = label_slopes(*fresh(3.0, samples, 0), KNOWN)
    assert all(slope == 0 for slope in slopes.values())


def test_equal_samples_and_single_classes_are_no_trouble() -> None:
    features = torch.ones(20, WIDTH)
    assert set(label_slopes(features, torch.zeros(20).long(), KNOWN)) == {0}
    assert set(label_slopes(features, torch.arange(20) % 2, KNOWN)) == {0, 1}


def test_equal_slopes_spread_labels_evenly_and_none_spend_none() -> None:
    counts, most = {0: 5, 1: 5}, {0: 30, 1: 30}
    assert labels_by_gain({0: 1.0, 1: 1.0}, counts, 10, most=most) == {0: 5, 1: 5}
    assert labels_by_gain({0: 0.0, 1: 0.0}, counts, 10, most=most) == {0: 0, 1: 0}
    assert labels_by_gain({0: 1.0, 1: 0.0}, counts, 60, most=most) == {0: 25, 1: 0}
