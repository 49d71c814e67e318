"""Old samples beside fresh ones: kept where they still fit, dropped where they are in the way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from driftwise.stats.class_means import ClassMeans
from driftwise.stats.old_weight import old_weights

OLD = 200.0


def points(centres: dict[int, tuple[float, float]], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Samples around the centres of classes, in 2 of 12 dimensions, and their labels."""
    draw = torch.Generator().manual_seed(seed)
    features = torch.randn(count * len(centres), 12, generator=draw, dtype=torch.float64)
    labels = torch.tensor([label for label in centres for _ in range(count)])
    features[:, :2] += torch.tensor([centres[int(label)] for label in labels], dtype=torch.float64)
    return features, labels


def known(centres: dict[int, tuple[float, float]]) -> ClassMeans:
    means = {c: torch.tensor([*xy, *[0.0] * 10], dtype=torch.float64) for c, xy in centres.items()}
    return ClassMeans(
        by_label={c: (OLD, mean) for c, mean in means.items()},
        scatter=OLD * torch.eye(12, dtype=torch.float64),
        freedom=OLD,
    )


BEFORE = {0: (0.0, 0.0), 1: (3.0, 0.0)}


@pytest.mark.parametrize("seed", range(5))
def test_old_samples_of_an_unchanged_class_count_more_than_few_fresh_ones(seed: int) -> None:
    found = old_weights(*points(BEFORE, 8, seed), known(BEFORE))
    assert min(found.by_label.values()) > 8


@pytest.mark.parametrize("seed", range(5))
def test_old_samples_go_where_classes_have_exchanged_their_places(seed: int) -> None:
    exchanged = {0: BEFORE[1], 1: BEFORE[0]}
    found = old_weights(*points(exchanged, 20, seed), known(BEFORE))
    assert max(found.by_label.values()) < 10
    assert found.gain > 0.5


@pytest.mark.parametrize("seed", range(5))
def test_a_change_that_all_classes_share_and_that_moves_no_boundary_keeps_old_samples(
    seed: int,
) -> None:
    """Both classes move along the boundary: as far as a drift that would call for replacing them."""
    moved = {label: (x, 6.0) for label, (x, _) in BEFORE.items()}
    found = old_weights(*points(moved, 8, seed), known(BEFORE))
    assert min(found.by_label.values()) > 8
    assert abs(found.gain) < 0.2


def test_weights_lie_between_nothing_and_all_old_samples() -> None:
    for seed in range(5):
        found = old_weights(*points({0: (1.0, 1.0)}, 3, seed), known(BEFORE))
        assert 0 <= found.by_label[0] <= OLD


def test_a_class_without_old_samples_has_none_to_keep() -> None:
    found = old_weights(*points({0: (0.0, 0.0), 5: (9.0, 9.0)}, 6, 0), known(BEFORE))
    assert found.by_label[5] == 0
    assert found.by_label[0] > 0
