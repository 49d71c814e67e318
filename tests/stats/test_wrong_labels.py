"""Labels that are probably wrong: strangers are found, right labels are left alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from driftwise.stats.class_means import ClassMeans
from driftwise.stats.wrong_labels import wrong_label_odds


def points(label: int, count: int, *, features: int = 16, seed: int = 0) -> Tensor:
    """Samples of a class; the means of classes are 5 deviations from the origin, each on its axis."""
    draw = torch.Generator().manual_seed(100 * label + seed)
    found = torch.randn(count, features, generator=draw, dtype=torch.float64)
    found[:, label] += 5
    return found


NONE = ClassMeans()


def known(label: int) -> ClassMeans:
    found = points(label, 50, seed=1)
    apart = found - found.mean(dim=0)
    by_label = {label: (50.0, found.mean(dim=0))}
    return ClassMeans(by_label=by_label, scatter=apart.T @ apart, freedom=49.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [8, 40])
def test_strangers_among_the_samples_of_a_class_are_found_and_the_others_are_not(
    count: int, seed: int
) -> None:
    few = count // 4
    features = torch.cat(
        [points(0, count, seed=seed), points(2, few, seed=seed + 7), points(1, count, seed=seed)]
    )
    labels = torch.tensor([0] * (count + few) + [1] * count)
    is_wrong = torch.zeros(len(labels), dtype=torch.bool)
    is_wrong[count : count + few] = True
    odds = wrong_label_odds(features, labels, known(2))
    assert torch.equal(odds > 0, is_wrong)


def test_samples_of_two_fresh_classes_that_were_exchanged_are_found() -> None:
    features = torch.cat([points(0, 20), points(1, 20)])
    labels = torch.tensor([0] * 16 + [1] * 4 + [1] * 16 + [0] * 4)
    odds = wrong_label_odds(features, labels, NONE)
    assert (odds > 0).nonzero().flatten().tolist() == [*range(16, 20), *range(36, 40)]


def test_a_single_class_has_no_wrong_label() -> None:
    assert wrong_label_odds(points(0, 5), torch.zeros(5).long(), NONE).tolist() == [-math.inf] * 5


def test_the_odds_do_not_depend_on_the_scale_or_origin_of_features() -> None:
    features = torch.cat([points(0, 15), points(1, 15)])
    labels = torch.tensor([0] * 12 + [1] * 18)
    one = wrong_label_odds(features, labels, NONE)
    other = wrong_label_odds(1000 * features - 7, labels, NONE)
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_the_more_labels_may_be_wrong_the_more_are_doubted() -> None:
    features = torch.cat([points(0, 15), points(1, 15)]) / 4 + torch.randn(
        30, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    labels = torch.tensor([0] * 15 + [1] * 15)
    doubted = [
        int((wrong_label_odds(features, labels, NONE, wrong=q) > 0).sum()) for q in (0.01, 0.4)
    ]
    assert doubted[0] <= doubted[1]
