"""The classifier two-sample test against scikit-learn fold by fold; validity and power."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.c2st import areas_under_curve, c2st, held_out_scores
from driftwise.stats.mmd import mmd
from driftwise.stats.permutation import random_splits


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(samples: int, width: int, draw: torch.Generator) -> Tensor:
    return torch.randn(samples, width, generator=draw, dtype=torch.float64)


def literal_scores(
    samples: np.ndarray, is_current: np.ndarray, *, folds: int, ridge: float
) -> np.ndarray:
    """One fit per fold."""
    standard = (samples - samples.mean(axis=0)) / samples.std(axis=0)
    penalty = ridge * np.square(standard).sum() / len(samples)
    labels = is_current - is_current.mean()
    scores = np.empty(len(samples))
    for fold in np.array_split(np.arange(len(samples)), folds):
        rest = np.setdiff1d(np.arange(len(samples)), fold)
        model = Ridge(alpha=penalty).fit(standard[rest], labels[rest])
        scores[fold] = model.predict(standard[fold]) - labels[rest].mean()
    return scores


@pytest.mark.parametrize(("width", "folds"), [(1, 2), (40, 4), (6, 15)])
def test_held_out_scores_are_those_of_one_ridge_fit_per_fold(width: int, folds: int) -> None:
    draw = generator(width)
    pooled = features(15, width, draw) * 3 + 1  # forty features are more than the samples
    splits = random_splits(1, 4, (6, 9), draw)
    (found,) = held_out_scores(pooled[None], splits, folds=folds, ridge=0.5)
    for scores, split in zip(found, splits[0], strict=True):
        expected = literal_scores(pooled.numpy(), split.numpy(), folds=folds, ridge=0.5)
        assert scores.tolist() == pytest.approx(expected.tolist(), abs=1e-10)


def test_areas_are_those_of_scikit_learn_ties_included() -> None:
    draw = generator(2)
    scores = torch.randint(5, (3, 8, 20), generator=draw).double() / 10
    splits = random_splits(3, 7, (12, 8), draw)
    found = areas_under_curve(scores, splits)
    for c in range(3):
        for s in range(8):
            expected = roc_auc_score(splits[c, s].numpy(), scores[c, s].numpy())
            assert found[c, s].item() == pytest.approx(expected)


def test_the_p_value_is_the_observed_rank_among_itself_and_the_permuted_splits() -> None:
    reference, current = features(8, 3, generator(1)), features(12, 3, generator(2)) + 0.4
    ((area, p_value),) = c2st([(reference, current)], permutations=40, generator=generator(3))
    draw = generator(3)
    splits = random_splits(1, 40, (8, 12), draw)[0].numpy()
    order = torch.rand(1, 20, generator=draw).argsort(dim=1)[0]
    samples = torch.cat([reference, current])[order].numpy()
    areas = [
        roc_auc_score(split, literal_scores(samples, split, folds=10, ridge=0.01))
        for split in splits[:, order]
    ]
    assert area == pytest.approx(areas[0])
    at_least = sum(other >= areas[0] - 1e-9 for other in areas)
    assert 1 < at_least < 40
    assert p_value == pytest.approx(at_least / 41)


@pytest.mark.parametrize(("n", "m", "width"), [(8, 12, 3), (5, 6, 20)])
def test_false_alarms_stay_at_their_level_when_nothing_drifts(n: int, m: int, width: int) -> None:
    draw = generator(4)
    pairs = [(features(n, width, draw), features(m, width, draw)) for _ in range(1000)]
    found = [p_value for _, p_value in c2st(pairs, permutations=99, generator=draw)]
    rate = statistics.fmean(p_value <= 0.05 for p_value in found)
    assert rate <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)
    assert rate > 0.02  # areas are discrete, which costs something, and not all


def test_a_shift_across_correlated_features_is_found_where_distances_hide_it() -> None:
    """The shift lies in a direction in which features hardly vary."""
    draw = generator(6)
    mixing = features(16, 16, draw) @ torch.logspace(0, -2, 16, dtype=torch.float64).diag()
    pairs = [
        (features(50, 16, draw) @ mixing.T, features(100, 16, draw) @ mixing.T) for _ in range(30)
    ]
    pairs = [(reference, current + 0.9 * mixing[:, 12:].sum(dim=1)) for reference, current in pairs]

    def power(evidence: list[tuple[float, float]]) -> float:
        return statistics.fmean(p_value <= 0.05 for _, p_value in evidence)

    by_classifier = power([*c2st(pairs, generator=draw)])
    by_distances = power([*mmd(pairs, generator=draw)])
    assert by_classifier > 0.9
    assert by_distances < 0.3


@pytest.mark.parametrize(("samples", "value"), [(2, 0.0), (7, 0.1), (7, 1e8)])
def test_constant_features_are_chance(samples: int, value: float) -> None:
    constant = torch.full((samples, 3), value)
    assert c2st([(constant, constant)], generator=generator()) == [(0.5, 1.0)]


def test_equal_samples_tie() -> None:
    sample = features(1, 30, generator(1))
    pair = sample.expand(9, 30), torch.cat([sample.expand(9, 30), sample + 1])
    ((area, _),) = c2st([pair], folds=19, generator=generator())
    assert area * (9 * 10 * 2) == pytest.approx(round(area * (9 * 10 * 2)))


def test_classes_of_different_sizes_come_back_in_their_order() -> None:
    draw = generator(8)
    sizes = [(5, 9), (8, 6), (5, 9)]
    pairs = [(features(n, 4, draw), features(m, 4, draw) + 9 * (m == 6)) for n, m in sizes]
    areas = [area for area, _ in c2st(pairs, generator=draw)]
    assert [area == 1 for area in areas] == [False, True, False]
    assert c2st([], generator=draw) == []
    apart = features(20, 200, draw), features(15, 200, draw) + 5
    assert c2st([apart], generator=draw) == [(1.0, 1 / 101)], "the smallest p-value"
    ((area, p_value),) = c2st([(features(2, 9, draw), features(2, 9, draw))], generator=draw)
    assert 0 <= area <= 1
    assert 0.1 < p_value <= 1


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_features_that_are_no_numbers_are_refused(bad: float) -> None:
    current = features(5, 3, generator())
    current[1, 2] = bad
    with pytest.raises(UserError, match="NaN"):
        c2st([(features(4, 3, generator()), current)], generator=generator())
    for options in ({"folds": 1}, {"ridge": 0.0}):
        with pytest.raises(UserError, match="at least 2 folds and a positive ridge"):
            c2st([], generator=generator(), **options)
