"""A score learned on some samples and tested on the others: its definition, its level, its reach."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from driftwise.stats.held_out import (
    Learn,
    by_held_out_samples,
    separating,
    smallest_held_out_p_value,
    witness,
)

BOTH = pytest.mark.parametrize("learn", [witness, separating])


def features(samples: int, width: int, seed: int, by: float = 0.0) -> torch.Tensor:
    return torch.randn(samples, width, generator=torch.Generator().manual_seed(seed)) + by


def p_values(learn: Learn, repeats: int, by: float, sizes: tuple[int, int]) -> np.ndarray:
    draw = torch.Generator().manual_seed(1)
    pairs = [
        (features(sizes[0], 8, 2 * n), features(sizes[1], 8, 2 * n + 1, by)) for n in range(repeats)
    ]
    found = by_held_out_samples(pairs, learn=learn, generator=draw)
    return np.array([each.p_value for each in found])


@BOTH
@pytest.mark.parametrize("sizes", [(100, 50), (12, 9)])
def test_false_alarms_stay_at_their_level(learn: Learn, sizes: tuple[int, int]) -> None:
    found = p_values(learn, 400, 0.0, sizes)
    for level in (0.01, 0.05, 0.2):
        most = stats.binom.ppf(0.999, len(found), level)
        assert (found <= level).sum() <= most


@BOTH
def test_drift_is_found_at_levels_that_no_permutation_reaches(learn: Learn) -> None:
    assert np.median(p_values(learn, 20, 1.0, (100, 50))) < 1e-8


@BOTH
@pytest.mark.parametrize("sizes", [(31, 14), (5, 5)])
def test_samples_that_do_not_overlap_have_the_smallest_p_value(
    learn: Learn, sizes: tuple[int, int]
) -> None:
    apart = torch.arange(sizes[0])[:, None].float(), torch.arange(sizes[1])[:, None] + 1e4
    (found,) = by_held_out_samples([apart], learn=learn, generator=torch.Generator())
    judged = [samples - max(1, samples // 3) for samples in sizes]
    assert found.statistic == 1
    assert found.p_value == pytest.approx(smallest_held_out_p_value(*sizes))
    assert found.p_value == pytest.approx(2 / math.comb(sum(judged), judged[0]))


@BOTH
def test_samples_that_are_all_the_same_are_no_evidence(learn: Learn) -> None:
    same = torch.ones(20, 3), torch.ones(15, 3)
    (found,) = by_held_out_samples([same], learn=learn, generator=torch.Generator())
    assert found == (0, 1)


def test_the_witness_is_a_difference_of_mean_kernels() -> None:
    reference, current, samples = (features(n, 3, n).double() for n in (7, 5, 4))
    pooled = np.concatenate([reference, current])
    apart = [((a - b) ** 2).sum() for a in pooled for b in pooled if (a != b).any()]
    bandwidth = np.sort(apart)[(len(apart) - 1) // 2]

    def near(sample: np.ndarray, side: torch.Tensor) -> float:
        return float(
            np.mean([np.exp(-((sample - b) ** 2).sum() / bandwidth) for b in side.numpy()])
        )

    slow = [near(sample, current) - near(sample, reference) for sample in samples.numpy()]
    assert witness(reference, current)(samples).numpy() == pytest.approx(slow, rel=1e-6)


def test_what_separates_is_ridge_regression() -> None:
    reference, current, samples = (features(n, 3, n).double() for n in (7, 5, 4))
    pooled = torch.cat([reference, current])
    mean, deviation = pooled.mean(dim=0), pooled.std(dim=0, correction=0)
    x = ((pooled - mean) / deviation).numpy()
    y = np.array([0.0] * 7 + [1.0] * 5) - 5 / 12
    penalty = 0.01 * (x**2).sum() / len(x)
    weights = np.linalg.solve(x.T @ x + penalty * np.eye(3), x.T @ y)
    expected = ((samples - mean) / deviation).numpy() @ weights
    assert separating(reference, current)(samples).numpy() == pytest.approx(expected)
